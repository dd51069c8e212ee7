//! A lease kept in a `coordination.k8s.io/v1` Lease object, as client-go's `leaderelection` keeps it.

use crate::{
    clock::WallTime,
    kubernetes::events::Events,
    outcome::Transition,
    record::{LeaseStore, Record, StoreError},
    role::Term,
};
use futures::{StreamExt, stream::BoxStream};
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
    jiff::Timestamp,
};
use kube::{
    Api, Client, Config,
    api::{ObjectMeta, PostParams, WatchEvent, WatchParams},
};
use std::{fmt, sync::Arc, time::Duration};
use tokio::sync::{Mutex, OnceCell};

/// How long one watch request lasts before it is made again; a dead connection is noticed by then.
const WATCH_SECONDS: u32 = 30;

/// A Lease object by namespace and name.
///
/// It has its own client, made in the runtime that first uses it (the elector's), without retries or limits shared with other
/// traffic: the elector decides when to try again.
pub struct KubernetesLease {
    namespace: Arc<str>,
    name: Arc<str>,
    config: Option<Config>,
    client: OnceCell<Client>,
    watch: Mutex<Option<Watch>>,
    events: Events,
}

/// A watch on the Lease and when it is over at the latest.
struct Watch {
    events: BoxStream<'static, Result<WatchEvent<Lease>, kube::Error>>,
    until: tokio::time::Instant,
}

/// A lease needs a namespace and a name; there are no defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("leader election needs the {0} of the Lease: it is empty")]
pub struct MissingLeaseName(
    /// What is missing: `namespace` or `name`.
    pub &'static str,
);

// === impl KubernetesLease ===

impl KubernetesLease {
    /// The Lease `namespace/name` of the cluster that `config` describes.
    ///
    /// # Errors
    /// [`MissingLeaseName`] if the namespace or the name is empty.
    pub fn new(config: Config, namespace: &str, name: &str) -> Result<Self, MissingLeaseName> {
        Self::make(Some(config), OnceCell::new(), namespace, name)
    }

    /// The same with a client that is already there; it must belong to the runtime that the elector runs on.
    ///
    /// # Errors
    /// [`MissingLeaseName`] if the namespace or the name is empty.
    pub fn with_client(client: Client, namespace: &str, name: &str) -> Result<Self, MissingLeaseName> {
        Self::make(None, OnceCell::new_with(Some(client)), namespace, name)
    }

    fn make(
        config: Option<Config>,
        client: OnceCell<Client>,
        namespace: &str,
        name: &str,
    ) -> Result<Self, MissingLeaseName> {
        for (what, value) in [("namespace", namespace), ("name", name)] {
            if value.trim().is_empty() {
                return Err(MissingLeaseName(what));
            }
        }
        Ok(Self {
            namespace: namespace.into(),
            name: name.into(),
            config,
            client,
            watch: Mutex::new(None),
            events: Events::default(),
        })
    }

    async fn client(&self) -> Result<Client, StoreError> {
        let client = self.client.get_or_try_init(|| async {
            let Some(mut config) = self.config.clone() else {
                return Err(StoreError::Refused("no client configuration".into()));
            };
            config.default_retry = false;
            Client::try_from(config)
                .map_err(|error| StoreError::Refused(format!("client configuration: {error}").into()))
        });
        client.await.cloned()
    }

    async fn leases(&self) -> Result<Api<Lease>, StoreError> {
        Ok(Api::namespaced(self.client().await?, &self.namespace))
    }

    async fn start_watch(&self) -> Option<Watch> {
        let params = WatchParams::default().fields(&format!("metadata.name={}", self.name)).timeout(WATCH_SECONDS);
        // Version 0: begins with the present state out of the server's cache.
        let events = self.leases().await.ok()?.watch(&params, "0").await.ok()?.boxed();
        let until = tokio::time::Instant::now() + Duration::from_secs(u64::from(WATCH_SECONDS) + 5);
        Some(Watch { events, until })
    }
}

impl LeaseStore for KubernetesLease {
    /// The object as it was read: what others keep in it is written back unchanged.
    type Version = Arc<Lease>;

    async fn load(&self) -> Result<Option<(Record, Self::Version)>, StoreError> {
        match self.leases().await?.get(&self.name).await {
            Ok(lease) => Ok(Some((read(&lease), Arc::new(lease)))),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(error) => Err(explain(&error)),
        }
    }

    async fn store(&self, record: Record, over: Option<Self::Version>) -> Result<Self::Version, StoreError> {
        let leases = self.leases().await?;
        let stored = match over {
            Some(over) => {
                let mut lease = Lease::clone(&over);
                write(&record, lease.spec.get_or_insert_default())?;
                leases.replace(&self.name, &PostParams::default(), &lease).await
            }
            None => {
                let metadata = ObjectMeta {
                    name: Some(self.name.to_string()),
                    namespace: Some(self.namespace.to_string()),
                    ..ObjectMeta::default()
                };
                let mut spec = LeaseSpec::default();
                write(&record, &mut spec)?;
                let created = leases.create(&PostParams::default(), &Lease { metadata, spec: Some(spec) }).await;
                if let Err(kube::Error::Api(status)) = &created
                    && status.code == 404
                {
                    return Err(StoreError::Refused(
                        format!("namespace {}: {}", self.namespace, status.message).into(),
                    ));
                }
                created
            }
        };
        let lease = stored.map_err(|error| explain(&error))?;
        if let Ok(mut watch) = self.watch.try_lock() {
            *watch = None; // who holds the lease does not follow it
        }
        Ok(Arc::new(lease))
    }

    async fn vacated(&self) {
        let mut watch = self.watch.lock().await;
        loop {
            let Some(open) = watch.as_mut() else {
                *watch = self.start_watch().await;
                if watch.is_none() {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
                continue;
            };
            match tokio::time::timeout_at(open.until, open.events.next()).await {
                Ok(Some(Ok(WatchEvent::Deleted(_)))) => return,
                Ok(Some(Ok(WatchEvent::Added(lease) | WatchEvent::Modified(lease)))) => {
                    if read(&lease).holder.is_none() {
                        return;
                    }
                }
                Ok(Some(Ok(WatchEvent::Bookmark(_)))) => {}
                Ok(Some(Ok(WatchEvent::Error(_)) | Err(_)) | None) | Err(_) => *watch = None,
            }
        }
    }

    fn announce(&self, transition: &Transition) {
        if let Some(client) = self.client.get() {
            self.events.post(client.clone(), &self.namespace, &self.name, transition);
        }
    }

    async fn close(&self) {
        self.events.close().await;
    }
}

impl fmt::Debug for KubernetesLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lease {}/{}", self.namespace, self.name)
    }
}

/// The record in a Lease object. Numbers that make no sense read as zero.
pub(crate) fn read(lease: &Lease) -> Record {
    let Some(spec) = &lease.spec else { return Record::default() };
    let wall = |time: &Option<MicroTime>| time.as_ref().map(|t| WallTime(t.0.as_microsecond()));
    Record {
        holder: spec.holder_identity.as_deref().filter(|holder| !holder.is_empty()).map(Arc::from),
        term: Term(spec.lease_transitions.and_then(|n| u64::try_from(n).ok()).unwrap_or_default()),
        duration: Duration::from_secs(
            spec.lease_duration_seconds.and_then(|n| u64::try_from(n).ok()).unwrap_or_default(),
        ),
        acquired: wall(&spec.acquire_time),
        renewed: wall(&spec.renew_time),
    }
}

/// Writes a record into a spec and leaves the rest of it alone. A part of a second is rounded up: others wait longer.
fn write(record: &Record, spec: &mut LeaseSpec) -> Result<(), StoreError> {
    let refused = |what: &str| StoreError::Refused(format!("{what} does not fit into a Lease").into());
    let wall = |time: Option<WallTime>| {
        time.map(|t| Timestamp::from_microsecond(t.0).map(MicroTime)).transpose().map_err(|_| refused("a time"))
    };
    let seconds = record.duration.as_secs() + u64::from(record.duration.subsec_nanos() > 0);
    spec.holder_identity = Some(record.holder.as_deref().unwrap_or_default().to_owned());
    spec.lease_transitions = Some(i32::try_from(record.term.0).map_err(|_| refused("leaseTransitions"))?);
    spec.lease_duration_seconds = Some(i32::try_from(seconds.max(1)).map_err(|_| refused("leaseDuration"))?);
    spec.acquire_time = wall(record.acquired)?;
    spec.renew_time = wall(record.renewed)?;
    Ok(())
}

/// What an error means for the election.
fn explain(error: &kube::Error) -> StoreError {
    match error {
        kube::Error::Api(status) => {
            let text = || format!("{} {}: {}", status.code, status.reason, status.message).into();
            match status.code {
                // A replaced object that is gone is one that somebody changed.
                404 | 409 => StoreError::Conflict,
                408 | 429 | 500.. => StoreError::Unavailable(text()),
                _ => StoreError::Refused(text()),
            }
        }
        error => StoreError::Unavailable(chain(error).into()),
    }
}

/// An error with its causes: connection errors say little at the top.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text.push_str(": ");
            text.push_str(&inner_text);
        }
        cause = inner.source();
    }
    text
}
