{{/* One endpoint of a monitor: `root`, `monitor`. */}}
{{- define "crisweep.endpoint" -}}
- port: http
  path: /metrics
  scheme: {{ include "crisweep.scheme" .root }}
  interval: {{ .monitor.interval }}
  # crisweep is told this timeout and answers within it, however sick the runtime is.
  scrapeTimeout: {{ .monitor.scrapeTimeout }}
  {{- with .monitor.relabelings }}
  relabelings:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .monitor.endpoint }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}
