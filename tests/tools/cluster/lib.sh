# Shared by the scripts of the test cluster: its addresses and folders, how its processes start and end.
#
# The node is one init process in its own network, mount and PID namespaces. Everything of the cluster runs below it, so
# ending it ends every process, mount, pod network and link; /run, /var/lib and /var/log of the machine stay untouched.
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

STATE=${EG_CLUSTER_STATE:-$CACHE/cluster}
NAME=eg-test                      # of the link and the cgroups
HOST_IP=10.99.0.1 NODE_IP=10.99.0.2 NODE_NET=10.99.0.0/24
POD_NET=10.244.0.0/16 SERVICE_NET=10.96.0.0/16 DNS_IP=10.96.0.10
LB_NET=10.98.0.0/24               # addresses of Services of type LoadBalancer; routed here only
NODE=node1
PKI=$STATE/pki RUN=$STATE/run LOGS=$STATE/logs CONF=$STATE/conf
AUDIT=$STATE/logs/audit.log       # writes of the gateway (audit.yaml)
# Names of our images; nothing is ever fetched.
PAUSE_IMAGE=eg.test/pause:1 DNS_IMAGE=eg.test/coredns:1 ECHO_IMAGE=eg.test/echo:1
ENVOY_IMAGE=eg.test/envoy:1 GATEWAY_IMAGE=eg.test/envoy-gateway:1 GATEWAY_NEXT_IMAGE=eg.test/envoy-gateway:2
ENVOY_DEFAULT_IMAGE=docker.io/envoyproxy/envoy:distroless-v1.40.0   # what a proxy runs where nobody names another
# The kubelet sets these; they are put back at the end.
SYSCTLS=(vm.overcommit_memory vm.panic_on_oom kernel.panic kernel.panic_on_oops kernel.keys.root_maxkeys kernel.keys.root_maxbytes)
export KUBECONFIG=$PKI/admin.kubeconfig

die() { echo "cluster: $*" >&2; exit 1; }

# timed WHAT COMMAND... : runs it and prints how long it took.
timed() {
  local what=$1 t0 t; shift
  t0=$(date +%s%N)
  "$@" || { echo "cluster: $what failed" >&2; return 1; }
  t=$((($(date +%s%N) - t0) / 1000000))
  printf 'cluster: %-28s %4d.%03d s\n' "$what" $((t / 1000)) $((t % 1000))
}

# until_true SECONDS COMMAND... : repeats it until it succeeds.
until_true() {
  local end=$((SECONDS + $1)); shift
  until "$@" >/dev/null 2>&1; do
    [ $SECONDS -lt $end ] || { echo "cluster: not within the time: $*" >&2; return 1; }
    sleep 0.1
  done
}

# A process that was started here is known by its number and its start time: a number that was given again is left alone.
started_at() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }
remember() { echo "$2 $(started_at "$2")" >"$RUN/$1.pid"; }
# pid_of NAME : its number, if it runs.
pid_of() {
  local p t
  read -r p t 2>/dev/null <"$RUN/$1.pid" || return 1
  [ -n "${t:-}" ] && [ "$(started_at "$p")" = "$t" ] && echo "$p"
}

alive() { pid_of "$1" >/dev/null; }

# in_node COMMAND... : runs it in the namespaces of the node.
in_node() { nsenter --target "$(pid_of init)" --mount --net --pid -- "$@"; }

# start_in_node NAME COMMAND... : as a process of its own; it ends with the node.
start_in_node() {
  local name=$1; shift
  setsid nsenter --target "$(pid_of init)" --mount --net --pid -- "$@" >"$LOGS/$name.log" 2>&1 </dev/null &
  remember "$name" $!
}

# stop NAME : asks the process to end, insists after 10 s.
stop() {
  local p end=$((SECONDS + 10))
  while p=$(pid_of "$1"); do
    if [ $SECONDS -lt $end ]; then kill "$p" 2>/dev/null || true; else kill -KILL "$p" 2>/dev/null || true; fi
    sleep 0.05
  done
  rm -f "$RUN/$1.pid"
}

# cgroup_folders : the folder of the cluster in each hierarchy of cgroup v1, or the one of v2.
cgroup_folders() {
  local d
  if [ -e /sys/fs/cgroup/cgroup.controllers ]; then echo "/sys/fs/cgroup/$NAME"; return; fi
  for d in /sys/fs/cgroup/*/; do
    d=${d%/}
    [ -L "$d" ] || echo "$d/$NAME"
  done
}
