{{- define "crisweep.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "crisweep.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains (include "crisweep.name" .) .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "crisweep.name" .) | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "crisweep.selector" -}}
app.kubernetes.io/name: {{ include "crisweep.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "crisweep.labels" -}}
{{ include "crisweep.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end -}}

{{- define "crisweep.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (ternary (include "crisweep.fullname" .) "default" .Values.serviceAccount.create) -}}
{{- end -}}

{{- define "crisweep.image" -}}
{{- $tag := .Values.image.tag | default .Chart.AppVersion | toString -}}
{{- if eq $tag "latest" -}}
{{- fail "image.tag: latest says a different thing each day; name a version" -}}
{{- end -}}
{{- printf "%s:%s" .Values.image.repository $tag -}}
{{- with .Values.image.digest }}@{{ . }}{{ end -}}
{{- end -}}

{{/* The runtime's places on the host: the distribution's, but for what the values name. */}}
{{- define "crisweep.runtime" -}}
{{- $snapshots := "io.containerd.snapshotter.v1.overlayfs" -}}
{{- $known := dict
  "standard" (list "/run/containerd" "containerd.sock" (list (printf "/var/lib/containerd/%s" $snapshots)))
  "crio" (list "/run/crio" "crio.sock"
    (list "/var/lib/containers/storage/overlay-images" "/var/lib/containers/storage/overlay-containers"))
  "k3s" (list "/run/k3s/containerd" "containerd.sock"
    (list (printf "/var/lib/rancher/k3s/agent/containerd/%s" $snapshots)))
  "rke2" (list "/run/k3s/containerd" "containerd.sock"
    (list (printf "/var/lib/rancher/rke2/agent/containerd/%s" $snapshots)))
  "microk8s" (list "/var/snap/microk8s/common/run" "containerd.sock"
    (list (printf "/var/snap/microk8s/common/var/lib/containerd/%s" $snapshots)))
  "k0s" (list "/run/k0s" "containerd.sock" (list (printf "/var/lib/k0s/containerd/%s" $snapshots))) -}}
{{- $it := get $known .Values.distribution -}}
socketDirectory: {{ .Values.runtime.socketDirectory | default (index $it 0) }}
socket: {{ .Values.runtime.socket | default (index $it 1) }}
filesystems: {{ .Values.runtime.filesystems | default (index $it 2) | toJson }}
{{- end -}}

{{/* The DaemonSets: name, configuration, and whether it is the canary. */}}
{{- define "crisweep.pools" -}}
{{- $name := include "crisweep.fullname" . -}}
- { name: {{ $name }}, component: agent, canary: false, config: {} }
{{- if .Values.canary.enabled }}
- { name: {{ $name }}-canary, component: canary, canary: true, config: {{ .Values.canary.config | toJson }} }
{{- end }}
{{- end -}}

{{/* What the service speaks. */}}
{{- define "crisweep.scheme" -}}
{{- if .Values.web.tls }}https{{ else }}http{{ end -}}
{{- end -}}

{{/* Refuses the keys that follow from other values. */}}
{{- define "crisweep.refuse" -}}
{{- $instead := dict
  "runtime.endpoint" "runtime.socketDirectory and runtime.socket"
  "runtime.image_endpoint" "nothing: the chart mounts one socket directory"
  "runtime.host_root" "runtime.filesystems: the host's paths are mounted at their own places"
  "node.name" "nothing: each pod has the name of its node"
  "fleet.namespace" "nothing: it is the release's namespace"
  "state.dir" "state.enabled and state.hostPath"
  "web.listen" "web.port"
  "policy.logs.pods_root" "nothing: the chart mounts /var/log/pods"
  "policy.logs.containers_root" "nothing: the chart mounts /var/log/containers" -}}
{{- range $path, $value := $instead -}}
{{- $at := $.config -}}
{{- range splitList "." $path -}}
{{- if kindIs "map" $at -}}{{- $at = get $at . -}}{{- else -}}{{- $at = "" -}}{{- end -}}
{{- end -}}
{{- if not (or (kindIs "invalid" $at) (eq (toString $at) "")) -}}
{{- fail (printf "config.%s follows from other values; use %s" $path $value) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* crisweep.yaml of a pool: `root` and `pool`. */}}
{{- define "crisweep.config" -}}
{{- $root := .root -}}
{{- $config := mergeOverwrite (deepCopy $root.Values.config) (deepCopy .pool.config) -}}
{{- include "crisweep.dropForeign" (dict "config" $config "own" (.pool.config.pods | default dict)) -}}
{{- include "crisweep.refuse" (dict "config" $config) -}}
{{- if and (dig "web" "config_file" "" $config) (kindIs "invalid" $root.Values.web.tls) -}}
{{- fail "config.web.config_file is set: say with web.tls whether that file has tls_server_config" -}}
{{- end -}}
{{- $runtime := include "crisweep.runtime" $root | fromYaml -}}
{{- $endpoint := printf "unix://%s/%s" $runtime.socketDirectory $runtime.socket -}}
{{- $dir := ternary "/var/lib/crisweep" nil $root.Values.state.enabled -}}
{{- $listen := list (printf ":%v" $root.Values.web.port) -}}
{{- $own := dict "runtime" (dict "endpoint" $endpoint) "state" (dict "dir" $dir) "web" (dict "listen" $listen) -}}
{{- if eq $config.pods.source "kubelet" -}}
{{- $account := "/var/run/secrets/kubernetes.io/serviceaccount" -}}
{{- $kubelet := dict "kubelet_token_file" (printf "%s/token" $account) "kubelet_ca_file" (printf "%s/ca.crt" $account) -}}
{{- $_ := set $config "pods" (merge $config.pods $kubelet) -}}
{{- end -}}
{{- if include "crisweep.usesFleet" $config -}}
{{- $_ := set $own "fleet" (dict "namespace" $root.Release.Namespace) -}}
{{- end -}}
{{- range $section, $keys := $own -}}
{{- $_ := set $config $section (merge (deepCopy $keys) (get $config $section | default dict)) -}}
{{- end -}}
{{- toYaml $config -}}
{{- end -}}

{{/* Takes out what a pool that names its source of pods inherits for another one: `config`, and the pool's `own` keys of
`pods`, which stay. */}}
{{- define "crisweep.dropForeign" -}}
{{- if hasKey .own "source" -}}
{{- $pods := .config.pods -}}
{{- $source := $pods.source -}}
{{- range $key := keys $pods -}}
{{- $uses := true -}}
{{- if eq $key "kubelet_socket" -}}
{{- $uses = has $source (list "auto" "kubelet-socket") -}}
{{- else if hasPrefix "kubelet_" $key -}}
{{- $uses = eq $source "kubelet" -}}
{{- else if hasPrefix "api_" $key -}}
{{- $uses = or (has $source (list "auto" "api-server")) (include "crisweep.usesToken" $.config | eq "true") -}}
{{- end -}}
{{- if not (or $uses (hasKey $.own $key)) -}}
{{- $_ := unset $pods $key -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* "true" or "": whether the API server knows the pod's account. */}}
{{- define "crisweep.usesToken" -}}
{{- $asks := has .pods.source (list "api-server" "kubelet" "auto") -}}
{{- $review := dig "token_review" "enabled" false (.web | default dict) -}}
{{- $fleet := include "crisweep.usesFleet" . -}}
{{- if or $asks $review $fleet (include "crisweep.writesEvents" .) }}true{{ end -}}
{{- end -}}

{{/* "true" or "": whether Kubernetes Events are written. */}}
{{- define "crisweep.writesEvents" -}}
{{- if dig "enabled" false (.events | default dict) }}true{{ end -}}
{{- end -}}

{{/* "true" or "": whether brakes for all nodes are read at the API server. */}}
{{- define "crisweep.usesFleet" -}}
{{- $fleet := .fleet | default dict -}}
{{- if or $fleet.hold_config_map (include "crisweep.slots" . | int) }}true{{ end -}}
{{- end -}}

{{/* How many Leases the budget of a configuration has. */}}
{{- define "crisweep.slots" -}}
{{- ((.fleet | default dict).budget | default dict).max_nodes | default 0 | int -}}
{{- end -}}

{{- define "crisweep.usesSocket" -}}
{{- if has .pods.source (list "kubelet-socket" "auto") }}true{{ end -}}
{{- end -}}

{{/* The directory of the kubelet's pods socket. */}}
{{- define "crisweep.socketDirectory" -}}
{{- $socket := .pods.kubelet_socket | default "/var/lib/kubelet/pods-api/pods-api.sock" -}}
{{- $directory := dir $socket -}}
{{- if regexMatch "/kubelet(/pods)?/[^/]+$|/pods/kubelet[.]sock$" $socket -}}
{{- fail (printf "config.pods.kubelet_socket: %s also holds the volumes of all pods, secrets among them" $directory) -}}
{{- end -}}
{{- $directory -}}
{{- end -}}

{{/* The pod's user: `root` and `config`. Root owns the logs and the kubelet's socket, so it needs no capability. */}}
{{- define "crisweep.user" -}}
{{- $logs := dig "policy" "logs" "enabled" true .config -}}
{{- if not (kindIs "invalid" .root.Values.runAsUser) -}}
{{- .root.Values.runAsUser | int -}}
{{- else -}}
{{- ternary 0 65532 (or $logs (include "crisweep.usesSocket" .config | eq "true")) -}}
{{- end -}}
{{- end -}}

{{/* What every container of the chart may: nothing beyond its user's own. `user`, `add`. */}}
{{- define "crisweep.securityContext" -}}
runAsUser: {{ .user }}
runAsGroup: 0
runAsNonRoot: {{ ne (int .user) 0 }}
allowPrivilegeEscalation: false
privileged: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- with .add }}
  add: {{ toJson . }}
{{- end }}
seccompProfile: { type: RuntimeDefault }
{{- end -}}
