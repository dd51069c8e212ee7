#!/usr/bin/env bash
# The cluster's certificate authority, the certificates of its parts and their kubeconfigs; new for each cluster.
. "$(dirname "$0")/lib.sh"
mkdir -p "$PKI" && cd "$PKI"
ossl() { openssl "$@" 2>>openssl.log || { cat openssl.log >&2; return 1; }; }
key() { ossl ecparam -name prime256v1 -genkey -noout -out "$1.key"; }

key ca
ossl req -x509 -new -key ca.key -days 30 -subj /CN=test-cluster -out ca.crt -addext keyUsage=critical,keyCertSign,cRLSign
key accounts
ossl ec -in accounts.key -pubout -out accounts.pub

# certificate NAME SUBJECT serverAuth|clientAuth [subjectAltName]
certificate() {
  key "$1"
  ossl req -new -key "$1.key" -subj "$2" -out "$1.csr"
  printf 'extendedKeyUsage=%s\n%s\n' "$3" "${4:+subjectAltName=$4}" >"$1.ext"
  ossl x509 -req -in "$1.csr" -CA ca.crt -CAkey ca.key -CAcreateserial -days 30 -extfile "$1.ext" -out "$1.crt"
}
# client NAME SUBJECT : a client certificate and the kubeconfig that uses it.
client() {
  certificate "$1" "$2" clientAuth
  cat >"$1.kubeconfig" <<Y
apiVersion: v1
kind: Config
current-context: test
contexts: [{name: test, context: {cluster: test, user: $1}}]
clusters: [{name: test, cluster: {server: "https://$NODE_IP:6443", certificate-authority-data: $(base64 -w0 ca.crt)}}]
users: [{name: $1, user: {client-certificate-data: $(base64 -w0 "$1.crt"), client-key-data: $(base64 -w0 "$1.key")}}]
Y
}
svc=DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:kubernetes.default.svc.cluster.local
certificate apiserver /CN=kube-apiserver serverAuth "$svc,DNS:localhost,IP:127.0.0.1,IP:${SERVICE_NET%.*}.1,IP:$NODE_IP"
certificate kubelet-serving "/O=system:nodes/CN=system:node:$NODE" serverAuth "DNS:$NODE,IP:$NODE_IP"
client admin /O=system:masters/CN=admin
client apiserver-to-kubelet /O=system:masters/CN=kube-apiserver
client controller-manager /CN=system:kube-controller-manager
client scheduler /CN=system:kube-scheduler
client kubelet "/O=system:nodes/CN=system:node:$NODE"
client proxy /CN=system:kube-proxy
