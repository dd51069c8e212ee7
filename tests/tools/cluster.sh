#!/usr/bin/env bash
# The test cluster: cluster.sh up | down | left | status. See docs/test-cluster.md.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)/cluster
case ${1:-} in
up | down | left) exec "$here/$1.sh" ;;
status) . "$here/lib.sh"; for f in "$RUN"/*.pid; do n=$(basename "$f" .pid); alive "$n" && echo "$n $(pid_of "$n")"; done ;;
*) echo "usage: cluster.sh up | down | left | status" >&2; exit 2 ;;
esac
