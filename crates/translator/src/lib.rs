//! Changes in, translation out: pure, infallible, deterministic.
