#!/usr/bin/env bash
# Makes the archives of the images that the cluster runs, no registry involved; prints their paths. The ones that do not
# change are kept with the tools under a key of what is in them.
# Usage: images.sh GATEWAY-BINARY
. "$(dirname "$0")/lib.sh"
image=$TOP/tests/tools/cluster/image.py
suite=$("$TOP/tests/tools/conformance-build.sh")

# names PATTERN : `--name X` for each image of the conformance suite's objects that matches.
names() { grep -E "$1" "$suite/images" | sed 's/^/--name /'; }

# kept NAME FILE ARGUMENT... : an archive in the cache, made of FILE (and of image.py).
kept() {
  local name=$1 out; shift
  out=$CACHE/image-$name-$( (sha256sum "$image" "$1"; printf '%s\n' "$@") | sha256sum | cut -c1-16).tar
  [ -e "$out" ] || python3 "$image" "$out" "${@:2}"
  printf '%s\n' "$out"
}

kube=$("$TOP/tests/tools/kube.sh")
coredns=$("$TOP/tests/tools/coredns.sh")
envoy=$("$TOP/tests/tools/envoy.sh")
kept pause "$kube/pause" --name "$PAUSE_IMAGE" --entrypoint /pause --binary "$kube/pause=/pause"
# shellcheck disable=SC2046  # a list of words
kept coredns "$coredns" --name "$DNS_IMAGE" $(names '/coredns:') --entrypoint /coredns --binary "$coredns=/coredns"
# shellcheck disable=SC2046
kept echo "$suite/echo-basic" --name "$ECHO_IMAGE" $(names '/echo-basic:') --entrypoint /echo-basic --binary "$suite/echo-basic=/echo-basic"
kept envoy "$envoy" --name "$ENVOY_IMAGE" --name "$ENVOY_DEFAULT_IMAGE" --entrypoint /usr/local/bin/envoy --binary "$envoy=/usr/local/bin/envoy"

# Ours, as it was built but for the symbols that only a debugger reads.
mkdir -p "$TOP/target/cluster"
out=$TOP/target/cluster/envoy-gateway
if [ ! -e "$out.tar" ] || [ "$1" -nt "$out.tar" ] || [ "$image" -nt "$out.tar" ] || [ "${BASH_SOURCE[0]}" -nt "$out.tar" ]; then
  objcopy --strip-debug "$1" "$out"
  python3 "$image" "$out.tar" --name "$GATEWAY_IMAGE" --name "$GATEWAY_NEXT_IMAGE" --entrypoint /usr/local/bin/envoy-gateway --user 65532 \
    --binary "$out=/usr/local/bin/envoy-gateway"
fi
printf '%s\n' "$out.tar"
