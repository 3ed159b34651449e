#!/usr/bin/env bash
# Puts schemathesis, which tries docs/openapi.yaml, into target/tools, once. Prints its program.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.."

version=4.32.5
tools=$PWD/target/tools/schemathesis-$version

# Debian's Python comes without ensurepip, which venv needs.
need_python() {
  python3 -c 'import ensurepip, venv' 2>/dev/null && return
  local apt=(apt-get -qq -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3)
  export DEBIAN_FRONTEND=noninteractive
  "${apt[@]}" update
  "${apt[@]}" install --yes --no-install-recommends python3-venv >/dev/null
}

if [[ ! -e $tools/complete ]]; then
  echo "installing schemathesis" >&2
  rm -rf "$tools"
  need_python
  python3 -m venv "$tools"
  "$tools/bin/pip" install --quiet --disable-pip-version-check "schemathesis==$version"
  touch "$tools/complete"
fi
echo "$tools/bin/schemathesis"
