#!/usr/bin/env bash
# The first process of the node (its PID 1): gives it its own /run, /var/lib and /var/log, then reaps what others leave.
set -euo pipefail
state=$1
trap 'exit 0' TERM
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/netns
mount --bind "$state/lib" /var/lib
mount --bind "$state/log" /var/log
mount --bind "$state/conf/resolv.conf" /etc/resolv.conf
ip link set lo up
sysctl -qw net.ipv4.ip_forward=1
touch "$state/run/init.ready"
while :; do
  sleep infinity &
  wait $! || true
done
