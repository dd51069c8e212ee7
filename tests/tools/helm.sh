#!/usr/bin/env bash
# Builds helm from its Go module; prints the path of the binary.
. "$(dirname "$0")/lib.sh"
out=$(go_build helm "$TOP/tests/chart/helm" '
  v=$($GO list -m -f "{{.Version}}" helm.sh/helm/v3); minor=$($GO list -m -f "{{.Version}}" k8s.io/client-go); minor=${minor#v0.}; minor=${minor%%.*}
  # The release of Kubernetes that charts are rendered for without a cluster.
  ld="-s -w -X helm.sh/helm/v3/internal/version.version=$v"
  for p in pkg/lint/rules pkg/chartutil; do
    ld="$ld -X helm.sh/helm/v3/$p.k8sVersionMajor=1 -X helm.sh/helm/v3/$p.k8sVersionMinor=$minor"
  done
  CGO_ENABLED=0 $GO build -trimpath -ldflags "$ld" -o "$OUT/helm" helm.sh/helm/v3/cmd/helm
')
printf '%s\n' "$out/helm"
