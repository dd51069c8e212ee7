//! IR to Envoy protobuf, bootstrap, canonical JSON.
