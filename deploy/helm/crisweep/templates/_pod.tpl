{{/* The pod's spec: `root`, `pool`, `config`. */}}
{{- define "crisweep.pod" -}}
{{- $root := .root -}}
{{- $values := .root.Values -}}
{{- $user := include "crisweep.user" . | int -}}
{{- $token := include "crisweep.usesToken" .config | eq "true" -}}
serviceAccountName: {{ include "crisweep.serviceAccount" $root }}
automountServiceAccountToken: {{ $token }}
# No variables for each Service of the namespace: one that begins with CRISWEEP_ would be reported as unknown.
enableServiceLinks: false
priorityClassName: {{ $values.priorityClassName | quote }}
{{- if $values.hostNetwork }}
hostNetwork: true
dnsPolicy: ClusterFirstWithHostNet
{{- end }}
{{- with $values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.seLinuxOptions }}
securityContext:
  seLinuxOptions:
    {{- toYaml . | nindent 4 }}
{{- end }}
nodeSelector:
  {{- toYaml (merge (ternary (dict $values.canary.nodeLabel.key $values.canary.nodeLabel.value) dict .pool.canary) $values.nodeSelector) | nindent 2 }}
{{- include "crisweep.affinity" . }}
tolerations:
  {{- toYaml $values.tolerations | nindent 2 }}
# The process ends within 14 s of SIGTERM.
terminationGracePeriodSeconds: {{ $values.terminationGracePeriodSeconds }}
{{- if $values.state.enabled }}
initContainers:
  {{- include "crisweep.prepareState" (dict "root" $root "user" $user) | nindent 2 }}
{{- end }}
containers:
  {{- include "crisweep.container" (dict "root" $root "config" .config "user" $user) | nindent 2 }}
volumes:
  {{- include "crisweep.volumes" . | nindent 2 }}
{{- end -}}

{{/* Keeps the first DaemonSet off the canary's nodes, beside the node affinity of the values. A node has to match one
of the terms, so each gets the condition; one without conditions matches no node and stays so. */}}
{{- define "crisweep.affinity" -}}
{{- $values := .root.Values -}}
{{- $affinity := deepCopy $values.affinity -}}
{{- if and $values.canary.enabled (not .pool.canary) -}}
{{- $label := $values.canary.nodeLabel -}}
{{- $not := dict "key" $label.key "operator" "NotIn" "values" (list $label.value) -}}
{{- $node := $affinity.nodeAffinity | default dict -}}
{{- $required := $node.requiredDuringSchedulingIgnoredDuringExecution | default dict -}}
{{- $terms := $required.nodeSelectorTerms | default (list (dict "matchExpressions" list)) -}}
{{- range $term := $terms -}}
{{- if $term -}}
{{- $_ := set $term "matchExpressions" (append ($term.matchExpressions | default list) $not) -}}
{{- end -}}
{{- end -}}
{{- $_ := set $node "requiredDuringSchedulingIgnoredDuringExecution" (dict "nodeSelectorTerms" $terms) -}}
{{- $_ := set $affinity "nodeAffinity" $node -}}
{{- end -}}
{{- with $affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The kubelet makes the directory for root. `fsGroup` does nothing for a hostPath. */}}
{{- define "crisweep.prepareState" -}}
- name: prepare-state
  image: {{ include "crisweep.image" .root }}
  imagePullPolicy: {{ .root.Values.image.pullPolicy }}
  args: [prepare-state, --owner, "{{ .user }}:0", /var/lib/crisweep]
  # Root, because the directory is root's; one capability, to give it away; it sees nothing but this directory.
  securityContext:
    {{- include "crisweep.securityContext" (dict "user" 0 "add" (list "CHOWN")) | nindent 4 }}
  resources:
    {{- toYaml .root.Values.resources | nindent 4 }}
  volumeMounts:
    - { name: state, mountPath: /var/lib/crisweep }
{{- end -}}

{{- define "crisweep.container" -}}
{{- $values := .root.Values -}}
- name: crisweep
  image: {{ include "crisweep.image" .root }}
  imagePullPolicy: {{ $values.image.pullPolicy }}
  args: [--config.file, /etc/crisweep/crisweep.yaml]
  env:
    - name: NODE_NAME
      valueFrom: { fieldRef: { fieldPath: spec.nodeName } }
    # With an arena for each thread glibc keeps two to three times as much memory.
    - { name: MALLOC_ARENA_MAX, value: "1" }
    {{- if and (eq .config.pods.source "kubelet") (not .config.pods.kubelet_url) (not $values.hostNetwork) }}
    - name: HOST_IP
      valueFrom: { fieldRef: { fieldPath: status.hostIP } }
    - { name: CRISWEEP__PODS__KUBELET_URL, value: "https://$(HOST_IP):10250" }
    {{- end }}
    {{- with $values.extraEnv }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  ports:
    - { name: http, containerPort: {{ $values.web.port }}, protocol: TCP }
  livenessProbe:
    {{- include "crisweep.probe" (dict "root" .root "path" "/-/healthy") | nindent 4 }}
    {{- with $values.probes.liveness }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  readinessProbe:
    {{- include "crisweep.probe" (dict "root" .root "path" "/-/ready") | nindent 4 }}
    {{- with $values.probes.readiness }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  # Group 0 may use the runtime's socket, which is root:root 0660.
  securityContext:
    {{- include "crisweep.securityContext" (dict "user" .user) | nindent 4 }}
  resources:
    {{- toYaml $values.resources | nindent 4 }}
  volumeMounts:
    {{- include "crisweep.mounts" . | nindent 4 }}
{{- end -}}

{{- define "crisweep.probe" -}}
{{- if .root.Values.probes.tcpSocket -}}
tcpSocket: { port: http }
{{- else -}}
httpGet: { path: {{ .path }}, port: http, scheme: {{ include "crisweep.scheme" .root | upper }} }
{{- end -}}
{{- end -}}

{{- define "crisweep.mounts" -}}
{{- $values := .root.Values -}}
{{- $runtime := include "crisweep.runtime" .root | fromYaml -}}
{{- $logs := dig "policy" "logs" "enabled" true .config -}}
- { name: config, mountPath: /etc/crisweep, readOnly: true }
# Connecting to a socket is no write to its file system.
- { name: runtime, mountPath: {{ $runtime.socketDirectory }}, readOnly: true }
{{- range $index, $path := $runtime.filesystems }}
- { name: filesystem-{{ $index }}, mountPath: {{ $path }}, readOnly: true }
{{- end }}
# Their names are needed to read a list over the message limit, also where logs stay.
- { name: pod-logs, mountPath: /var/log/pods, readOnly: {{ not $logs }} }
- { name: container-logs, mountPath: /var/log/containers, readOnly: {{ not $logs }} }
{{- if $values.state.enabled }}
- { name: state, mountPath: /var/lib/crisweep }
{{- end }}
{{- if include "crisweep.usesSocket" .config }}
- { name: kubelet-pods-api, mountPath: {{ include "crisweep.socketDirectory" .config }}, readOnly: true }
{{- end }}
{{- range $index, $name := $values.secrets }}
- { name: secret-{{ $index }}, mountPath: /etc/crisweep-secrets/{{ $name }}, readOnly: true }
{{- end }}
{{- end -}}

{{- define "crisweep.volumes" -}}
{{- $values := .root.Values -}}
{{- $runtime := include "crisweep.runtime" .root | fromYaml -}}
# A directory, not a file: a mount of a single file never sees its changes.
- name: config
  configMap: { name: {{ .pool.name }} }
- name: runtime
  hostPath: { path: {{ $runtime.socketDirectory }}, type: Directory }
{{- range $index, $path := $runtime.filesystems }}
- name: filesystem-{{ $index }}
  hostPath: { path: {{ $path }}, type: Directory }
{{- end }}
- name: pod-logs
  hostPath: { path: /var/log/pods, type: DirectoryOrCreate }
- name: container-logs
  hostPath: { path: /var/log/containers, type: DirectoryOrCreate }
{{- if $values.state.enabled }}
- name: state
  hostPath: { path: {{ $values.state.hostPath }}, type: DirectoryOrCreate }
{{- end }}
{{- if include "crisweep.usesSocket" .config }}
- name: kubelet-pods-api
  hostPath: { path: {{ include "crisweep.socketDirectory" .config }}, type: Directory }
{{- end }}
{{- range $index, $name := $values.secrets }}
# A volume's name may not hold what a Secret's may: a dot, or more than 63 characters.
- name: secret-{{ $index }}
  secret: { secretName: {{ $name }}, defaultMode: 0440 }
{{- end }}
{{- end -}}
