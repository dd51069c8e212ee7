#!/usr/bin/env bash
# Says what is left of the cluster on this machine; exit code 1 if there is anything. `left.sh processes` looks at
# processes and mounts only.
. "$(dirname "$0")/lib.sh"
found=0
left() { echo "cluster: left behind: $*"; found=1; }

for p in /proc/[0-9]*; do
  command=$( (tr '\0' ' ' <"$p/cmdline") 2>/dev/null) || continue   # it may have ended by now
  case $command in *"$STATE/"*) left "process ${p#/proc/}: ${command:0:120}" ;; esac
done
while read -r _ at _; do case $at in "$STATE"/*) left "mount $at" ;; esac; done </proc/mounts
if [ "${1:-}" != processes ]; then
  for d in $(cgroup_folders); do [ ! -d "$d" ] || left "cgroup $d"; done
  ! ip link show "${NAME}0" >/dev/null 2>&1 || left "link ${NAME}0"
  for f in "$NODE_NET" "$POD_NET" "$SERVICE_NET" "$LB_NET"; do [ -z "$(ip route show "$f")" ] || left "route to $f"; done
  [ ! -e "$STATE" ] || left "folder $STATE"
fi
exit $found
