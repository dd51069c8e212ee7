#!/usr/bin/env bash
# sim.sh [HISTORIES]: the elector on virtual time over a faulty store.
. "$(dirname "$0")/lib.sh"
cd "$TOP"
exec cargo run -q --release --locked -p sim -- --histories "${1:-100000}"
