//! Builders, fakes, real servers for tests.
