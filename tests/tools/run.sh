#!/usr/bin/env bash
# run.sh: builds, starts two backends and a standalone gateway with the example in deploy/standalone, shows an answer
# for each route, and stays up until Ctrl-C. HTTP on 8080, HTTPS on 8443; everything is on loopback.
# ONCE=1 ends after the answers (for tests). PROFILE=dev builds faster.
. "$(dirname "$0")/lib.sh"
cd "$TOP"
export TOP
profile=${PROFILE:-release}
bin=target/$([ "$profile" = dev ] && echo debug || echo "$profile")

if [ "$(uname -s)" = Linux ] && command -v apt-get >/dev/null; then need_packages gcc g++ cmake curl openssl; fi
python3 -m pip --version >/dev/null 2>&1 || need_packages python3-pip
command -v cargo >/dev/null || { echo "cargo is missing: install Rust 1.95 or newer with rustup, then run this again" >&2; exit 1; }
say "building ($profile)"
cargo build -q --locked --profile "$profile" -p envoy-gateway -p testkit
envoy=$("$TOP/tests/tools/envoy.sh")

scratch=$(mktemp -d)
pids=()
cleanup() {
  for p in "${pids[@]}"; do kill "$p" 2>/dev/null || true; done
  for p in "${pids[@]}"; do wait "$p" 2>/dev/null || true; done
  rm -rf "$scratch"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

say "making a certificate for secure.example.test"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=secure.example.test \
  -addext subjectAltName=DNS:secure.example.test -keyout "$scratch/tls.key" -out "$scratch/tls.crt" 2>/dev/null
mkdir "$scratch/resources"
{
  echo 'apiVersion: v1'; echo 'kind: Secret'; echo 'type: kubernetes.io/tls'
  echo 'metadata: {name: example-tls, namespace: default}'
  echo 'data:'
  echo "  tls.crt: $(base64 -w0 "$scratch/tls.crt")"
  echo "  tls.key: $(base64 -w0 "$scratch/tls.key")"
} > "$scratch/resources/secret.yaml"

say "starting the backends blue (9101) and green (9102)"
"$bin/echo" --port 9101 --name blue >"$scratch/blue.log" 2>&1 & pids+=($!)
"$bin/echo" --port 9102 --name green >"$scratch/green.log" 2>&1 & pids+=($!)

say "starting the gateway; its log: ${GATEWAY_LOG:=target/run-gateway.log}"
mkdir -p target
start=$(date +%s.%N)
"$bin/envoy-gateway" standalone --resources deploy/standalone --resources "$scratch/resources" --envoy-path "$envoy" \
  >"$GATEWAY_LOG" 2>&1 & gateway=$!; pids+=($gateway)

get() { curl -sS --max-time 5 "$@"; }
until [ "$(get -o /dev/null -w '%{http_code}' -H 'Host: shop.example.test' http://127.0.0.1:8080/ 2>/dev/null)" = 200 ]; do
  kill -0 "$gateway" 2>/dev/null || { echo "the gateway ended:" >&2; tail -n 20 "$GATEWAY_LOG" >&2; exit 1; }
  [ "$(echo "$(date +%s.%N) $start" | awk '{print ($1 - $2 > 60)}')" = 0 ] || { echo "no answer within 60 s:" >&2; tail -n 20 "$GATEWAY_LOG" >&2; exit 1; }
  sleep 0.02
done
echo "first 200 after $(echo "$(date +%s.%N) $start" | awk '{printf "%.2f", $1 - $2}') s from the start of the gateway"

show() { printf '\n$ curl %s\n' "$*"; get -i "$@" | tr -d '\r' | sed -n '1p;/^location:/p;/^x-served-by:/p;/"backend":/p;/"path":/p'; }
show -H 'Host: shop.example.test' http://127.0.0.1:8080/cart/42
show -H 'Host: shop.example.test' http://127.0.0.1:8080/
show -H 'Host: old.example.test' http://127.0.0.1:8080/anything
show --cacert "$scratch/tls.crt" --resolve secure.example.test:8443:127.0.0.1 https://secure.example.test:8443/
show --cacert "$scratch/tls.crt" --resolve secure.example.test:8443:127.0.0.1 -H 'x-version: next' https://secure.example.test:8443/

cat <<TXT

http://127.0.0.1:8080    Host: shop.example.test or old.example.test
https://127.0.0.1:8443   Host: secure.example.test
http://127.0.0.1:19000   admin page of the control plane (JSON under /api/)

Edit deploy/standalone/routes.yaml (say, swap the weights 90 and 10) and ask again: the answer changes within a second.
Ctrl-C ends everything.
TXT
[ -z "${ONCE:-}" ] || exit 0
wait "$gateway"
