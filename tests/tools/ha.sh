#!/usr/bin/env bash
# What happens when replicas end, die, sleep and lose the API server: a row per event (tests/cluster). In the test cluster
# that is up, else in one of its own. The last line is `ha: R rows, P passed, F failed`; logs go to target/test-logs/ha.
# Usage: ha.sh [short]   short: fewer rows, and faults last as long as it takes to show what must hold.
# HA_CUT, HA_STOP, HA_OUTAGE: seconds that faults last; HA_STATUSES: how many are due at once; HA_ROWS=term,kill,…: these rows
# only. BIN_DIR=folder: binaries that are built already.
. "$(dirname "$0")/cluster/lib.sh"
cd "$TOP"
[ "${1:-}" != short ] || export HA_ROWS=${HA_ROWS:-term,kill,black-holed,stop,outage,crowd} HA_CUT=${HA_CUT:-20} HA_STOP=${HA_STOP:-20} HA_OUTAGE=${HA_OUTAGE:-25} HA_STATUSES=${HA_STATUSES:-1000} HA_SLACK=2
if [ -z "${BIN_DIR:-}" ]; then
  cargo build -q --locked -p envoy-gateway -p egctl -p cluster
  BIN_DIR=${CARGO_TARGET_DIR:-$TOP/target}/debug
fi
KUBECTL=$("$TOP/tests/tools/kube.sh")/kubectl HELM=$("$TOP/tests/tools/helm.sh") EGCTL=$BIN_DIR/egctl CHART=$TOP/target/chart/gateway-helm
CLUSTER_LOGS=$TOP/target/test-logs/ha
export BIN_DIR KUBECTL HELM EGCTL CHART CLUSTER_LOGS AUDIT
rm -rf "$CLUSTER_LOGS" && mkdir -p "$CLUSTER_LOGS"

state=0 own='' children=()
end() {
  for p in "${children[@]}"; do kill "$p" 2>/dev/null || true; done
  if [ -n "$own" ] && [ -z "${KEEP:-}" ]; then "$TOP/tests/tools/cluster.sh" down || state=1; fi
}
trap end EXIT
if ! alive init; then
  own=1
  "$TOP/tests/tools/cluster.sh" up
fi
"$TOP/deploy/package.sh" "$TOP/target/chart" >"$CLUSTER_LOGS/package.log" 2>&1
# Links keep the logs of pods that are gone by the end.
keep() { while sleep 2; do cp -rlu "$STATE/log/pods" "$STATE/kept/" 2>/dev/null || true; done; }
mkdir -p "$STATE/kept"
keep & children+=($!)
timeout 3600 "$BIN_DIR/cluster-ha" & children+=($!)
wait $! || state=$?
cp "$AUDIT" "$CLUSTER_LOGS/"
cp -r "$STATE/kept/." "$CLUSTER_LOGS/"
trap - EXIT
end
exit $state
