{{/* The controllers' names and certificates contain the namespace. */}}
{{- define "antrea.namespace" -}}
{{- if ne .Release.Namespace "kube-system" -}}
{{- fail (printf "antrea-rs runs in the namespace kube-system, not in %s; add `--namespace kube-system`" .Release.Namespace) -}}
{{- end -}}
kube-system
{{- end -}}

{{/* Labels of an object: dict "root" $ "component" (optional) "more" (optional). As JSON, which is YAML. */}}
{{- define "antrea.labels" -}}
{{- $labels := dict "app" "antrea" -}}
{{- with .component }}{{ $_ := set $labels "component" . }}{{ end -}}
{{- toJson (merge $labels (default dict .more) .root.Values.extraLabels) -}}
{{- end -}}

{{- define "antrea.image" -}}
{{- .Values.image.repository -}}:{{- default .Chart.AppVersion .Values.image.tag -}}
{{- end -}}

{{/* Verbosity of the log, as environment variable RUST_LOG; empty for the default. */}}
{{- define "antrea.logLevel" -}}
{{- if .Values.logLevel -}}{{ .Values.logLevel }}
{{- else if ge (int .Values.logVerbosity) 4 -}}trace
{{- else if ge (int .Values.logVerbosity) 1 -}}debug
{{- end -}}
{{- end -}}

{{/* More environment variables of a container: dict "root" $ "extra" (a map of names to values). */}}
{{- define "antrea.env" -}}
{{- with include "antrea.logLevel" .root }}
- {name: RUST_LOG, value: {{ quote . }}}
{{- end }}
{{- range $name, $value := .extra }}
- {name: {{ $name }}, value: {{ quote $value }}}
{{- end }}
{{- end -}}

{{/* Parts that Pods of all components have in common: dict "root" $ "of" (values of the component). */}}
{{- define "antrea.scheduling" -}}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets: {{ toJson . }}
{{- end }}
{{- with .of.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .of.nodeSelector }}
nodeSelector: {{ toJson . }}
{{- end }}
{{- with .of.tolerations }}
tolerations: {{ toJson . }}
{{- end }}
{{- with .of.affinity }}
affinity: {{ toJson . }}
{{- end }}
{{- end -}}
