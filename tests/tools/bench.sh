#!/usr/bin/env bash
# bench.sh [ROUTES...]: what many routes cost, beside the peers' figures in ../shared/bench/README.md.
. "$(dirname "$0")/lib.sh"
cd "$TOP"
gen=${GEN:-$TOP/../shared/bench/gen.py}
[ -f "$gen" ] || { echo "skipped: no input generator at ../shared/bench/gen.py"; exit 0; }
cargo build -q --release --locked -p envoy-gateway -p egctl
exec python3 "$TOP/tests/tools/bench.py" target/release "$("$TOP/tests/tools/envoy.sh")" "$gen" "$@"
