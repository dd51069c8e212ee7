{{/* Namespace of all objects. */}}
{{- define "gateway.namespace" -}}
{{ .Values.namespaceOverride | default .Release.Namespace }}
{{- end }}

{{/* What the Go chart calls the name of the chart. */}}
{{- define "gateway.name" -}}
{{ .Chart.Name | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* Beginning of the names of cluster-wide and helper objects: the release. */}}
{{- define "gateway.fullname" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{ .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 63 | trimSuffix "-" }}
{{- end -}}
{{- end }}

{{- define "gateway.selectorLabels" -}}
app.kubernetes.io/name: {{ include "gateway.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* Labels of an object: `include "gateway.labels" (dict "root" $ "more" (dict …))`. commonLabels win. */}}
{{- define "gateway.labels" -}}
{{- $chart := printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" -}}
{{- $own := include "gateway.selectorLabels" .root | fromYaml -}}
{{- $_ := set $own "helm.sh/chart" $chart -}}
{{- $_ := set $own "app.kubernetes.io/version" .root.Chart.AppVersion -}}
{{- $_ := set $own "app.kubernetes.io/managed-by" .root.Release.Service -}}
{{- toYaml (mergeOverwrite $own (.more | default dict) (.root.Values.commonLabels | default dict)) -}}
{{- end }}

{{/* An image with global.imageRegistry in the place of its own registry: (dict "root" $ "image" "…"). */}}
{{- define "gateway.inRegistry" -}}
{{- $image := .image -}}
{{- $parts := splitList "/" $image -}}
{{- with .root.Values.global.imageRegistry -}}
{{- $first := first $parts -}}
{{- if and (gt (len $parts) 1) (or (contains "." $first) (contains ":" $first) (eq $first "localhost")) -}}
{{- $image = join "/" (rest $parts) -}}
{{- end -}}
{{- $image = printf "%s/%s" (trimSuffix "/" .) $image -}}
{{- end -}}
{{- $image -}}
{{- end }}

{{/* Image of the control plane. */}}
{{- define "gateway.image" -}}
{{- $own := .Values.deployment.envoyGateway.image -}}
{{- $image := .Values.global.images.envoyGateway.image -}}
{{- if $own.repository -}}
{{- $image = printf "%s:%s" $own.repository ($own.tag | default .Chart.AppVersion) -}}
{{- end -}}
{{- include "gateway.inRegistry" (dict "root" . "image" $image) -}}
{{- end }}

{{- define "gateway.imagePullPolicy" -}}
{{ .Values.deployment.envoyGateway.imagePullPolicy | default .Values.global.images.envoyGateway.pullPolicy | default "IfNotPresent" }}
{{- end }}

{{/* Secrets for pulling an image as a JSON list: (dict "root" $ "own" LIST). */}}
{{- define "gateway.pullSecrets" -}}
{{ .root.Values.global.imagePullSecrets | default .own | default list | toJson }}
{{- end }}

{{- define "gateway.imagePullSecrets" -}}
{{- $own := .Values.deployment.envoyGateway.imagePullSecrets | default .Values.global.images.envoyGateway.pullSecrets -}}
imagePullSecrets: {{ include "gateway.pullSecrets" (dict "root" . "own" $own) }}
{{- end }}

{{/* provider.kubernetes of the EnvoyGateway file, or {}. */}}
{{- define "gateway.kubernetes" -}}
{{- $provider := .Values.config.envoyGateway.provider | default dict -}}
{{ $provider.kubernetes | default dict | toJson }}
{{- end }}

{{/* Namespaces that are watched by name, as a JSON list; empty where it is all or those with labels. */}}
{{- define "gateway.watched" -}}
{{- $watch := (include "gateway.kubernetes" . | fromJson).watch | default dict -}}
{{- if eq ($watch.type | default "Namespaces") "Namespaces" -}}
{{ $watch.namespaces | default list | toJson }}
{{- else -}}
[]
{{- end -}}
{{- end }}

{{/* "true" where proxies run in the namespaces of their Gateways. */}}
{{- define "gateway.inGatewayNamespace" -}}
{{- $deploy := (include "gateway.kubernetes" . | fromJson).deploy | default dict -}}
{{- if eq ($deploy.type | default "") "GatewayNamespace" -}}true{{- end -}}
{{- end }}

{{/* "true" where the watch is by labels of namespaces. */}}
{{- define "gateway.bySelector" -}}
{{- $watch := (include "gateway.kubernetes" . | fromJson).watch | default dict -}}
{{- if eq ($watch.type | default "") "NamespaceSelector" -}}true{{- end -}}
{{- end }}

{{/* The EnvoyGateway file: what follows from the other values, and over it what config.envoyGateway says. */}}
{{- define "gateway.config" -}}
{{- $given := deepCopy .Values.config.envoyGateway -}}
{{- $file := dict "apiVersion" "gateway.envoyproxy.io/v1alpha1" "kind" "EnvoyGateway" -}}
{{- $type := dig "provider" "type" "Kubernetes" $given -}}
{{- if eq $type "Kubernetes" -}}
{{- $images := .Values.global.images -}}
{{- $ratelimit := $images.ratelimit -}}
{{- $kubernetes := dict "shutdownManager" (dict "image" (include "gateway.image" .)) -}}
{{- $container := dict "name" "envoy-ratelimit" "imagePullPolicy" ($ratelimit.pullPolicy | default "IfNotPresent") -}}
{{- $patch := dict "spec" (dict "template" (dict "spec" (dict "containers" (list $container)))) -}}
{{- $limiter := dict "container" (dict "image" (include "gateway.inRegistry" (dict "root" . "image" $ratelimit.image))) "patch" (dict "type" "StrategicMerge" "value" $patch) -}}
{{- with include "gateway.pullSecrets" (dict "root" . "own" $ratelimit.pullSecrets) | fromJsonArray -}}
{{- $_ := set $limiter "pod" (dict "imagePullSecrets" .) -}}
{{- end -}}
{{- $_ := set $kubernetes "rateLimitDeployment" $limiter -}}
{{- if not .Values.topologyInjector.enabled -}}
{{- $_ := set $kubernetes "proxyTopologyInjector" (dict "disabled" true) -}}
{{- end -}}
{{- $_ := set $file "provider" (dict "type" "Kubernetes" "kubernetes" $kubernetes) -}}
{{- $proxy := $images.envoyProxy -}}
{{- if or $proxy.image $proxy.pullPolicy $proxy.pullSecrets -}}
{{- $deployment := dict -}}
{{- if $proxy.image -}}
{{- $_ := set $deployment "container" (dict "image" (include "gateway.inRegistry" (dict "root" . "image" $proxy.image))) -}}
{{- end -}}
{{- if $proxy.pullPolicy -}}
{{- /* The API of containers has no policy. */ -}}
{{- $container := dict "name" "envoy" "imagePullPolicy" $proxy.pullPolicy -}}
{{- $patch := dict "spec" (dict "template" (dict "spec" (dict "containers" (list $container)))) -}}
{{- $_ := set $deployment "patch" (dict "type" "StrategicMerge" "value" $patch) -}}
{{- end -}}
{{- with include "gateway.pullSecrets" (dict "root" . "own" $proxy.pullSecrets) | fromJsonArray -}}
{{- $_ := set $deployment "pod" (dict "imagePullSecrets" .) -}}
{{- end -}}
{{- $_ := set $file "envoyProxy" (dict "provider" (dict "type" "Kubernetes" "kubernetes" (dict "envoyDeployment" $deployment))) -}}
{{- end -}}
{{- end -}}
{{- $file = mergeOverwrite $file $given -}}
{{- /* Namespaces alone say enough; the control plane wants the type as well. */ -}}
{{- $watch := dig "provider" "kubernetes" "watch" dict $file -}}
{{- if and $watch.namespaces (not $watch.type) -}}
{{- $_ := set $watch "type" "Namespaces" -}}
{{- end -}}
{{- toYaml $file -}}
{{- end }}

{{/* What the control plane is told about where it runs. */}}
{{- define "gateway.env" -}}
- name: ENVOY_GATEWAY_NAMESPACE
  valueFrom:
    fieldRef:
      apiVersion: v1
      fieldPath: metadata.namespace
- name: KUBERNETES_CLUSTER_DOMAIN
  value: {{ .Values.kubernetesClusterDomain }}
{{- end }}
