#!/usr/bin/env bash
# Writes the files that containerd, the CNI plugins, the kubelet and kube-proxy read.
# Usage: config.sh PAUSE-IMAGE
. "$(dirname "$0")/lib.sh"
mkdir -p "$CONF/cni"
echo "nameserver $DNS_IP" >"$CONF/resolv.conf"

# restrict_oom_score_adj: a machine may lack CAP_SYS_RESOURCE, and then runc could not lower the score.
# disable_apparmor: a profile would stay in the kernel.
cat >"$CONF/containerd.toml" <<T
version = 2
root = "$STATE/containerd/root"
state = "$STATE/containerd/state"
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs"]
[grpc]
  address = "$RUN/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "$1"
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$CONF/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
T

# Point to point instead of a bridge: each packet between two pods passes the node's rules, so that a Service answers
# a pod of its own without br_netfilter.
cat >"$CONF/cni/10-pods.conflist" <<J
{
  "cniVersion": "0.4.0", "name": "pods",
  "plugins": [
    {"type": "ptp", "ipMasq": false, "ipam": {"type": "host-local", "dataDir": "/run/cni",
      "ranges": [[{"subnet": "${POD_NET%.*.*}.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}
J

cat >"$CONF/kubelet.yaml" <<Y
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: $NODE_IP
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: $PKI/ca.crt}
authorization: {mode: Webhook}
cgroupDriver: cgroupfs
cgroupRoot: /$NAME
clusterDNS: [$DNS_IP]
clusterDomain: cluster.local
containerRuntimeEndpoint: unix://$RUN/containerd.sock
enforceNodeAllocatable: []
evictionHard: {memory.available: 50Mi, nodefs.available: "0%", nodefs.inodesFree: "0%", imagefs.available: "0%"}
failCgroupV1: false
failSwapOn: false
imageGCHighThresholdPercent: 100
maxPods: 250
resolvConf: $CONF/resolv.conf
syncFrequency: 10s
tlsCertFile: $PKI/kubelet-serving.crt
tlsPrivateKeyFile: $PKI/kubelet-serving.key
volumePluginDir: /var/lib/volume-plugins
Y

# conntrack: the limits are the machine's and not this namespace's to set.
cat >"$CONF/kube-proxy.yaml" <<Y
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
bindAddress: 0.0.0.0
clientConnection: {kubeconfig: $PKI/proxy.kubeconfig}
clusterCIDR: $POD_NET
conntrack: {maxPerCore: 0, min: 0, tcpCloseWaitTimeout: 0s, tcpEstablishedTimeout: 0s}
healthzBindAddress: 127.0.0.1:10256
hostnameOverride: $NODE
metricsBindAddress: 127.0.0.1:10249
mode: nftables
nftables: {minSyncPeriod: 0s}
nodePortAddresses: [$NODE_NET]
Y
