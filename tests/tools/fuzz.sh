#!/usr/bin/env bash
# fuzz.sh: what files say, through all that comes before Envoy; then random histories of the xDS server against a model
# of Envoy. FUZZ_INPUTS (20000), FUZZ_SEED (1) and PROPTEST_CASES make it longer.
. "$(dirname "$0")/lib.sh"
cd "$TOP"
say "random histories of the xDS server"
cargo test -q --locked -p xds --lib -- session
say "files"
cargo test -q --locked -p fuzz -- --nocapture
