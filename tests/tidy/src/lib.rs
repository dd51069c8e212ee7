//! Keeps the house in order.
