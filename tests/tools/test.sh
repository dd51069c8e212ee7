#!/usr/bin/env bash
# The test command: everything that must hold, fast things first. `make test` and CI call it.
# Usage: test.sh [STEP...]   without arguments all steps in order.
. "$(dirname "$0")/lib.sh"
cd "$TOP"
LOGS=$TOP/target/test-logs
mkdir -p "$LOGS"
# Random histories are the same in every run of this command; the long run takes others.
export PROPTEST_RNG_SEED=${PROPTEST_RNG_SEED:-20261130}
export CARGO_TERM_COLOR=never CARGO_INCREMENTAL=${CARGO_INCREMENTAL:-0} RUST_BACKTRACE=1

steps=(packages tools format tidy clippy deny build unit doc sim fuzz suites soak hitless cluster)
[ $# -gt 0 ] && steps=("$@")

step_packages() {
  need_packages gcc g++ cmake make curl openssl git procps iproute2
  python3 -m venv --help >/dev/null 2>&1 || need_packages python3-venv
  python3 -m pip --version >/dev/null 2>&1 || need_packages python3-pip
  rustup component list --installed 2>/dev/null | grep -q clippy || rustup component add clippy rustfmt || true
}
step_tools() {
  rust_tools >/dev/null
  "$TOP/tests/tools/envoy.sh"
  "$TOP/tests/tools/kube.sh"
  "$TOP/tests/tools/client-go.sh"
  "$TOP/tests/tools/coredns.sh"
  "$TOP/tests/tools/conformance-build.sh"
  "$TOP/tests/tools/helm.sh"
}
step_format() { cargo fmt --all --check; }
step_tidy() { cargo test -q -p tidy --locked; }
step_clippy() {
  cargo clippy --workspace --locked -q -- -D warnings
  # Tests may unwrap, helpers of tests too (clippy's own exception knows test functions only).
  cargo clippy --workspace --all-targets --locked -q -- -D warnings -A clippy::unwrap_used
}
step_deny() { "$(rust_tools)/bin/cargo-deny" --offline check bans licenses sources; }
step_build() { cargo build --workspace --all-targets --locked -q; }
nextest() { "$(rust_tools)/bin/cargo-nextest" nextest run --locked "$@"; }
step_unit() {
  # The pure crates and fakes, no network: what needs a real Envoy or API server says that it is skipped.
  nextest --workspace --exclude apiserver --exclude chart --exclude e2e --exclude envoy-facts --exclude fuzz
}
step_doc() { cargo test -q --doc --workspace --locked; }
step_sim() { "$TOP/tests/tools/sim.sh" "${SIM_HISTORIES:-100000}"; }
step_fuzz() { "$TOP/tests/tools/fuzz.sh"; }
step_suites() {
  ENVOY_BIN=$("$TOP/tests/tools/envoy.sh") KUBE_BIN=$("$TOP/tests/tools/kube.sh") CLIENT_GO_ELECTOR=$("$TOP/tests/tools/client-go.sh")
  HELM_BIN=$("$TOP/tests/tools/helm.sh")
  export ENVOY_BIN KUBE_BIN CLIENT_GO_ELECTOR HELM_BIN TEST_LOGS=$LOGS
  nextest --success-output final -p apiserver -p chart -p e2e -p testkit
  nextest -p envoy-facts -p infra -p xds -E 'kind(test)'
}
# Replicas with short faults, and of conformance the core features of HTTP; test-long has the rest.
step_cluster() { BIN_DIR=$(realpath "${CARGO_TARGET_DIR:-target}/debug") HA=short CONFORMANCE=core "$TOP/tests/tools/cluster-suite.sh"; }
step_soak() { BIN_DIR=${CARGO_TARGET_DIR:-target}/debug "$TOP/tests/tools/soak.sh" "${SOAK_SECONDS:-150}"; }
step_hitless() { BIN_DIR=${CARGO_TARGET_DIR:-target}/debug "$TOP/tests/tools/hitless.sh" "${HITLESS_CHANGES:-200}"; }

passed=0 failed=0 broken=() table=""
for s in "${steps[@]}"; do
  say "$s"
  log=$LOGS/$s.log
  t0=$(date +%s)
  rm -f target/nextest/default/junit.xml
  if "step_$s" >"$log" 2>&1; then state=ok; else state=FAILED; broken+=("$s"); fi
  t=$(($(date +%s) - t0))
  counts=$(python3 "$TOP/tests/tools/counts.py" "$log" target/nextest/default/junit.xml)
  read -r p f <<<"$(head -n 1 <<<"$counts")"
  if [ "$state" = FAILED ] && [ "$f" = 0 ]; then f=1; fi
  passed=$((passed + p)) failed=$((failed + f))
  table+=$(printf '%-10s %-7s %5ss %6s passed %3s failed\n' "$s" "$state" "$t" "$p" "$f")$'\n'
  tail -n +2 <<<"$counts"
  grep -hE '^ *(simulation|peer|infra|helm|egctl|hitless|soak|fuzz|rows|leadership|cluster|ha|conformance): |^ *ok     ' "$log" | awk '!seen[$0]++' || true
  if [ "$state" = FAILED ]; then
    echo "--- the end of $log"
    tail -n 60 "$log"
  fi
done
echo
printf '%s' "$table"
echo "logs: target/test-logs"
[ ${#broken[@]} = 0 ] || echo "failed steps: ${broken[*]}"
echo "$passed passed, $failed failed"
[ ${#broken[@]} = 0 ]
