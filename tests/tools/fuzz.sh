#!/usr/bin/env bash
# fuzz.sh: what files say, through all that comes before Envoy; requests that no proxy would send, to a real xDS server;
# random histories of that server against a model of Envoy.
# FUZZ_INPUTS and FUZZ_REQUESTS (20000 each), FUZZ_SEED (1) and PROPTEST_CASES make it longer.
. "$(dirname "$0")/lib.sh"
cd "$TOP"
say "random histories of the xDS server"
cargo test -q --locked -p xds --lib -- session
say "files and requests"
if ! cargo test -q --locked -p fuzz -- --nocapture; then
  # An input that ends the process (a stack that overflows) has no other way to say its number.
  for f in target/tmp/fuzz-worker-*; do [ -f "$f" ] && echo "under way: FUZZ_ONE=$(cat "$f")"; done
  exit 1
fi
