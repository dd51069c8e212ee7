//! The claim on GatewayClasses: the namespace of the control plane that leads.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
    time::Duration,
};

use election::{Leadership, Role, RoleWatch, WriteError};
use resources::{Kind, ObjectKey, Observed, Seen};
use serde_json::json;
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};

use crate::{
    client::{Part, StatusClient, StatusError},
    facts::Facts,
    rivals::Rivals,
    writer::class_of,
};

/// Annotation of a GatewayClass with the namespace of the control plane whose leader claimed it last.
pub const CLAIM: &str = "gateway.envoyproxy.io/controller-namespace";

/// How often what was seen is looked at; nothing is asked for that.
const LOOK: Duration = Duration::from_secs(1);
/// Wait after a claim that the server did not take.
const PAUSE: Duration = Duration::from_secs(60);

/// Claims the GatewayClasses of a controller for the control plane of a namespace, and notices others that claim them too.
///
/// All replicas look; the leader writes: once for each class, and again only while another control plane undoes it, ever more
/// seldom (at most once a minute). What they find is told as a condition of the classes ([`Facts::contest`]).
pub struct Claims<C, O> {
    client: C,
    observed: O,
    controller: Arc<str>,
    namespace: String,
    facts: Facts,
    found: watch::Sender<BTreeSet<String>>,
}

// === impl Claims ===

impl<C: StatusClient, O: Observed> Claims<C, O> {
    /// For the control plane in that namespace.
    #[must_use]
    pub fn new(client: C, observed: O, controller: impl Into<Arc<str>>, namespace: &str, facts: Facts) -> Self {
        let (controller, namespace) = (controller.into(), namespace.to_owned());
        Self { client, observed, controller, namespace, facts, found: watch::Sender::default() }
    }

    /// Namespaces of other control planes that claim the name now.
    #[must_use]
    pub fn rivals(&self) -> watch::Receiver<BTreeSet<String>> {
        self.found.subscribe()
    }

    /// Looks, and claims as leader, until `stop` resolves. A claim under way is answered first.
    pub async fn run(self, role: RoleWatch, stop: impl Future<Output = ()>) {
        let start = Instant::now();
        let mut rivals = Rivals::new(&self.namespace);
        // Versions that our claims made: what the watch shows before them is old.
        let mut answers: BTreeMap<ObjectKey, Arc<str>> = BTreeMap::new();
        let mut not_before = Duration::ZERO;
        tokio::pin!(stop);
        loop {
            // First of all too: whoever begins to lead has finalizers and statuses of the classes to write.
            tokio::select! {
                () = &mut stop => return,
                () = sleep(LOOK) => {}
            }
            let now = start.elapsed();
            let classes = self.classes();
            rivals.keep(&classes.keys().cloned().collect());
            answers.retain(|key, _| classes.contains_key(key));
            for (key, (seen, claim)) in &classes {
                if !answers.get(key).is_some_and(|version| older(seen, version)) {
                    rivals.observe(now, key, claim.as_deref());
                }
            }
            self.tell(rivals.alive(now), classes.keys());
            if let Role::Leader(leadership) = role.current() {
                for (key, (seen, _)) in &classes {
                    let due = rivals.due(key).is_some_and(|due| due.max(not_before) <= now);
                    if !due || seen.deleting {
                        continue;
                    }
                    match self.claim(&leadership, key, seen).await {
                        Ok(version) => {
                            answers.insert(key.clone(), version);
                            rivals.observe(now, key, Some(&self.namespace));
                        }
                        // It is looked at again.
                        Err(WriteError::Write(StatusError::Conflict | StatusError::NotFound)) => {}
                        Err(WriteError::NotLeader(_) | WriteError::Overrun) => break,
                        Err(WriteError::Write(error)) => {
                            tracing::warn!(class = %key, %error, "cannot claim it; trying again");
                            not_before = start.elapsed() + PAUSE;
                        }
                    }
                }
            }
        }
    }

    /// Classes of the controller, and by whom they are claimed.
    fn classes(&self) -> BTreeMap<ObjectKey, (Seen, Option<String>)> {
        let of = |key: ObjectKey| {
            let seen = self.observed.observed(&key)?;
            let class = class_of(&seen, &self.controller)?;
            let claim = class.metadata.annotations.as_ref().and_then(|a| a.get(CLAIM)).cloned();
            Some((key, (seen, claim)))
        };
        self.observed.keys(Kind::GatewayClass).into_iter().filter_map(of).collect()
    }

    async fn claim(
        &self,
        leadership: &Leadership,
        key: &ObjectKey,
        seen: &Seen,
    ) -> Result<Arc<str>, WriteError<StatusError>> {
        let body = json!({"metadata": {
            "uid": &*seen.uid, "resourceVersion": &*seen.resource_version, "annotations": {CLAIM: self.namespace},
        }});
        let answer = leadership.permit()?.run(self.client.patch(key, Part::Object, seen, body)).await?;
        Ok(answer.resource_version)
    }

    fn tell<'k>(&self, now: BTreeSet<String>, classes: impl Iterator<Item = &'k ObjectKey>) {
        // The same words from all of them, so that they do not undo each other's.
        let message = (!now.is_empty()).then(|| {
            let all: BTreeSet<&str> = now.iter().map(String::as_str).chain([&*self.namespace]).collect();
            format!(
                "The control planes in the namespaces {} all have the controller name {}, so each undoes what the others \
                 write; give each another one (gateway.controllerName of its EnvoyGateway file) and GatewayClasses of its \
                 own, or remove all but one",
                Vec::from_iter(all).join(", "),
                self.controller
            )
        });
        for class in classes {
            self.facts.contest(class, message.as_deref());
        }
        let changed = self.found.send_if_modified(|last| {
            *last != now && {
                last.clone_from(&now);
                true
            }
        });
        match message {
            Some(message) if changed => tracing::error!("{message}"),
            None if changed => tracing::info!("no other control plane has the controller name any more"),
            _ => {}
        }
    }
}

/// The watch shows a version that is older than that of our own write. Versions that are no numbers are never taken for older.
fn older(seen: &Seen, written: &str) -> bool {
    matches!((seen.resource_version.parse::<u64>(), written.parse::<u64>()), (Ok(seen), Ok(written)) if seen < written)
}

impl<C, O> fmt::Debug for Claims<C, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claims").field("controller", &self.controller).finish_non_exhaustive()
    }
}
