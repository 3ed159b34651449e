#!/usr/bin/env bash
# Checks the chart and what is rendered from it, without a cluster: real helm and kubectl, the schemas of the
# Kubernetes releases, and crisweep's own check of each configuration. Needs target/debug/crisweep (`make build`).
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
tools=$(./tools.sh)
export HELM_CACHE_HOME=$tools/helm HELM_CONFIG_HOME=$tools/helm HELM_DATA_HOME=$tools/helm
helm=$tools/bin/helm
chart=helm/crisweep
crisweep=${CARGO_TARGET_DIR:-../target}/debug/crisweep
scratch=$(mktemp -d)
trap 'rm -r "$scratch"' EXIT
[[ -x $crisweep ]] || { echo "deploy/check.sh: no $crisweep; run cargo build first" >&2; exit 2; }

template() { "$helm" template crisweep "$chart" --namespace crisweep "$@"; }

# The checked-in manifests are those of the chart.
./render.sh --check

for stage in watch canary all; do
  "$helm" lint --strict --quiet "$chart" --values "helm/stages/$stage.yaml"
done

# What people change, alone and together.
number=0
while read -r sets; do
  number=$((number + 1))
  # shellcheck disable=SC2086 # several flags
  template $sets >"$scratch/matrix-$number.yaml"
done <<'VALUES'
--set namespace.create=true
--values helm/stages/canary.yaml
--values helm/stages/all.yaml --set config.policy.logs.enabled=true
--values helm/stages/canary.yaml --set canary.config.policy.logs.enabled=true,canary.config.pods.source=none
--values helm/stages/canary.yaml --set config.pods.source=kubelet,config.pods.kubelet_url=https://node:10250,canary.config.pods.source=none
--values helm/stages/canary.yaml --set config.pods.api_url=https://api:6443,canary.config.pods.source=kubelet
--values helm/stages/canary.yaml --set config.pods.api_url=https://api:6443,config.fleet.hold_config_map=null,canary.config.pods.source=none
--set distribution=crio,seLinuxOptions.type=spc_t,config.pods.source=kubelet-socket
--set distribution=k3s,config.pods.source=auto
--set distribution=rke2,config.pods.source=none,state.enabled=false
--set distribution=microk8s,runAsUser=0,networkPolicy.enabled=false
--set distribution=k0s,config.pods.source=kubelet
--set config.pods.source=kubelet,hostNetwork=true
--set config.pods.source=kubelet,config.pods.kubelet_url=https://node:10250
--set runtime.socketDirectory=/run/x,runtime.socket=y.sock,runtime.filesystems={/a/b,/c}
--set podMonitor.enabled=true,podMonitor.relabelings[0].sourceLabels={__meta_kubernetes_pod_ip},podMonitor.relabelings[0].targetLabel=pod_host
--set serviceMonitor.enabled=true,prometheusRule.enabled=true,prometheusRule.labels.release=x,scrapeAnnotations=false
--set secrets={tokens,web},web.tls=true,web.port=9999,config.web.config_file=/etc/crisweep-secrets/web/web-config.yml
--set secrets={tokens.of.crisweep,a-name-of-a-secret-that-is-longer-than-what-a-volume-may-be-called-which-is-63}
--set secrets={tokens},config.web.bearer_token_files.act={/etc/crisweep-secrets/tokens/alertmanager.token}
--set config.web.token_review.enabled=true,config.pods.source=none
--set config.alertmanager.poll={http://alertmanager-operated.monitoring.svc:9093},config.thresholds.enabled=false
--set nameOverride=other,fullnameOverride=another,serviceAccount.create=false,rbac.create=false
--set image.digest=sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa,imagePullSecrets[0].name=r
--set extraEnv[0].name=CRISWEEP__LOG__LEVEL,extraEnv[0].value=debug,podAnnotations.a=b,podLabels.c=d
--set config.web.config_file=/etc/crisweep-secrets/web/web-config.yml,web.tls=false,secrets={web}
--set secrets={web},web.tls=true,probes.tcpSocket=true,config.web.config_file=/etc/crisweep-secrets/web/web-config.yml
--set state.hostPath=/data/crisweep-state,minReadySeconds=5
--set config.fleet.hold_config_map=null,config.pods.source=none
--set config.events.enabled=true
--set config.events.enabled=true,config.events.pods=false,config.fleet.hold_config_map=null,config.pods.source=none
--set config.fleet.budget.max_nodes=3
--set dashboards.enabled=true,dashboards.namespace=grafana,dashboards.annotations.grafana_folder=Nodes
--set config.fleet.hold_config_map=null,config.fleet.budget.max_nodes=1,config.pods.source=none
--set canary.enabled=true,canary.config.fleet.hold_config_map=other,config.pods.source=kubelet-socket
VALUES

# The canary's nodes are left alone, whatever the node affinity is.
terms=affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms
expressions() { printf '%s' "$terms[$1].matchExpressions[0].key=$2,$terms[$1].matchExpressions[0].operator=Exists"; }
template --values helm/stages/canary.yaml --set "$(expressions 0 a),$(expressions 1 b)" >"$scratch/affinity.yaml"
[[ $(grep -c "operator: NotIn" "$scratch/affinity.yaml") == 2 ]] || { echo "a term without NotIn" >&2; exit 1; }

# The kubelet's socket is mounted where the configuration has it.
template --set config.pods.source=auto,config.pods.kubelet_socket=/a/pods/b.sock >"$scratch/socket.yaml"
[[ $(grep -c "ath: /a/pods," "$scratch/socket.yaml") == 2 ]] || { echo "another directory is mounted" >&2; exit 1; }

# kubectl understands each stage.
for stage in watch canary all monitoring dashboards; do
  "$tools/bin/kubectl" kustomize "kubernetes/$stage" >"$scratch/kustomize-$stage.yaml"
done

"$tools/python/bin/python" check.py "$crisweep" 1.37,1.36,1.35,1.34,1.33,1.31,1.29,1.27,1.25 "$scratch"/*.yaml \
  ../alerts/alertmanagerconfig.sample.yaml

# Mistakes are refused, with words that lead on.
refused() {
  local wanted=$1 said
  shift
  if said=$(template "$@" 2>&1 >/dev/null); then
    echo "helm takes $*" >&2
    exit 1
  fi
  [[ $said == *"$wanted"* ]] || { echo "helm says of $*, without \"$wanted\": $said" >&2; exit 1; }
}
refused "additional properties 'toleration' not allowed" --set toleration=x
refused "additional properties 'thresholdz' not allowed" --set config.thresholdz.enabled=true
refused "at '/canary/config': additional properties 'modes' not allowed" --set canary.config.modes=enforce
refused "at '/config/mode': value must be one of 'observe', 'enforce'" --set config.mode=dry
refused "at '/config/pods/source': value must be one of" --set config.pods.source=file
refused "at '/distribution': value must be one of" --set distribution=openshift
refused "at '/web/port': got string, want integer" --set-string web.port=x
refused "at '': missing property 'config'" --set config=null
refused "at '/config/pods': missing property 'source'" --set config.pods.source=null
refused "additional properties 'maxSurge' not allowed" \
  --set updateStrategy.rollingUpdate.maxSurge=1,updateStrategy.rollingUpdate.maxUnavailable=0
refused "at '/extraEnv/0/value': got number, want string" --set extraEnv[0].name=A,extraEnv[0].value=1
refused "at '/hostNetwork': got string, want boolean" --set-string hostNetwork=yes
refused "at '/runtime/socketDirectory'" --set runtime.socketDirectory=run/containerd
refused "at '/terminationGracePeriodSeconds': minimum: got 5, want 15" --set terminationGracePeriodSeconds=5
refused "at '/image/digest'" --set image.digest=sha256:short
refused "name a version" --set image.tag=latest
refused "enable one" --set podMonitor.enabled=true,serviceMonitor.enabled=true
refused "use runtime.socketDirectory and runtime.socket" --set config.runtime.endpoint=/x.sock
refused "use web.port" --set config.web.listen={:1}
refused "the release's namespace" --set config.fleet.namespace=other
refused "each pod has the name of its node" --set config.node.name=node-1
refused "at '/config/fleet/budget/max_nodes': maximum: got 101, want 100" --set config.fleet.budget.max_nodes=101
refused "at '/config/fleet/hold_config_map': got number" --set config.fleet.hold_config_map=1
refused "at '/config/fleet/hold_config_map': minLength" --set config.fleet.hold_config_map=
refused "at '/state/hostPath'" --set state.hostPath=/etc
refused "at '/state/hostPath'" --set state.hostPath=/var/crisweep/lib
refused "say with web.tls" --set config.web.config_file=/etc/crisweep-secrets/web/web-config.yml
refused "say with web.tls" --set canary.enabled=true,canary.config.web.config_file=/etc/crisweep-secrets/web/w.yml
refused "at '/config/policy/logs': missing property 'enabled'" --set config.policy.logs.enabled=null
refused "at '/config': missing property 'policy'" --set config.policy=null
refused "at '/canary': missing property 'config'" --set canary.enabled=true,canary.config=null
refused "at '': missing property 'probes'" --set probes=null
refused "at '/probes': missing property 'liveness'" --set probes.liveness=null
refused "at '/probes': missing property 'readiness'" --set probes.readiness=null
refused "at '/image': missing property 'repository'" --set image.repository=null
refused "at '/state': missing property 'enabled'" --set state.enabled=null
refused "at '/state': missing property 'hostPath'" --set state.hostPath=null
refused "at '/serviceAccount': missing property 'create'" --set serviceAccount.create=null
refused "at '/podMonitor': missing property 'interval'" --set podMonitor.interval=null
refused "at '/serviceMonitor': missing property 'scrapeTimeout'" --set serviceMonitor.scrapeTimeout=null
refused "at '': missing property 'affinity'" --set affinity=null
refused "at '': missing property 'nodeSelector'" --set nodeSelector=null
# Without them a rule of the network policy would let everyone in, or everything out.
refused "at '/networkPolicy': missing property 'monitoringNamespace'" --set networkPolicy.monitoringNamespace=null
refused "at '/networkPolicy': missing property 'alertmanagerPort'" --set networkPolicy.alertmanagerPort=null
refused "at '/networkPolicy': missing property 'apiServerPorts'" --set networkPolicy.apiServerPorts=null
refused "at '/networkPolicy': missing property 'enabled'" --set networkPolicy.enabled=null
refused "at '/web': missing property 'port'" --set web.port=null
for socket in /var/lib/kubelet/pods/kubelet.sock /var/lib/kubelet/kubelet.sock /data/pods/kubelet.sock; do
  refused "holds the volumes of all pods" --set config.pods.source=auto,config.pods.kubelet_socket="$socket"
done
refused "use state.enabled and state.hostPath" --set canary.enabled=true,canary.config.state.dir=/x
echo "deploy/check.sh: all well"
