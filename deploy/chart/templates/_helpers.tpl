{{- define "smc-agent.labels" -}}
app.kubernetes.io/name: smc-agent
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}
{{- define "smc-agent.selector" -}}
app.kubernetes.io/name: smc-agent
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- define "smc-agent.appArmorField" -}}
{{- if semverCompare ">=1.30-0" .Capabilities.KubeVersion.Version }}true{{ end -}}
{{- end }}
{{- define "smc-agent.config" -}}
{{- $stop := dict "drain_s" .Values.drainSeconds -}}
{{- $upgrade := dict "drain_s" .Values.drainSeconds -}}
{{- mergeOverwrite (dict "stop" $stop "upgrade" $upgrade) (deepCopy .Values.config) | toPrettyJson }}
{{- end }}
{{- define "smc-agent.drain" -}}
{{- $config := include "smc-agent.config" . | fromJson -}}
{{- if lt (int $config.upgrade.drain_s) 30 -}}
{{- fail "config.upgrade.drain_s: at least 30, because the next pod has to be ready before this one ends" -}}
{{- end -}}
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
{{- $listen := hasKey $http "listen" | ternary $http.listen "127.0.0.1:7609" -}}
{{- if or (not $listen) (hasPrefix "127." $listen) (hasPrefix "[::1]" $listen) (hasPrefix "localhost" $listen) -}}
{{- fail "podMonitor.enabled: Prometheus cannot reach config.http.listen, which is empty or a loopback address" -}}
{{- end -}}
{{- $listen | splitList ":" | last | int -}}
{{- end }}
