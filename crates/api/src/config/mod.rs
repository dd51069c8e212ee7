//! The `EnvoyGateway` config file.
