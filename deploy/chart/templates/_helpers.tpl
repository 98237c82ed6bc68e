{{- define "smc-agent.labels" -}}
app.kubernetes.io/name: smc-agent
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}
{{- define "smc-agent.selector" -}}
app.kubernetes.io/name: smc-agent
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- define "smc-agent.config" -}}
{{- $stop := dict "drain_s" .Values.drainSeconds -}}
{{- $upgrade := dict "drain_s" .Values.drainSeconds -}}
{{- mergeOverwrite (dict "stop" $stop "upgrade" $upgrade) (deepCopy .Values.config) | toPrettyJson }}
{{- end }}
{{- define "smc-agent.drain" -}}
{{- $config := include "smc-agent.config" . | fromJson -}}
{{- max $config.stop.drain_s $config.upgrade.drain_s | int -}}
{{- end }}
{{- define "smc-agent.privileged" -}}
{{- $privileged := or .Values.rdma.privileged .Values.ism.privileged -}}
{{- $ism := .Values.config.ism | default dict -}}
{{- range prepend ($ism.others | default list) $ism -}}
{{- if and (eq (.provider | default "") "ivshmem") (not $privileged) -}}
{{- fail "config.ism.provider: ivshmem needs ism.privileged=true, because other containers cannot write /sys" -}}
{{- end -}}
{{- end -}}
{{- if $privileged }}true{{ end -}}
{{- end }}
{{- define "smc-agent.socket" -}}
{{- (.Values.config.control | default dict).socket | default "/run/smc-agent/control.sock" }}
{{- end }}
{{- define "smc-agent.port" -}}
{{- $http := .Values.config.http | default dict -}}
{{- $http.listen | default "127.0.0.1:7609" | splitList ":" | last | int -}}
{{- end }}
