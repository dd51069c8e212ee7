#!/usr/bin/env bash
# soak.sh [SECONDS] [SEED]: replicas, proxies and an API server under churn and random faults for so long (150 s, seed 1).
# The last line is `soak: T s, C changes, F faults, W writes, V violations`; exit code 0 only if V is 0 and planted mistakes
# are seen. BIN_DIR=folder takes binaries that are built already.
. "$(dirname "$0")/lib.sh"
cd "$TOP"
if [ -z "${BIN_DIR:-}" ]; then
  say "building"
  cargo build -q --locked -p envoy-gateway -p soak
  BIN_DIR=$TOP/target/debug
fi
export BIN_DIR ENVOY_BIN=${ENVOY_BIN:-$("$TOP/tests/tools/envoy.sh")} KUBE_BIN=${KUBE_BIN:-$("$TOP/tests/tools/kube.sh")}
seconds=${1:-150}
exec timeout $((600 + seconds)) "$BIN_DIR/soak" "$seconds" --seed "${2:-1}" --logs "$TOP/target/soak"
