//! Runs the proxies: local Envoy processes, or their Kubernetes objects.
