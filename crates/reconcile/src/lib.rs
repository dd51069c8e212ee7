//! Latest wanted value per key, and the leader-gated loop that writes it.
