#!/usr/bin/env bash
# Writes deploy/kubernetes from the chart, and the chart's copies of the alert rules and of the dashboards: run it after
# a change to any of them.
#   deploy/render.sh            writes
#   deploy/render.sh --check    compares, and fails on a difference
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
tools=$(./tools.sh)
export HELM_CACHE_HOME=$tools/helm HELM_CONFIG_HOME=$tools/helm HELM_DATA_HOME=$tools/helm

header='# Rendered by deploy/render.sh from deploy/helm/crisweep. Do not edit.'

# render STAGE TARGET NAME...: the chart's templates of these names as files of these names.
render() {
  local stage=$1 target=$2 name
  shift 2
  mkdir -p "$target"
  for name in "$@"; do
    {
      echo "$header"
      "$tools/bin/helm" template crisweep "$chart" --namespace crisweep --values "helm/stages/$stage.yaml" \
        --set namespace.create=true,podMonitor.enabled=true,prometheusRule.enabled=true,dashboards.enabled=true \
        --show-only "templates/$name.yaml" | sed '1{/^---$/d}; /^# Source: /d'
    } >"$target/$name.yaml"
  done
}

all() {
  local to=$1 stage
  mkdir -p "$to/image"    # for the comparison; its kustomization.yaml is written by hand, as those of the stages
  render watch "$to/common" namespace serviceaccount rbac service networkpolicy
  render watch "$to/monitoring" podmonitor prometheusrule
  render watch "$to/dashboards" dashboards
  for stage in watch canary all; do
    render "$stage" "$to/$stage" configmap daemonset
  done
}

chart=helm/crisweep
rules=$chart/files/crisweep.rules.yaml
dashboards=$chart/files/dashboards
if [[ ${1:-} == --check ]]; then
  scratch=$(mktemp -d)
  trap 'rm -r "$scratch"' EXIT
  cmp ../alerts/crisweep.rules.yaml "$rules" || { echo "run deploy/render.sh" >&2; exit 1; }
  for file in ../dashboards/*.json; do
    cmp "$file" "$dashboards/${file##*/}" || { echo "run deploy/render.sh" >&2; exit 1; }
  done
  all "$scratch"
  diff -r --exclude=kustomization.yaml "$scratch" kubernetes || { echo "run deploy/render.sh" >&2; exit 1; }
else
  cp ../alerts/crisweep.rules.yaml "$rules"
  mkdir -p "$dashboards"
  cp ../dashboards/*.json "$dashboards"
  all kubernetes
fi
