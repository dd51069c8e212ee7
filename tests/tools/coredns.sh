#!/usr/bin/env bash
# Builds CoreDNS, the DNS server of the test cluster; prints the path of the binary.
. "$(dirname "$0")/lib.sh"
out=$(go_build coredns "$TOP/tests/cluster/coredns" 'CGO_ENABLED=0 $GO build -trimpath -buildvcs=false -ldflags "-s -w" -o "$OUT/coredns" .')
printf '%s\n' "$out/coredns"
