//! The Kubernetes half: the lease store and the client layers that let no write pass without a permit.

mod events;
mod guard;
mod store;
#[cfg(test)]
mod tests;

pub use guard::{
    Counts, PermitLayer, PermitService, ReadOnlyLayer, Refusal, WriteRefused, gated_client, read_only_client,
};
pub use store::{KubernetesLease, MissingLeaseName};
