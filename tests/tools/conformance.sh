#!/usr/bin/env bash
# The Gateway API conformance suite in the test cluster. Uses the cluster that is up, or one of its own.
# Usage: conformance.sh [core|all] [FLAG-OF-THE-SUITE...]
#   core  the core features of the GATEWAY-HTTP profile
#   all   also what GatewayClass.status.supportedFeatures claims (default)
# PROFILES=GATEWAY-HTTP,GATEWAY-GRPC takes others. MODE=GatewayNamespace runs proxies beside their Gateways. MINUTES=25 is the
# limit. TESTS=A,B runs only these. Results: target/conformance/{report.yaml,suite.log};
# the last lines are `conformance: PROFILE core PASSED/TOTAL, extended PASSED/TOTAL` and the names of tests that failed.
. "$(dirname "$0")/cluster/lib.sh"
cd "$TOP"
what=${1:-all}
[ $# = 0 ] || shift
profiles=${PROFILES:-GATEWAY-HTTP}
out=$TOP/target/conformance
rm -rf "$out" && mkdir -p "$out"

if ! alive init; then
  trap '"$TOP/tests/tools/cluster.sh" down' EXIT
  "$TOP/tests/tools/cluster.sh" up
fi
suite=$("$TOP/tests/tools/conformance-build.sh")/conformance
kubectl=$("$TOP/tests/tools/kube.sh")/kubectl
helm=$("$TOP/tests/tools/helm.sh")
class=conformance

install() {
  "$TOP/deploy/package.sh" "$TOP/target/chart" >"$out/package.log" 2>&1
  "$helm" upgrade --install eg "$TOP/target/chart/gateway-helm" --namespace envoy-gateway-system --create-namespace \
    --set "global.images.envoyGateway.image=$GATEWAY_IMAGE,global.images.envoyProxy.image=$ENVOY_IMAGE" \
    --set "config.envoyGateway.provider.kubernetes.deploy.type=${MODE:-ControllerNamespace}" --wait --timeout 180s >"$out/helm.log"
  # The suite has some 25 Gateways at a time, more than a small machine takes at the usual requests of a proxy.
  "$kubectl" apply -f - >/dev/null <<Y
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: $class}
spec:
  controllerName: gateway.envoyproxy.io/gatewayclass-controller
  parametersRef: {group: gateway.envoyproxy.io, kind: EnvoyProxy, namespace: envoy-gateway-system, name: $class}
---
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: EnvoyProxy
metadata: {name: $class, namespace: envoy-gateway-system}
spec:
  provider:
    type: Kubernetes
    kubernetes: {envoyDeployment: {container: {resources: {requests: {cpu: 10m, memory: 32Mi}}}}}
Y
  "$kubectl" wait --for=condition=Accepted "gatewayclass/$class" --timeout=60s >/dev/null
}
timed "chart installed" install

flags=(-gateway-class "$class" -conformance-profiles "$profiles" -allow-crds-mismatch -cleanup-base-resources=true
  -report-output "$out/report.yaml" -organization project -project gateway -url https://example.test -version dev -contact nobody
  -usable-address "${LB_NET%.*}.240" -unusable-address 10.97.0.1)
[ -z "${TESTS:-}" ] || flags+=(-test.run "TestGatewayAPI/^(${TESTS//,/|})\$")
[ "$what" != core ] || flags+=(-supported-features Gateway,HTTPRoute,ReferenceGrant)
run() { timeout $((60 * ${MINUTES:-25})) "$suite" -test.v -test.timeout "${MINUTES:-25}m" "${flags[@]}" "$@" >"$out/suite.log" 2>&1; }
state=0
timed "conformance suite" run "$@" || state=1
"$kubectl" get events -A --sort-by=.lastTimestamp >"$out/events.txt" || true
python3 "$TOP/tests/tools/conformance.py" "$out/report.yaml" "$out/suite.log" || state=1
exit $state
