//! What the gateway should do, as values.
