#!/usr/bin/env bash
# Builds Debian 12's kubelet with Debian 12's Go into target/tools/kubelet: 120 MB to load, two minutes on two quiet
# cores. Installs nothing and needs no root. Does nothing where the programs are there already.
#   tests/e2e/kubelet.sh            the kubelet
#   tests/e2e/kubelet.sh cluster    also what else a cluster needs, and Debian 12's etcd: ten minutes
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.."

target=$PWD/target/tools/kubelet
cluster=(kube-apiserver kube-controller-manager kube-scheduler)
wanted=(kubelet)
[[ ${1:-} == cluster ]] && wanted+=("${cluster[@]}" etcd)
missing=()
for program in "${wanted[@]}"; do [[ -x $target/$program ]] || missing+=("$program"); done
[[ ${#missing[@]} -eq 0 ]] && exit
mirror=http://deb.debian.org/debian
keys=/usr/share/keyrings/debian-archive-keyring.gpg
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

mkdir -p lists/partial cache/archives/partial gopath/src/k8s.io/kubernetes go etcd
printf '%s [signed-by=%s] %s bookworm main\n' deb "$keys" "$mirror" deb-src "$keys" "$mirror" >sources.list
apt=(apt-get -qq -o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts=/dev/null
  -o Dir::State::lists="$work/lists" -o Dir::Cache="$work/cache" -o Dir::State::status=/dev/null
  -o Acquire::Languages=none -o Acquire::Retries=3 -o APT::Sandbox::User=root)
"${apt[@]}" update -o APT::Update::Error-Mode=any
"${apt[@]}" source --download-only kubernetes
"${apt[@]}" download golang-1.19-go golang-1.19-src
for package in golang-*.deb; do dpkg -x "$package" go; done
tar -xf kubernetes_*.orig.tar.gz -C gopath/src/k8s.io/kubernetes --strip-components=1

export GOROOT=$work/go/usr/lib/go-1.19 GOPATH=$work/gopath GOCACHE=$work/gocache GO111MODULE=off CGO_ENABLED=0 GOFLAGS=-p=2
mkdir -p "$target" "$work/built"
version=k8s.io/kubernetes/vendor/k8s.io/component-base/version.gitVersion=v1.20.2
cd gopath/src/k8s.io/kubernetes

# What the API server says of its types is in no release: it is made of the types that ask for it.
make_openapi() {
  local types
  types=$(grep -rl --include='*.go' '^// +k8s:openapi-gen=' pkg staging/src/k8s.io |
    grep -v -e /code-generator/ -e /sample-apiserver/ | xargs -n1 dirname | sort -u |
    sed -e 's,^staging/src/,vendor/,' -e 's,^,k8s.io/kubernetes/,' | paste -sd,)
  "$GOROOT/bin/go" build -o "$work/openapi-gen" ./vendor/k8s.io/kube-openapi/cmd/openapi-gen
  "$work/openapi-gen" -i "$types" -p k8s.io/kubernetes/pkg/generated/openapi -O zz_generated.openapi \
    -h vendor/k8s.io/code-generator/hack/boilerplate.go.txt -r "$work/violations"
}

for program in "${missing[@]}"; do
  if [[ $program == etcd ]]; then
    (cd "$work" && "${apt[@]}" download etcd-server && dpkg -x etcd-server_*.deb etcd)
    install "$work/etcd/usr/bin/etcd" "$target/etcd"
    continue
  fi
  [[ $program == kube-apiserver ]] && make_openapi
  "$GOROOT/bin/go" build -tags providerless,dockerless -ldflags "-s -w -X $version" -o "$work/built/" "./cmd/$program"
  mv "$work/built/$program" "$target/$program"
done
