//! The control plane's certificates.
