//! Kinds of `gateway.envoyproxy.io/v1alpha1`.
