{{/*
The keys of a program's configuration file that differ from its defaults, as JSON: dict "root" $ "program" ("agent" or
"controller"). files/keys.json says which value is which key; `make codegen` writes it.
*/}}
{{- define "antrea.changedKeys" -}}
{{- $program := .program -}}
{{- $values := .root.Values -}}
{{- $known := .root.Files.Get "files/keys.json" | fromJson -}}
{{- $changed := dict -}}
{{- range $known.keys -}}
  {{- $key := get . $program -}}
  {{- $value := $values -}}
  {{- range splitList "." .value }}{{ $value = get (default dict $value) . }}{{ end -}}
  {{- if and $key (ne (toJson $value) (toJson .default)) -}}
    {{- $section := $changed -}}
    {{- range initial (splitList "." $key) -}}
      {{- if not (hasKey $section .) }}{{ $_ := set $section . dict }}{{ end -}}
      {{- $section = get $section . -}}
    {{- end -}}
    {{- $_ := set $section (last (splitList "." $key)) $value -}}
  {{- end -}}
{{- end -}}
{{- $defaults := get $known.features $program -}}
{{- $features := dict -}}
{{- range $name, $on := $values.featureGates -}}
  {{- if and (hasKey $defaults $name) (ne $on (get $defaults $name)) }}{{ $_ := set $features $name $on }}{{ end -}}
{{- end -}}
{{- if $features }}{{ $_ := set $changed "featureGates" $features }}{{ end -}}
{{- toJson $changed -}}
{{- end -}}

{{/* The configuration file: dict "root" $ "program" "always" (keys that are written even if they are defaults). */}}
{{- define "antrea.config" -}}
{{- toYaml (merge (include "antrea.changedKeys" . | fromJson) .always) -}}
{{- end -}}

{{/* Annotations of Pods: dict "root" $ "program" "of" (values of the component). A new configuration restarts the Pods. */}}
{{- define "antrea.annotations" -}}
{{- $annotations := dict -}}
{{- $changed := include "antrea.changedKeys" . -}}
{{- if ne $changed "{}" }}{{ $_ := set $annotations "checksum/config" (sha256sum $changed) }}{{ end -}}
{{- with merge $annotations .of.podAnnotations -}}
annotations: {{ toJson . }}
{{- end -}}
{{- end -}}
