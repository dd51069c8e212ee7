//! Watches and files, as batches of changes.
