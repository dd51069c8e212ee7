#!/usr/bin/env bash
# package.sh [FOLDER]: puts together the charts with the definitions that belong to them (target/chart by default):
#   gateway-helm/, gateway-crds-helm/   as folders, and packed as *.tgz
#   crds.yaml                           all definitions, for `kubectl apply --server-side`
# The definitions of Gateway API are those of its Go module, whose content is checked against the sum below; ours are in
# deploy/crds.
. "$(dirname "${BASH_SOURCE[0]}")/../tests/tools/lib.sh"
gateway_api=v1.6.1
sum=h1:mock6phZbI6rvZerwrVNk7hVNymQgHo+6sJ81Ia7ftY=

out=${1:-$TOP/target/chart}
go=$(go_bin)
helm=$("$TOP/tests/tools/helm.sh")
module=$(cd / && GOFLAGS=-mod=mod "$go" mod download -json "sigs.k8s.io/gateway-api@$gateway_api")
field() { python3 -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]])' "$1" <<<"$module"; }
[ "$(field Sum)" = "$sum" ] || { echo "sigs.k8s.io/gateway-api@$gateway_api has another sum than the one pinned here" >&2; exit 1; }
api=$(field Dir)/config/crd

mkdir -p "$out"
tmp=$(mktemp -d "$out/.package.XXXXXX")
trap 'chmod -R u+w "$tmp" && rm -rf "$tmp"' EXIT
cp -r "$TOP/deploy/chart/gateway-helm" "$TOP/deploy/chart/gateway-crds-helm" "$tmp/"

# definitions FROM TO: copies them, without the policies and lists that lie beside them.
definitions() {
  local f
  mkdir -p "$2"
  for f in "$1"/*.yaml; do
    if grep -qx 'kind: CustomResourceDefinition' "$f"; then install -m 644 "$f" "$2/"; fi
  done
}
definitions "$api/experimental" "$tmp/gateway-helm/charts/crds/crds"
definitions "$TOP/deploy/crds" "$tmp/gateway-helm/charts/crds/crds"
for channel in standard experimental; do definitions "$api/$channel" "$tmp/gateway-crds-helm/files/gateway-api/$channel"; done
definitions "$TOP/deploy/crds" "$tmp/gateway-crds-helm/files/envoy-gateway"
"$helm" template crds "$tmp/gateway-crds-helm" --set crds.gatewayAPI.enabled=true,crds.envoyGateway.enabled=true >"$tmp/crds.yaml"
"$helm" package -d "$tmp" "$tmp/gateway-helm" "$tmp/gateway-crds-helm" >/dev/null

for f in gateway-helm gateway-crds-helm crds.yaml; do rm -rf "${out:?}/$f"; mv "$tmp/$f" "$out/$f"; done
mv "$tmp"/*.tgz "$out/"
ls -d "$out"/*
