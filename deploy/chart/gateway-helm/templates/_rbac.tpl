{{/* What is read in namespaces, and the statuses that are written there. */}}
{{- define "gateway.rules.namespaced" -}}
- apiGroups: [""]
  resources: [configmaps, secrets, services]
  verbs: [get, list, watch]
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [get, list, watch]
- apiGroups: [gateway.envoyproxy.io]
  resources: [envoyproxies, envoypatchpolicies, clienttrafficpolicies, backendtrafficpolicies, securitypolicies, envoyextensionpolicies, backends, httproutefilters]
  verbs: [get, list, watch]
- apiGroups: [gateway.envoyproxy.io]
  resources: [envoyproxies/status, envoypatchpolicies/status, clienttrafficpolicies/status, backendtrafficpolicies/status, securitypolicies/status, envoyextensionpolicies/status, backends/status]
  verbs: [patch]
- apiGroups: [gateway.networking.k8s.io]
  resources: [gateways, listenersets, grpcroutes, httproutes, referencegrants, tcproutes, tlsroutes, udproutes, backendtlspolicies]
  verbs: [get, list, watch]
- apiGroups: [gateway.networking.k8s.io]
  resources: [gateways/status, listenersets/status, grpcroutes/status, httproutes/status, tcproutes/status, tlsroutes/status, udproutes/status, backendtlspolicies/status]
  verbs: [patch]
{{- end }}

{{/* What is read of the whole cluster in any mode. */}}
{{- define "gateway.rules.cluster" -}}
- apiGroups: [""]
  resources: [nodes, namespaces]
  verbs: [get, list, watch]
- apiGroups: [gateway.networking.k8s.io]
  resources: [gatewayclasses]
  verbs: [get, list, patch, watch]
- apiGroups: [gateway.networking.k8s.io]
  resources: [gatewayclasses/status]
  verbs: [patch]
- apiGroups: [multicluster.x-k8s.io]
  resources: [serviceimports]
  verbs: [get, list, watch]
# Definitions that appear later are noticed at once.
- apiGroups: [apiextensions.k8s.io]
  resources: [customresourcedefinitions]
  verbs: [list, watch]
{{- end }}

{{/* The proxies and what belongs to them, where they run. */}}
{{- define "gateway.rules.infra" -}}
- apiGroups: [""]
  resources: [serviceaccounts, services, configmaps]
  verbs: [create, get, list, delete, patch, watch]
- apiGroups: [apps]
  resources: [deployments, daemonsets]
  verbs: [create, get, list, delete, patch, watch]
- apiGroups: [autoscaling]
  resources: [horizontalpodautoscalers]
  verbs: [create, get, list, delete, patch, watch]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [create, get, list, delete, patch, watch]
{{- if .Values.topologyInjector.enabled }}
# Whether a pod that is bound to a node is a proxy.
- apiGroups: [""]
  resources: [pods]
  verbs: [get]
{{- end }}
{{- end }}

{{/* A role and its binding to a service account:
     (dict "root" $ "name" "…" "namespace" "" "rules" "…" "account" "envoy-gateway" "binding" "…"
           "annotations" (dict …) "labels" (dict …)); cluster-wide without a namespace. */}}
{{- define "gateway.role" -}}
{{- $cluster := ternary "Cluster" "" (empty .namespace) -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $cluster }}Role
metadata:
  name: {{ .name }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- include "gateway.labels" (dict "root" .root "more" .labels) | nindent 4 }}
  {{- with .annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
rules:
{{ .rules }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $cluster }}RoleBinding
metadata:
  name: {{ .binding | default .name }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- include "gateway.labels" (dict "root" .root "more" .labels) | nindent 4 }}
  {{- with .annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ $cluster }}Role
  name: {{ .name }}
subjects:
- kind: ServiceAccount
  name: {{ .account }}
  namespace: {{ include "gateway.namespace" .root }}
{{- end }}
