#!/usr/bin/env bash
# Builds the candidate that elects with client-go; prints the path of the binary.
. "$(dirname "$0")/lib.sh"
out=$(go_build client-go-elector "$TOP/tests/apiserver/client-go" 'CGO_ENABLED=0 $GO build -trimpath -ldflags "-s -w" -o "$OUT/elector" .')
printf '%s\n' "$out/elector"
