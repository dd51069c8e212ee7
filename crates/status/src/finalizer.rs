//! The finalizer that keeps a GatewayClass while Gateways use it.

use std::{collections::BTreeSet, fmt, sync::Arc};

use election::{Permit, WriteError};
use resources::{Kind, Object, ObjectKey, Observed, Seen};
use serde_json::json;

use crate::{
    client::{Part, StatusClient, StatusError},
    latest::Latest,
    writer::class_of,
};

/// The finalizer that Gateway API names for this.
pub const GATEWAYS_EXIST: &str = "gateway-exists-finalizer.gateway.networking.k8s.io";

/// Attempts at one write against others who write the same object.
const ATTEMPTS: usize = 5;

/// Puts the finalizer on wanted GatewayClasses and takes it off the others, behind the gate.
pub struct Finalizers<C, O> {
    client: C,
    latest: Latest<O>,
    controller: Arc<str>,
}

/// Classes of the controller that Gateways use, as last seen: those that want the finalizer.
#[must_use]
pub fn classes_in_use(observed: &impl Observed, controller: &str) -> BTreeSet<ObjectKey> {
    let gateways = observed.keys(Kind::Gateway).into_iter().filter_map(|key| match observed.observed(&key)?.object? {
        Object::Gateway(gateway) => Some(ObjectKey::new(Kind::GatewayClass, "", &gateway.spec.gateway_class_name)),
        _ => None,
    });
    let used: BTreeSet<ObjectKey> = gateways.collect();
    let ours = |key: &ObjectKey| observed.observed(key).is_some_and(|seen| class_of(&seen, controller).is_some());
    used.into_iter().filter(ours).collect()
}

// === impl Finalizers ===

impl<C: StatusClient, O: Observed> Finalizers<C, O> {
    /// For the classes of the controller of that name.
    #[must_use]
    pub fn new(client: C, observed: O, controller: impl Into<Arc<str>>) -> Self {
        Self { client, latest: Latest::new(observed), controller: controller.into() }
    }

    /// The finalizers that the class is to have, if that is a change. None is put on a class that is being deleted.
    fn change(&self, seen: &Seen, want: bool) -> Option<Vec<String>> {
        class_of(seen, &self.controller)?;
        let has = seen.finalizers.iter().any(|f| f == GATEWAYS_EXIST);
        match (has, want) {
            (false, true) if !seen.deleting => {
                Some(seen.finalizers.iter().cloned().chain([GATEWAYS_EXIST.to_owned()]).collect())
            }
            (true, false) => Some(seen.finalizers.iter().filter(|f| *f != GATEWAYS_EXIST).cloned().collect()),
            _ => None,
        }
    }
}

impl<C: StatusClient, O: Observed> reconcile::Sync for Finalizers<C, O> {
    type Key = ObjectKey;
    type Value = ();
    type Error = StatusError;

    /// Classes of ours with the finalizer.
    async fn owned(&self, permit: Permit<'_>) -> Result<Vec<ObjectKey>, WriteError<StatusError>> {
        drop(permit);
        let keys = self.latest.observed.keys(Kind::GatewayClass).into_iter();
        Ok(keys.filter(|k| self.latest.get(k).is_some_and(|s| self.change(&s, false).is_some())).collect())
    }

    async fn sync(
        &self,
        permit: Permit<'_>,
        key: &ObjectKey,
        want: Option<&()>,
    ) -> Result<(), WriteError<StatusError>> {
        let Some(mut seen) = self.latest.get(key) else { return Ok(()) };
        for _ in 0..ATTEMPTS {
            let Some(finalizers) = self.change(&seen, want.is_some()) else { return Ok(()) };
            let body = json!({"metadata": {
                "uid": &*seen.uid, "resourceVersion": &*seen.resource_version, "finalizers": finalizers,
            }});
            match permit.another()?.run(self.client.patch(key, Part::Object, &seen, body)).await {
                Ok(answer) => {
                    self.latest.answered(key, answer);
                    return Ok(());
                }
                Err(WriteError::Write(StatusError::NotFound)) => return Ok(()),
                Err(WriteError::Write(StatusError::Conflict)) => {}
                Err(other) => return Err(other),
            }
            match permit.another()?.run(self.client.read(key, &seen)).await {
                Ok(now) if now.uid != seen.uid => return Ok(()),
                Ok(now) => seen = now,
                Err(WriteError::Write(StatusError::NotFound)) => return Ok(()),
                Err(other) => return Err(other),
            }
        }
        Err(WriteError::Write(StatusError::Conflict))
    }
}

impl<C, O> fmt::Debug for Finalizers<C, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Finalizers").field("controller", &self.controller).finish_non_exhaustive()
    }
}
