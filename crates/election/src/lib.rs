//! Lease-based leadership, published as a role that knows when it ends.
