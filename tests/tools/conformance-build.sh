#!/usr/bin/env bash
# Builds the Gateway API conformance suite, the backend that it sends requests to, and lists what it needs of the cluster;
# prints the folder: conformance (the suite), echo-basic, crds/ (of the same release, standard and experimental), images.
. "$(dirname "$0")/lib.sh"
go_build conformance "$TOP/tests/cluster/conformance" '
  export CGO_ENABLED=0
  $GO build -trimpath -buildvcs=false -ldflags "-s -w" -o "$OUT/echo-basic" sigs.k8s.io/gateway-api/conformance/echo-basic
  $GO test -c -vet=off -trimpath -buildvcs=false -ldflags "-s -w" -o "$OUT/conformance" .
  crds=$($GO list -m -f "{{.Dir}}" sigs.k8s.io/gateway-api)/config/crd
  suite=$($GO list -m -f "{{.Dir}}" sigs.k8s.io/gateway-api/conformance)
  for channel in standard experimental; do
    mkdir -p "$OUT/crds/$channel"
    install -m 644 "$crds/$channel"/gateway.networking.*.yaml "$OUT/crds/$channel/"
  done
  # Names of the images in the objects of the suite: ours are given the same, so that none is fetched.
  grep -rhoE "image: [^ ]+" "$suite" --include=*.yaml --include=*.go | cut -d" " -f2 | sort -u >"$OUT/images"
'
