//! What the cluster says, as values: keys, objects, store, changes, precedence.
