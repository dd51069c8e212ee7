#!/usr/bin/env bash
# The long forms of what `make test` shows in short. Figures go to docs/test-report.md, by hand and with the date.
. "$(dirname "$0")/lib.sh"
cd "$TOP"
export RUST_BACKTRACE=1
envoy=$("$TOP/tests/tools/envoy.sh")
kube=$("$TOP/tests/tools/kube.sh")
clientgo=$("$TOP/tests/tools/client-go.sh")
say "leadership on virtual time, 1,000,000 histories"
"$TOP/tests/tools/sim.sh" 1000000 | tail -n 3
say "leadership on a real API server, the steady rows for 10 minutes"
KUBE_BIN=$kube CLIENT_GO_ELECTOR=$clientgo LEADERSHIP_STEADY_SECONDS=600 \
  cargo test -q --locked -p apiserver --test leadership -- --nocapture
say "statuses at rest for 5 minutes"
cargo build -q --locked -p envoy-gateway
KUBE_BIN=$kube STATUS_REST_SECONDS=300 STATUS_FLIPS=20 cargo test -q --locked -p apiserver --test status -- --nocapture
say "others write for 10 minutes; labels change under 500 routes for 10 minutes"
for how in "idle 20" "churn 500"; do
  read -r row routes <<<"$how"
  KUBE_BIN=$kube ENVOY_BIN=$envoy LIVE_ROW=$row LIVE_ROUTES=$routes LIVE_IDLE_SECONDS=600 LIVE_CHURN_SECONDS=600 \
    cargo test -q --locked -p apiserver --test live -- --nocapture
done
say "fleets: at rest for 5 minutes, refused for 5 minutes, an address lost 20 times"
KUBE_BIN=$kube INFRA_REST_SECONDS=300 INFRA_OUTAGE_SECONDS=300 INFRA_FLIPS=20 \
  cargo test -q --locked -p apiserver --test infra -- --nocapture
say "replicas under churn and random faults for 30 minutes"
"$TOP/tests/tools/soak.sh" 1800 "${SOAK_SEED:-$(date +%s)}" | grep -v "^ *[0-9.]*s "
say "two replicas: a follower serves a thousand routes, a leader is lost in four ways, the API server is away for all"
KUBE_BIN=$kube ENVOY_BIN=$envoy REPLICAS_LONG=1 \
  cargo test -q --locked -p apiserver --test lost -- --ignored --nocapture
say "a thousand changes under load"
"$TOP/tests/tools/hitless.sh" 1000
say "fuzzing, 500,000 inputs"
FUZZ_INPUTS=500000 FUZZ_REQUESTS=500000 PROPTEST_CASES=20000 "$TOP/tests/tools/fuzz.sh"
say "many routes"
ENVOY_BIN=$envoy "$TOP/tests/tools/bench.sh"
say "replicas end, die, sleep and lose the API server, all of them for 10 minutes"
HA_OUTAGE=600 "$TOP/tests/tools/ha.sh"
say "Gateway API conformance"
MINUTES=40 "$TOP/tests/tools/conformance.sh" all
