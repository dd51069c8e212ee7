//! Types of Gateway API and of gateway.envoyproxy.io, and the config file.
