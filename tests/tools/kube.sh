#!/usr/bin/env bash
# Builds etcd, the parts of Kubernetes and kubectl (one binary, links by name) and pause, the process that keeps a pod's
# namespaces; prints the folder that holds them.
. "$(dirname "$0")/lib.sh"
go_build kube "$TOP/tests/apiserver/kube-multi" '
  v=$($GO list -m -f "{{.Version}}" k8s.io/kubernetes); minor=${v#v1.}; minor=${minor%%.*}
  ld="-s -w"
  for p in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
    ld="$ld -X $p.gitVersion=$v -X $p.gitMajor=1 -X $p.gitMinor=$minor -X $p.gitTreeState=clean -X $p.gitCommit=0000000000000000000000000000000000000000 -X $p.buildDate=1970-01-01T00:00:00Z"
  done
  CGO_ENABLED=0 $GO build -trimpath -buildvcs=false -ldflags "$ld" -o "$OUT/kubeall" .
  for c in etcd kubectl kubelet kube-proxy kube-apiserver kube-controller-manager kube-scheduler; do ln -sf kubeall "$OUT/$c"; done
  gcc -Os -static -s -DVERSION="$v" -o "$OUT/pause" "$($GO list -m -f "{{.Dir}}" k8s.io/kubernetes)/build/pause/linux/pause.c"
'
