//! Brings the objects of a fleet to what is wanted: compare, then write only what differs.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use election::{Permit, RoleWatch, Term, WriteError};
use ir::Proxy;
use reconcile::Wanted;
use semver::Version;
use tokio::sync::watch;

use super::{
    client::{ClientError, InfraClient},
    compare,
    facts::Trouble,
    names::FleetKey,
    object::{Live, Object, ObjectKind, ObjectRef},
    observed::Fleets,
    options::Options,
    render::{RenderError, render},
};

/// Whether somebody still has that fleet, as far as this control plane can see.
type Claimed = Box<dyn Fn(&FleetKey) -> bool + Send + Sync>;

/// Attempts at one object against others who write it; then the gate waits and tries again.
const ATTEMPTS: usize = 5;

/// Why a fleet is not as wanted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InfraError {
    /// What there is has not been listed yet.
    #[error("it is not known yet what there is")]
    NotSynced,
    /// The settings of the fleet are wrong.
    #[error("{0}")]
    Settings(String),
    /// An object of that name is there and belongs to something else. It is not touched.
    #[error("{at} is there already and is not of this fleet: {why}; rename or delete it, or give the fleet's {kind} another name in its EnvoyProxy", kind = at.kind.names().0)]
    Foreign {
        /// The object.
        at: ObjectRef,
        /// How it is told apart.
        why: String,
    },
    /// A newer leader has written the object.
    #[error("{at} was written by the leader of term {term}, which is newer")]
    Outranked {
        /// The object.
        at: ObjectRef,
        /// The newer term.
        term: u64,
    },
    /// A newer control plane has written the object.
    #[error("{at} was written by control plane {version}, which is newer than this one")]
    Newer {
        /// The object.
        at: ObjectRef,
        /// The newer version.
        version: Version,
    },
    /// Nobody wants the fleet, but what could want it is there, and a newer control plane has written it.
    #[error(
        "fleet {fleet} is kept: control plane {version}, which is newer than this one, wrote it, and what it is for is there"
    )]
    Kept {
        /// The fleet.
        fleet: FleetKey,
        /// The newer version.
        version: Version,
    },
    /// An object of that name is on its way out; it is created when it is gone.
    #[error("{0} is being deleted; it is created again when it is gone")]
    Deleting(ObjectRef),
    /// The server said no, or nothing.
    #[error("{at} cannot be {what}: {source}")]
    Client {
        /// The object.
        at: ObjectRef,
        /// What was tried.
        what: &'static str,
        /// Why not.
        source: ClientError,
    },
}

/// Troubles of fleets, to be told. Cloning shares.
#[derive(Clone, Debug, Default)]
pub struct Troubles(watch::Sender<BTreeMap<FleetKey, Trouble>>);

/// Writes the objects of fleets, behind the gate ([`reconcile::Gated`]). The key is the group of the fleet.
pub struct Writer<C, B> {
    client: C,
    fleets: Fleets,
    wanted: Wanted<String, Arc<Proxy>>,
    bootstrap: B,
    options: watch::Receiver<Arc<Options>>,
    role: RoleWatch,
    troubles: Troubles,
    claimed: Claimed,
}

/// What was not written, as a newer control plane wrote the fleet.
struct Withheld {
    version: Version,
    objects: Vec<ObjectRef>,
    /// Clients miss it.
    hurts: bool,
}

// === impl InfraError ===

impl InfraError {
    /// Asking again as it is will not help: somebody has to change something.
    #[must_use]
    pub fn is_lasting(&self) -> bool {
        match self {
            Self::Settings(_) | Self::Foreign { .. } => true,
            Self::Client { source, .. } => matches!(source, ClientError::Refused(_)),
            Self::NotSynced | Self::Outranked { .. } | Self::Newer { .. } | Self::Kept { .. } | Self::Deleting(_) => {
                false
            }
        }
    }
}

impl From<RenderError> for InfraError {
    fn from(error: RenderError) -> Self {
        Self::Settings(error.to_string())
    }
}

// === impl Troubles ===

impl Troubles {
    /// Follows them.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<BTreeMap<FleetKey, Trouble>> {
        self.0.subscribe()
    }

    fn note(&self, key: &FleetKey, error: Option<&InfraError>) {
        self.0.send_if_modified(|all| {
            let Some(error) = error else { return all.remove(key).is_some() };
            let failures = all.get(key).map_or(0, |t| t.failures).saturating_add(1);
            let withheld = matches!(error, InfraError::Newer { .. } | InfraError::Kept { .. });
            let trouble = Trouble { message: error.to_string(), failures, lasting: error.is_lasting(), withheld };
            all.insert(key.clone(), trouble);
            true
        });
    }

    /// Notes what was left as it is.
    fn hold(&self, key: &FleetKey, held: &Withheld, own: &Version) {
        let kinds: BTreeSet<&str> = held.objects.iter().map(|at| at.kind.names().0).collect();
        let kinds = Vec::from_iter(kinds).join(", ");
        let message = format!(
            "Changes are withheld ({kinds}): control plane {} wrote these objects, and the one that leads now is {own}, \
             which is older. They follow when {} leads again, or when the label {} is taken off them",
            held.version,
            held.version,
            compare::VERSION
        );
        let trouble = Trouble { message, failures: 0, lasting: held.hurts, withheld: true };
        let changed = self.0.send_if_modified(|all| all.insert(key.clone(), trouble.clone()) != Some(trouble.clone()));
        if changed {
            tracing::warn!(fleet = %key, version = %held.version, %own, kinds, "a newer control plane wrote it: changes are withheld");
        }
    }

    /// Fleets of which something is left as it is because a newer control plane wrote it.
    #[must_use]
    pub fn withheld(&self) -> usize {
        self.0.borrow().values().filter(|t| t.withheld).count()
    }
}

// === impl Writer ===

impl<C, B> Writer<C, B>
where
    C: InfraClient,
    B: Fn(&Proxy, &Options) -> Result<String, String> + Send + Sync + 'static,
{
    /// A writer of what `wanted` holds. `bootstrap` makes the configuration that a fleet's proxies start with; options may
    /// change while it runs ([`Wanted::recheck`] then has all fleets looked at again).
    #[must_use]
    pub fn new(
        client: C,
        fleets: Fleets,
        wanted: Wanted<String, Arc<Proxy>>,
        bootstrap: B,
        options: watch::Receiver<Arc<Options>>,
        role: RoleWatch,
    ) -> Self {
        let claimed = Box::new(|_: &FleetKey| false);
        Self { client, fleets, wanted, bootstrap, options, role, troubles: Troubles::default(), claimed }
    }

    /// Fleets of which this says that what they are for is there are not deleted when a newer control plane wrote them, even
    /// if this one does not want them: it may understand less. Without it, whatever is not wanted is deleted.
    #[must_use]
    pub fn with_claims(self, claimed: impl Fn(&FleetKey) -> bool + Send + Sync + 'static) -> Self {
        Self { claimed: Box::new(claimed), ..self }
    }

    /// What goes wrong.
    #[must_use]
    pub fn troubles(&self) -> Troubles {
        self.troubles.clone()
    }

    async fn bring(
        &self,
        permit: &Permit<'_>,
        key: &FleetKey,
        want: Option<&Arc<Proxy>>,
    ) -> Result<Option<Withheld>, WriteError<InfraError>> {
        if !self.fleets.is_synced() {
            return Err(WriteError::Write(InfraError::NotSynced));
        }
        let options = self.options.borrow().clone();
        let mut wanted = Vec::new();
        if let Some(proxy) = want {
            let bootstrap =
                (self.bootstrap)(proxy, &options).map_err(|e| WriteError::Write(InfraError::Settings(e)))?;
            wanted = render(proxy, &bootstrap, &options).map_err(|e| WriteError::Write(e.into()))?;
        }
        let names: BTreeSet<ObjectRef> = wanted.iter().map(|o| o.at.clone()).collect();
        // A Service needs ports; one that is there keeps its address while no listener is programmed.
        if want.is_some_and(|p| p.ports.is_empty()) {
            wanted.retain(|o| o.at.kind != ObjectKind::Service);
        }
        let newest = self.fleets.of(key).values().filter_map(|l| options.newer(l)).max();
        match newest {
            Some(version) if want.is_some() => {
                return self.hold(permit, key, &options, wanted, &names, version).await.map(Some);
            }
            Some(version) if (self.claimed)(key) => {
                return Err(WriteError::Write(InfraError::Kept { fleet: key.clone(), version }));
            }
            _ => {}
        }
        let mut first = None;
        for object in wanted {
            match self.ensure(permit, key, &options, object).await {
                Ok(()) => {}
                // One object that is refused holds up no other.
                Err(WriteError::Write(error)) => first = first.or(Some(error)),
                Err(over) => return Err(over),
            }
        }
        if let Some(error) = first {
            return Err(WriteError::Write(error));
        }
        // What takes another's place is there before the other goes.
        for (at, live) in self.fleets.of(key).into_iter().rev() {
            if !names.contains(&at) {
                self.remove(permit, key, &options, at, live).await?;
            }
        }
        Ok(None)
    }

    /// Leaves a fleet that a newer control plane wrote as it is. Only what it cannot serve without, and what is not there, is
    /// made: that takes nothing back.
    async fn hold(
        &self,
        permit: &Permit<'_>,
        key: &FleetKey,
        options: &Options,
        wanted: Vec<Object>,
        names: &BTreeSet<ObjectRef>,
        version: Version,
    ) -> Result<Withheld, WriteError<InfraError>> {
        let there = self.fleets.of(key);
        let runs = |at: &ObjectRef| matches!(at.kind, ObjectKind::Deployment | ObjectKind::DaemonSet);
        let mut held = Withheld { version, objects: Vec::new(), hurts: false };
        for mut object in wanted {
            let Some(live) = there.get(&object.at) else {
                let another = runs(&object.at) && there.keys().any(runs);
                let extra =
                    matches!(object.at.kind, ObjectKind::HorizontalPodAutoscaler | ObjectKind::PodDisruptionBudget);
                if another || extra {
                    held.objects.push(object.at);
                } else {
                    self.ensure(permit, key, options, object).await?;
                }
                continue;
            };
            match self.judge(key, options, &object.at, live, permit.term()) {
                Ok(()) | Err(WriteError::Write(InfraError::Newer { .. })) => {}
                Err(other) => return Err(other),
            }
            compare::adopt(&mut object, live, &options.default_images());
            if !compare::same(live, &object, &compare::digest(&object)) {
                held.hurts |= !compare::has_ports(live, &object);
                held.objects.push(object.at);
            }
        }
        held.objects.extend(there.into_keys().filter(|at| !names.contains(at)));
        Ok(held)
    }

    /// Creates an object or brings it to what is wanted.
    async fn ensure(
        &self,
        permit: &Permit<'_>,
        key: &FleetKey,
        options: &Options,
        object: Object,
    ) -> Result<(), WriteError<InfraError>> {
        let at = object.at.clone();
        let failed = |what, source| WriteError::Write(InfraError::Client { at: at.clone(), what, source });
        let term = permit.term();
        let mut live = self.fleets.of(key).remove(&at);
        for _ in 0..ATTEMPTS {
            let Some(there) = live else {
                let mut new = object.clone();
                let digest = compare::digest(&new);
                options.stamp(&mut new, term.0, &digest);
                match permit.another()?.run(self.client.create(&new)).await {
                    Ok(created) => {
                        tracing::info!(object = %at, fleet = %key, "created");
                        self.fleets.note(at, created);
                        return Ok(());
                    }
                    Err(WriteError::Write(ClientError::Exists | ClientError::Conflict)) => {
                        live = self.read(permit, &at).await?;
                        continue;
                    }
                    Err(e) => return Err(map(e, |source| failed("created", source))),
                }
            };
            if let Err(not) = self.judge(key, options, &at, &there, term) {
                // What was read is newer than what the watch showed.
                self.fleets.note(at, there);
                return Err(not);
            }
            let mut new = object.clone();
            compare::adopt(&mut new, &there, &options.default_images());
            let digest = compare::digest(&new);
            if compare::same(&there, &new, &digest) {
                return Ok(());
            }
            options.stamp(&mut new, term.0, &digest);
            match permit.another()?.run(self.client.apply(&new, &there)).await {
                Ok(applied) => {
                    let spec = applied.tree["metadata"]["generation"] != there.tree["metadata"]["generation"];
                    tracing::info!(object = %at, fleet = %key, spec, "applied");
                    self.fleets.note(at, applied);
                    return Ok(());
                }
                Err(WriteError::Write(ClientError::Conflict)) => live = self.read(permit, &at).await?,
                Err(WriteError::Write(ClientError::NotFound)) => {
                    self.fleets.forget(&at);
                    live = None;
                }
                Err(e) => return Err(map(e, |source| failed("applied", source))),
            }
        }
        Err(failed("applied", ClientError::Conflict))
    }

    /// Whether the object is ours to write.
    fn judge(
        &self,
        key: &FleetKey,
        options: &Options,
        at: &ObjectRef,
        live: &Live,
        term: Term,
    ) -> Result<(), WriteError<InfraError>> {
        let is = FleetKey::of_object(live);
        if is.as_ref() != Some(key) {
            let why = match is {
                Some(other) => format!("its labels name fleet {other}"),
                None => {
                    "it lacks the labels app.kubernetes.io/managed-by: envoy-gateway and gateway.envoyproxy.io/owning-…"
                        .to_owned()
                }
            };
            return Err(WriteError::Write(InfraError::Foreign { at: at.clone(), why }));
        }
        if options.is_of_another(live) {
            let why =
                format!("another control plane has it; take the label {} off to hand it over", compare::CONTROLLER);
            return Err(WriteError::Write(InfraError::Foreign { at: at.clone(), why }));
        }
        let stamped = live.label(compare::TERM).and_then(|t| t.parse().ok()).unwrap_or(0);
        if stamped > term.0 {
            self.role.outrank(Term(stamped));
            return Err(WriteError::Write(InfraError::Outranked { at: at.clone(), term: stamped }));
        }
        if live.deleting {
            return Err(WriteError::Write(InfraError::Deleting(at.clone())));
        }
        match options.newer(live) {
            Some(version) => Err(WriteError::Write(InfraError::Newer { at: at.clone(), version })),
            None => Ok(()),
        }
    }

    /// Deletes an object that is no longer wanted.
    async fn remove(
        &self,
        permit: &Permit<'_>,
        key: &FleetKey,
        options: &Options,
        at: ObjectRef,
        mut live: Live,
    ) -> Result<(), WriteError<InfraError>> {
        for _ in 0..ATTEMPTS {
            match self.judge(key, options, &at, &live, permit.term()) {
                // Whether what a newer one wrote may go was decided for the fleet.
                Ok(()) | Err(WriteError::Write(InfraError::Newer { .. })) => {}
                // It is on its way out already, or somebody else's now.
                Err(WriteError::Write(InfraError::Deleting(_) | InfraError::Foreign { .. })) => return Ok(()),
                Err(e) => return Err(e),
            }
            match permit.another()?.run(self.client.delete(&at, &live)).await {
                Ok(()) => {
                    tracing::info!(object = %at, fleet = %key, "deleted");
                    return Ok(());
                }
                Err(WriteError::Write(ClientError::NotFound)) => {
                    self.fleets.forget(&at);
                    return Ok(());
                }
                Err(WriteError::Write(ClientError::Conflict)) => match self.read(permit, &at).await? {
                    Some(now) if now.uid == live.uid => live = now,
                    // Another one of the same name.
                    _ => return Ok(()),
                },
                Err(e) => {
                    return Err(map(e, |source| WriteError::Write(InfraError::Client { at, what: "deleted", source })));
                }
            }
        }
        Err(WriteError::Write(InfraError::Client { at, what: "deleted", source: ClientError::Conflict }))
    }

    async fn read(&self, permit: &Permit<'_>, at: &ObjectRef) -> Result<Option<Live>, WriteError<InfraError>> {
        match permit.another()?.run(self.client.read(at)).await {
            Ok(live) => Ok(Some(live)),
            Err(WriteError::Write(ClientError::NotFound)) => Ok(None),
            Err(e) => {
                Err(map(e, |source| WriteError::Write(InfraError::Client { at: at.clone(), what: "read", source })))
            }
        }
    }
}

fn map(
    error: WriteError<ClientError>,
    tell: impl FnOnce(ClientError) -> WriteError<InfraError>,
) -> WriteError<InfraError> {
    match error {
        WriteError::Write(source) => tell(source),
        WriteError::NotLeader(over) => WriteError::NotLeader(over),
        WriteError::Overrun => WriteError::Overrun,
    }
}

impl<C, B> reconcile::Sync for Writer<C, B>
where
    C: InfraClient,
    B: Fn(&Proxy, &Options) -> Result<String, String> + Send + Sync + 'static,
{
    type Key = String;
    type Value = Arc<Proxy>;
    type Error = InfraError;

    /// Fleets of which there is something, from a complete view of what there is.
    async fn owned(&self, permit: Permit<'_>) -> Result<Vec<String>, WriteError<InfraError>> {
        if !self.fleets.is_synced() {
            return Err(WriteError::Write(InfraError::NotSynced));
        }
        let term = permit.term();
        let options = self.options.borrow().clone();
        let groups: BTreeMap<FleetKey, String> =
            self.wanted.values().into_keys().map(|group| (FleetKey::of_group(&group), group)).collect();
        let mut out = Vec::new();
        for key in self.fleets.keys() {
            let objects = self.fleets.of(&key);
            let stamped = objects.values().filter_map(|l| l.label(compare::TERM)?.parse::<u64>().ok()).max();
            if let Some(stamped) = stamped.filter(|s| *s > term.0) {
                self.role.outrank(Term(stamped));
            }
            if objects.values().any(|l| options.owns(l)) {
                out.push(groups.get(&key).cloned().unwrap_or_else(|| key.as_str().to_owned()));
            }
        }
        Ok(out)
    }

    async fn sync(
        &self,
        permit: Permit<'_>,
        group: &String,
        want: Option<&Arc<Proxy>>,
    ) -> Result<(), WriteError<InfraError>> {
        let key = FleetKey::of_group(group);
        let outcome = self.bring(&permit, &key, want).await;
        match &outcome {
            Ok(Some(held)) if !held.objects.is_empty() => {
                let own = self.options.borrow().version.clone();
                self.troubles.hold(&key, held, &own);
            }
            Ok(_) => self.troubles.note(&key, None),
            Err(WriteError::Write(error)) => self.troubles.note(&key, Some(error)),
            Err(WriteError::NotLeader(_) | WriteError::Overrun) => {}
        }
        outcome.map(drop)
    }
}

impl<C, B> fmt::Debug for Writer<C, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").field("fleets", &self.fleets).finish_non_exhaustive()
    }
}
