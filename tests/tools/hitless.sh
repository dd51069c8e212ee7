#!/usr/bin/env bash
# hitless.sh [CHANGES]: changes a running gateway (1,000 times) under load, with a real Envoy; no request may fail.
# Before that, short runs through a relay that breaks the order of updates: those must fail. PLANTED= leaves them out.
# The last line is `hitless: C changes, R requests, F failed, N nacks, E early 5xx`; exit code 0 only if all is well.
# PROFILE=release builds optimised; BIN_DIR=folder takes binaries that are built already.
. "$(dirname "$0")/lib.sh"
cd "$TOP"
changes=${1:-1000}
profile=${PROFILE:-dev}
if [ -z "${BIN_DIR:-}" ]; then
  say "building ($profile)"
  cargo build -q --locked --profile "$profile" -p envoy-gateway -p hitless
  BIN_DIR=$TOP/target/$([ "$profile" = dev ] && echo debug || echo "$profile")
fi
export BIN_DIR ENVOY_BIN=${ENVOY_BIN:-$("$TOP/tests/tools/envoy.sh")}
logs=$TOP/target/hitless
mkdir -p "$logs"

for bug in ${PLANTED-routes-first removals-first}; do
  say "planted bug: $bug"
  if timeout 300 "$BIN_DIR/hitless" 40 --plant "$bug" >"$logs/$bug.log" 2>&1; then
    tail -n 1 "$logs/$bug.log"
  else
    tail -n 20 "$logs/$bug.log"
    echo "the run did not notice a broken order of updates: $logs/$bug.log" >&2
    exit 1
  fi
done

say "$changes changes"
exec timeout $((120 + changes)) "$BIN_DIR/hitless" "$changes"
