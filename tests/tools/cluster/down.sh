#!/usr/bin/env bash
# Ends the cluster and removes all that belongs to it; its logs go to target/test-logs/cluster. Then looks whether
# anything was left: exit code 1 says so.
. "$(dirname "$0")/lib.sh"
[ "$(id -u)" = 0 ] || die "run this as root"

end() {
  local d
  stop cluster-lb
  stop init   # the kernel ends everything else in its PID namespace
  stop unshare
  until_true 10 nothing_runs || true
  ip link del "${NAME}0" 2>/dev/null || true
  if [ -e "$RUN/sysctls" ]; then sysctl -qp "$RUN/sysctls" || true; fi
  for d in $(cgroup_folders); do
    if [ -d "$d" ]; then find "$d" -depth -type d -exec rmdir {} + || true; fi
  done
}
nothing_runs() {
  local d
  for d in $(cgroup_folders); do
    [ ! -d "$d" ] || [ -z "$(find "$d" -name cgroup.procs -exec cat {} +)" ] || return 1
  done
}
keep_logs() {
  local to=$TOP/target/test-logs/cluster
  [ -d "$LOGS" ] || return 0
  mkdir -p "$to"
  rm -rf "$to/parts" "$to/pods"
  cp -r "$LOGS" "$to/parts"
  if [ -d "$STATE/log/pods" ]; then cp -r "$STATE/log/pods" "$to/pods"; fi
}

timed "ended" end
timed "logs kept" keep_logs
if "$TOP/tests/tools/cluster/left.sh" processes; then rm -rf "$STATE"; fi
"$TOP/tests/tools/cluster/left.sh"
