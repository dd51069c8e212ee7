#!/usr/bin/env bash
# The gateway in a cluster: brings one up, installs the chart, drives it with kubectl, asks from outside, takes it down
# again and looks whether anything was left. The last lines are `cluster: ...`; logs go to target/test-logs/cluster.
# BIN_DIR=folder takes binaries that are built already. KEEP=1 leaves the cluster up. HA=short|long runs ha.sh in it, too,
# CONFORMANCE=core|all the Gateway API conformance suite.
. "$(dirname "$0")/cluster/lib.sh"
cd "$TOP"
logs=$TOP/target/test-logs/cluster
rm -rf "$logs" && mkdir -p "$logs"
! alive init || die "a cluster is up: end it with make cluster-down first"
if [ -z "${BIN_DIR:-}" ]; then
  cargo build -q --locked -p envoy-gateway -p egctl -p cluster
  BIN_DIR=${CARGO_TARGET_DIR:-$TOP/target}/debug
fi
export BIN_DIR CLUSTER_LOGS=$logs

charts() { "$TOP/deploy/package.sh" "$TOP/target/chart" >"$logs/package.log" 2>&1; }

state=0
[ -n "${KEEP:-}" ] || trap '"$TOP/tests/tools/cluster.sh" down' EXIT
"$TOP/tests/tools/cluster.sh" up
timed "charts packaged" charts
KUBECTL=$("$TOP/tests/tools/kube.sh")/kubectl HELM=$("$TOP/tests/tools/helm.sh") EGCTL=$BIN_DIR/egctl CHART=$TOP/target/chart/gateway-helm
export KUBECTL HELM EGCTL CHART
timeout 900 "$BIN_DIR/cluster-suite" || state=$?
if [ -n "${HA:-}" ]; then "$TOP/tests/tools/ha.sh" "$HA" || state=1; fi
if [ -n "${CONFORMANCE:-}" ]; then "$TOP/tests/tools/conformance.sh" "$CONFORMANCE" || state=1; fi
if [ -z "${KEEP:-}" ]; then
  trap - EXIT
  "$TOP/tests/tools/cluster.sh" down || state=1
fi
exit $state
