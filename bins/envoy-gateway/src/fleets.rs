//! Fleets as objects of a cluster: what writes them, watches them and tells how they are.

use std::{collections::BTreeSet, path::PathBuf, pin::Pin, sync::Arc, time::Duration};

use api::config::EnvoyGateway;
use envoy::bootstrap::{Bootstrap, XdsServer};
use infra::kubernetes::{Facts, FleetKey, Fleets, KubeInfraClient, Options, Troubles, Watches, Writer, tell};
use ir::{ConditionStatus, Proxy};
use provider::cluster::ClusterHandle;
use reconcile::{Backoff, Gated, Wanted};
use resources::{Kind, Object, Observed};
use status::{Address, FleetFacts};
use tokio::sync::watch;

use crate::{cluster::Cluster, convert, counted::Counted};

/// Image of this program where the settings name none; charts name it.
const IMAGE: &str = concat!("localhost/envoy-gateway:", env!("CARGO_PKG_VERSION"));
/// Fleets that are written at once.
const WRITES: usize = 4;
/// How often the file with the CAs is looked at.
const LOOK: Duration = Duration::from_secs(20);

/// Wanted fleets by group.
pub(crate) type WantedFleets = Wanted<String, Arc<Proxy>>;

/// A task that has a name.
pub(crate) type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

type MakeBootstrap = fn(&Proxy, &Options) -> Result<String, String>;

/// What runs for fleets.
#[derive(Debug)]
pub(crate) struct InCluster {
    /// Watches their objects.
    pub(crate) watches: Watches,
    /// Writes them.
    pub(crate) gate: Gated<Writer<Counted<KubeInfraClient>, MakeBootstrap>>,
    fleets: Fleets,
    troubles: Troubles,
    options: watch::Sender<Arc<Options>>,
    wanted: WantedFleets,
}

// === impl InCluster ===

impl InCluster {
    /// Nothing is asked of the cluster yet.
    pub(crate) fn new(
        cluster: &Cluster,
        settings: &EnvoyGateway,
        wanted: &WantedFleets,
        role: &election::RoleWatch,
    ) -> Self {
        let (options, clients) = (options(settings), &cluster.clients);
        // Where fleets may be: that of the control plane, or those that are watched, of which none named means all.
        let watched = settings.provider.kubernetes.watch.as_ref().map(|w| w.namespaces.clone()).unwrap_or_default();
        let namespaces = match options.gateway_namespaces {
            true if watched.is_empty() => Vec::new(),
            true => {
                watched.into_iter().chain([options.namespace.clone()]).collect::<BTreeSet<_>>().into_iter().collect()
            }
            false => vec![options.namespace.clone()],
        };
        let (watches, fleets) = Watches::new(clients.reads.clone(), namespaces);
        let controller = options.controller.clone();
        let (options, current) = watch::channel(Arc::new(options));
        let client = Counted::new(KubeInfraClient::new(clients.writes.clone()), clients.applied.clone());
        let writer =
            Writer::new(client, fleets.clone(), wanted.clone(), bootstrap as MakeBootstrap, current, role.clone());
        let handle = cluster.handle.clone();
        let writer = writer.with_claims(move |fleet| is_claimed(&handle, &controller, fleet));
        let troubles = writer.troubles();
        let gate = Gated::new(writer, wanted.clone(), role.clone(), Backoff::default()).with_concurrency(WRITES);
        Self { watches, gate, fleets, troubles, options, wanted: wanted.clone() }
    }

    /// What goes wrong.
    pub(crate) fn troubles(&self) -> Troubles {
        self.troubles.clone()
    }

    /// The work, as named tasks: writing begins when it is known what there is and which CAs proxies are to trust. `stop`
    /// resolves when writing is to end.
    pub(crate) fn tasks<F: Future<Output = ()> + Send + 'static>(
        self,
        ca: PathBuf,
        changed: watch::Receiver<u64>,
        facts: status::Facts,
        live: impl Future<Output = ()> + Send + 'static,
        stop: impl Fn() -> F,
    ) -> [(&'static str, Task); 4] {
        let Self { watches, gate, fleets, troubles, options, wanted } = self;
        let publish = move |gateway, told: Option<Facts>| facts.publish(gateway, told.map(fleet_facts));
        let telling = tell(fleets.clone(), wanted.clone(), changed, troubles, publish);
        let mut current = options.subscribe();
        let (ending, stopping) = (stop(), stop());
        let gate = async move {
            tokio::select! {
                () = ending => return,
                () = async {
                    live.await;
                    fleets.synced().await;
                    // The sender lives in the task that reads the file.
                    let _ = current.wait_for(|o| !o.ca.is_empty()).await;
                } => {}
            }
            gate.run(stopping).await;
        };
        let (over, done) = (stop(), stop());
        [
            ("infra gate", Box::pin(gate)),
            (
                "fleet facts",
                Box::pin(async move {
                    tokio::select! { () = telling => {}, () = over => {} }
                }),
            ),
            (
                "fleet files",
                Box::pin(async move {
                    tokio::select! { () = follow(ca, options, wanted) => {}, () = done => {} }
                }),
            ),
            ("fleet watches", Box::pin(watches.run(stop()))),
        ]
    }
}

/// Reads the CAs again and again: they change when certificates are renewed.
async fn follow(file: PathBuf, options: watch::Sender<Arc<Options>>, wanted: WantedFleets) {
    let mut fault = String::new();
    loop {
        match tokio::fs::read_to_string(&file).await {
            Ok(ca) => {
                fault.clear();
                let changed = options.send_if_modified(|o| {
                    let changed = o.ca != ca;
                    if changed {
                        *o = Arc::new(Options { ca, ..(**o).clone() });
                    }
                    changed
                });
                if changed {
                    let all: Vec<String> = wanted.values().into_keys().collect();
                    wanted.recheck(&all);
                }
            }
            Err(e) if fault != e.to_string() => {
                fault = e.to_string();
                tracing::warn!(file = %file.display(), error = %e, "the CAs for proxies cannot be read; trying again");
            }
            Err(_) => {}
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Whether there is a Gateway of the controller's classes that this is the fleet of, alone or with the others of its class.
fn is_claimed(handle: &ClusterHandle, controller: &str, fleet: &FleetKey) -> bool {
    let classes = status::classes_in_use(handle, controller);
    let class_of = |key: &resources::ObjectKey| match handle.observed(key)?.object? {
        Object::Gateway(gateway) => Some(gateway.spec.gateway_class_name.clone()),
        _ => None,
    };
    classes.iter().any(|class| FleetKey::of_group(&class.name) == *fleet)
        || handle.keys(Kind::Gateway).iter().any(|key| {
            FleetKey::of_group(&format!("{}/{}", key.namespace, key.name)) == *fleet
                && class_of(key).is_some_and(|name| classes.iter().any(|class| *class.name == *name))
        })
}

/// How fleets are run by these settings; which CAs their proxies trust is read later.
pub(crate) fn options(settings: &EnvoyGateway) -> Options {
    Options {
        dns_domain: convert::dns_domain(),
        ..Options::from_settings(settings, convert::controller_namespace(), IMAGE)
    }
}

fn bootstrap(proxy: &Proxy, options: &Options) -> Result<String, String> {
    let server = XdsServer::in_cluster(&options.xds_host(), options.gateway_namespaces);
    Bootstrap::text_of_fleet(proxy, server, options.zones).map_err(|e| format!("EnvoyProxy: {e}"))
}

fn fleet_facts(told: Facts) -> FleetFacts {
    FleetFacts {
        addresses: told.addresses.into_iter().map(|(kind, value)| Address { kind, value }).collect(),
        status: if told.programmed { ConditionStatus::True } else { ConditionStatus::False },
        reason: told.reason,
        message: told.message,
    }
}
