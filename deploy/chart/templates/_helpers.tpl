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
{{- $patience := dict "patience_s" .Values.drainSeconds -}}
{{- mergeOverwrite (dict "stop" $patience "upgrade" $patience) (deepCopy .Values.config) | toPrettyJson }}
{{- end }}
{{- define "smc-agent.socket" -}}
{{- (.Values.config.control | default dict).socket | default "/run/smc-agent/control.sock" }}
{{- end }}
{{- define "smc-agent.port" -}}
{{- $http := .Values.config.http | default dict -}}
{{- $http.listen | default "127.0.0.1:7609" | splitList ":" | last | int -}}
{{- end }}
