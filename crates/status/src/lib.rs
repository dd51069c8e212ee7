//! Writes statuses: compare, then write.
