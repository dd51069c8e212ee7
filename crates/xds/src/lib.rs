//! ADS server over opaque resources, with the order of updates that Envoy needs.
