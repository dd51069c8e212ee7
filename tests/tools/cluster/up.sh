#!/usr/bin/env bash
# Brings the cluster up: one node, ready for pods, with DNS and LoadBalancer addresses, reachable from this machine only.
# BIN_DIR names the folder of the gateway and of cluster-lb (built here when it is not set).
. "$(dirname "$0")/lib.sh"
here=$TOP/tests/tools/cluster
[ "$(id -u)" = 0 ] || die "namespaces, mounts and cgroups need root: run this as root"
! alive init || die "it is up already (make cluster-down ends it)"
! [ -e "$STATE" ] || "$here/down.sh"

tools() {
  need_packages containerd runc containernetworking-plugins nftables iptables iproute2 openssl curl gcc libc6-dev binutils procps
  kube=$("$TOP/tests/tools/kube.sh")
}
gateway() {
  if [ -z "${BIN_DIR:-}" ]; then
    (cd "$TOP" && cargo build -q --locked -p envoy-gateway -p cluster)
    BIN_DIR=${CARGO_TARGET_DIR:-$TOP/target}/debug
  fi
}
archives() { mapfile -t images < <("$here/images.sh" "$BIN_DIR/envoy-gateway"); [ ${#images[@]} -ge 5 ]; }

node() {
  local f link=${NAME}0 peer=${NAME}1
  mkdir -p "$STATE"/{run,logs,conf,lib,log}
  ! ip link show "$link" >/dev/null 2>&1 || die "a link $link is there already"
  for f in "$NODE_NET" "$POD_NET" "$SERVICE_NET" "$LB_NET"; do
    [ -z "$(ip route show "$f")" ] || die "this machine has a route to $f already"
  done
  for f in "${SYSCTLS[@]}"; do sysctl -e "$f"; done >"$RUN/sysctls"
  "$here/config.sh" "$PAUSE_IMAGE"
  cgroups
  setsid unshare --net --mount --pid --fork --kill-child=KILL --mount-proc bash "$here/init.sh" "$STATE" >"$LOGS/init.log" 2>&1 </dev/null &
  remember unshare $!
  until_true 10 test -e "$RUN/init.ready"
  remember init "$(pgrep -P "$(pid_of unshare)")"
  ip link add "$link" type veth peer name "$peer" netns "$(pid_of init)"
  ip addr add "$HOST_IP/24" dev "$link"
  ip link set "$link" up
  in_node ip addr add "$NODE_IP/24" dev "$peer"
  in_node ip link set "$peer" up
  # This machine reaches pods and Services; nothing there reaches further than this machine, as there is no default route.
  for f in "$POD_NET" "$SERVICE_NET" "$LB_NET"; do ip route add "$f" via "$NODE_IP"; done
}

cgroups() {
  local d f
  if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
    for f in $(cat /sys/fs/cgroup/cgroup.controllers); do echo "+$f" >/sys/fs/cgroup/cgroup.subtree_control 2>/dev/null || true; done
  fi
  while read -r d; do
    mkdir -p "$d"
    # Version 1: a new cpuset is empty until it is told which CPUs and memory nodes it has.
    for f in cpuset.cpus cpuset.mems; do
      if [ -e "${d%/*}/cgroup.clone_children" ] && [ -e "$d/$f" ]; then cat "${d%/*}/$f" >"$d/$f"; fi
    done
  done < <(cgroup_folders)
}

api() { curl -sf --max-time 2 --cacert "$PKI/ca.crt" --cert "$PKI/admin.crt" --key "$PKI/admin.key" "https://$NODE_IP:6443$1"; }
control_plane() {
  start_in_node etcd "$kube/etcd" --data-dir "$STATE/etcd" --unsafe-no-fsync --log-level warn \
    --listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379 \
    --listen-peer-urls http://127.0.0.1:2380 --initial-advertise-peer-urls http://127.0.0.1:2380 --initial-cluster default=http://127.0.0.1:2380
  start_in_node kube-apiserver "$kube/kube-apiserver" --etcd-servers http://127.0.0.1:2379 \
    --advertise-address "$NODE_IP" --secure-port 6443 --cert-dir "$RUN" --allow-privileged \
    --tls-cert-file "$PKI/apiserver.crt" --tls-private-key-file "$PKI/apiserver.key" --client-ca-file "$PKI/ca.crt" \
    --service-account-issuer https://kubernetes.default.svc.cluster.local --service-account-key-file "$PKI/accounts.pub" \
    --service-account-signing-key-file "$PKI/accounts.key" --service-cluster-ip-range "$SERVICE_NET" \
    --authorization-mode Node,RBAC --enable-admission-plugins NodeRestriction \
    --kubelet-client-certificate "$PKI/apiserver-to-kubelet.crt" --kubelet-client-key "$PKI/apiserver-to-kubelet.key" \
    --kubelet-preferred-address-types InternalIP \
    --audit-policy-file "$here/audit.yaml" --audit-log-path "$AUDIT" --audit-log-mode blocking --audit-log-maxsize 16384
  until_true 90 api /readyz
  start_in_node kube-controller-manager "$kube/kube-controller-manager" --leader-elect=false --bind-address 127.0.0.1 \
    --kubeconfig "$PKI/controller-manager.kubeconfig" --use-service-account-credentials \
    --service-account-private-key-file "$PKI/accounts.key" --root-ca-file "$PKI/ca.crt" \
    --cluster-signing-cert-file "$PKI/ca.crt" --cluster-signing-key-file "$PKI/ca.key" \
    --allocate-node-cidrs --cluster-cidr "$POD_NET" --service-cluster-ip-range "$SERVICE_NET"
  start_in_node kube-scheduler "$kube/kube-scheduler" --leader-elect=false --bind-address 127.0.0.1 --kubeconfig "$PKI/scheduler.kubeconfig"
  until_true 60 api /api/v1/namespaces/default/serviceaccounts/default
}
ctr() { in_node ctr --address "$RUN/containerd.sock" --namespace k8s.io "$@"; }
runtime() {
  start_in_node containerd containerd --config "$CONF/containerd.toml"
  until_true 20 ctr version
}
import() { local f; for f in "${images[@]}"; do ctr images import "$f" >>"$LOGS/import.log" 2>&1 || { tail -n 5 "$LOGS/import.log" >&2; return 1; }; done; }
kubelet() {
  start_in_node kubelet "$kube/kubelet" --config "$CONF/kubelet.yaml" --kubeconfig "$PKI/kubelet.kubeconfig" --hostname-override "$NODE" --node-ip "$NODE_IP"
  start_in_node kube-proxy "$kube/kube-proxy" --config "$CONF/kube-proxy.yaml"
  until_true 90 "$kube/kubectl" wait --for=condition=Ready "node/$NODE" --timeout=1s
  until_true 30 in_node curl -sf http://127.0.0.1:10256/healthz
}
dns() {
  "$here/dns.sh" | "$kube/kubectl" apply -f - >/dev/null
  "$kube/kubectl" -n kube-system rollout status deployment/coredns --timeout=90s >/dev/null
}
addresses() {
  setsid "$BIN_DIR/cluster-lb" "$LB_NET" >"$LOGS/cluster-lb.log" 2>&1 </dev/null &
  remember cluster-lb $!
}

trap '[ $? = 0 ] || { echo "cluster: the end of each log in $LOGS:" >&2; tail -n 5 "$LOGS"/*.log >&2 || true; }' EXIT
timed "tools" tools
timed "gateway built" gateway
timed "images made" archives
timed "certificates" "$here/pki.sh"
timed "node" node
timed "runtime" runtime
# Images are read while the control plane starts.
import & importing=$!
timed "control plane" control_plane
timed "images imported" wait "$importing"
timed "node ready" kubelet
timed "DNS" dns
timed "load balancer" addresses
echo "cluster: up; export KUBECONFIG=$KUBECONFIG and use $kube/kubectl"
