//! Kinds of Gateway API.
