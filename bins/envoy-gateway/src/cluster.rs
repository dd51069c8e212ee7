//! The cluster as source, and the writers of statuses behind their gates.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use api::config::{EnvoyGateway, KubernetesProvider, WatchMode, WatchModeType};
use election::{
    RoleWatch,
    kubernetes::{PermitLayer, ReadOnlyLayer},
};
use kube::client::ClientBuilder;
use provider::cluster::{ClusterHandle, ClusterOptions, ClusterSource, Scope};
use reconcile::{Backoff, Gated, Wanted};
use resources::{Kind, ObjectKey};
use status::{Claims, Facts, Finalizers, KubeStatusClient, StatusWriter};
use tower::limit::RateLimitLayer;

use crate::{cli::CommonArgs, convert, counted::Applied, leader};

/// A connection without a byte for this long is given up: longer than any watch is open.
const SILENCE: Duration = Duration::from_secs(60);
/// A connection that is not there by then is begun anew: packets that get lost are sent again ever more seldom.
const CONNECT: Duration = Duration::from_secs(3);
/// Statuses that are written at once.
const WRITES: usize = 8;

/// Secrets of the control plane that translation may need although no object names them.
const OWN_SECRETS: [&str; 2] = ["envoy", "envoy-oidc-hmac"];

/// A cluster that is read, and whose statuses are written.
pub(crate) struct Cluster {
    /// Reads it.
    pub(crate) source: ClusterSource,
    /// Looks at what was read.
    pub(crate) handle: ClusterHandle,
    /// What talks to it.
    pub(crate) clients: Clients,
    writes: KubeStatusClient,
    controller: Arc<str>,
}

/// Clients of the cluster, under one limit of their rate.
#[derive(Clone)]
pub(crate) struct Clients {
    /// Lets no write pass.
    pub(crate) reads: kube::Client,
    /// Lets no write pass without a permit.
    pub(crate) writes: kube::Client,
    /// What was written of fleets.
    pub(crate) applied: Arc<Applied>,
}

/// What writes, as handles and as work.
pub(crate) struct Writers {
    /// Writes statuses.
    pub(crate) statuses: Gated<StatusWriter<KubeStatusClient, ClusterHandle>>,
    /// Claims GatewayClasses.
    pub(crate) claims: Claims<KubeStatusClient, ClusterHandle>,
    /// Writes the finalizers of GatewayClasses.
    pub(crate) finalizers: Gated<Finalizers<KubeStatusClient, ClusterHandle>>,
    /// Figures of the former.
    pub(crate) counters: Arc<status::Counters>,
    /// Statuses that others keep undoing.
    pub(crate) contested: status::Contested,
    /// Classes that are to have a finalizer.
    pub(crate) classes: Wanted<ObjectKey, ()>,
}

impl Cluster {
    /// Reads the settings; nothing is asked of the cluster yet.
    pub(crate) async fn open(settings: &EnvoyGateway, args: &CommonArgs) -> Result<Self> {
        let custom = settings.provider.custom.as_ref().and_then(|c| c.resource.kubernetes.as_deref());
        let provider = custom.unwrap_or(&settings.provider.kubernetes);
        let mut config = leader::kube_config(args).await?;
        // Every failure is seen, counted and tried again by those who ask.
        config.default_retry = false;
        config.read_timeout = Some(SILENCE);
        config.connect_timeout = Some(CONNECT);
        let limit = &provider.client.rate_limit;
        let (qps, burst) = (limit.qps.max(1), limit.burst.max(1));
        let rate = RateLimitLayer::new(burst.into(), Duration::from_secs_f64(f64::from(burst) / f64::from(qps)));
        let permits = PermitLayer::new(settings::election(&provider.leader_election).write_timeout);
        // The limit lies beneath the check: what waits for it is checked when it leaves.
        let builder = || ClientBuilder::try_from(config.clone()).context("the kubeconfig makes no client");
        let reads = builder()?.with_layer(&rate).with_layer(&ReadOnlyLayer::new()).build();
        let writes = builder()?.with_layer(&rate).with_layer(&permits).build();
        let namespace = convert::controller_namespace();
        let mut always: BTreeSet<ObjectKey> =
            OWN_SECRETS.iter().map(|name| ObjectKey::new(Kind::Secret, &namespace, name)).collect();
        // What the configured defaults of proxies refer to, no object does.
        if let Some(defaults) = &settings.envoy_proxy {
            always.extend(provider::cluster::references(&namespace, &serde_json::to_value(defaults)?));
        }
        let controller = Some(settings.gateway.controller_name.as_str().into());
        let options = ClusterOptions { scope: scope(provider, &namespace)?, controller, always };
        let (source, handle) = ClusterSource::new(reads.clone(), options);
        Ok(Self {
            source,
            handle,
            writes: KubeStatusClient::new(writes.clone()),
            clients: Clients { reads, writes, applied: Arc::default() },
            controller: settings.gateway.controller_name.as_str().into(),
        })
    }

    /// The writers, behind gates.
    pub(crate) fn writers(
        &self,
        statuses: &Wanted<ObjectKey, Arc<ir::Status>>,
        facts: Facts,
        role: &RoleWatch,
    ) -> Writers {
        let namespace = convert::controller_namespace();
        let (controller, seen) = (self.controller.clone(), self.handle.clone());
        let claims = Claims::new(self.writes.clone(), seen, controller.clone(), &namespace, facts.clone());
        let writer = StatusWriter::new(self.writes.clone(), self.handle.clone(), controller, facts);
        let (counters, contested) = (writer.counters(), writer.contested());
        let classes = Wanted::new();
        let finalizers = Finalizers::new(self.writes.clone(), self.handle.clone(), self.controller.clone());
        Writers {
            statuses: Gated::new(writer, statuses.clone(), role.clone(), Backoff::default()).with_concurrency(WRITES),
            finalizers: Gated::new(finalizers, classes.clone(), role.clone(), Backoff::default()),
            claims,
            counters,
            contested,
            classes,
        }
    }

    /// Has the writers look again at what others wrote, and keeps the classes that are in use.
    pub(crate) fn follow(
        &self,
        statuses: Wanted<ObjectKey, Arc<ir::Status>>,
        classes: Wanted<ObjectKey, ()>,
    ) -> impl Future<Output = ()> + use<> {
        let (handle, controller) = (self.handle.clone(), self.controller.clone());
        async move {
            handle.synced().await;
            let mut in_use = BTreeSet::new();
            let mut touched = BTreeSet::from([ObjectKey::new(Kind::GatewayClass, "", "")]);
            loop {
                if touched.iter().any(|k| matches!(k.kind, Kind::Gateway | Kind::GatewayClass)) {
                    let now = status::classes_in_use(&handle, &controller);
                    let gone = in_use.iter().filter(|k| !now.contains(*k)).map(|k: &ObjectKey| (k.clone(), None));
                    let new = now.iter().filter(|k| !in_use.contains(*k)).map(|k| (k.clone(), Some(())));
                    classes.publish(gone.chain(new).collect::<Vec<_>>());
                    classes.complete();
                    in_use = now;
                }
                touched = handle.touched().await;
                statuses.recheck(&touched);
                classes.recheck(&touched);
            }
        }
    }
}

/// Namespaces that are read: those that the settings say, and the control plane's own.
fn scope(provider: &KubernetesProvider, own: &str) -> Result<Scope> {
    Ok(match &provider.watch {
        Some(WatchMode { type_: Some(WatchModeType::Namespaces), namespaces, .. }) => {
            Scope::Namespaces(namespaces.iter().cloned().chain([own.to_owned()]).collect())
        }
        Some(WatchMode {
            type_: Some(WatchModeType::NamespaceSelector), namespace_selector: Some(selector), ..
        }) => Scope::selected(selector.clone(), own).context("provider.kubernetes.watch")?,
        _ => Scope::All,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

    use super::*;

    #[test]
    fn the_settings_say_which_namespaces_are_read() {
        let of =
            |watch: Option<WatchMode>| scope(&KubernetesProvider { watch, ..KubernetesProvider::default() }, "own");
        assert!(matches!(of(None), Ok(Scope::All)));
        let named = WatchMode {
            type_: Some(WatchModeType::Namespaces),
            namespaces: vec!["a".to_owned(), "b".to_owned()],
            ..WatchMode::default()
        };
        let Ok(Scope::Namespaces(names)) = of(Some(named)) else { panic!("names") };
        assert_eq!(names, ["a", "b", "own"].map(str::to_owned).into());
        let labels = BTreeMap::from([("team".to_owned(), "a".to_owned())]);
        let chosen = WatchMode {
            type_: Some(WatchModeType::NamespaceSelector),
            namespace_selector: Some(LabelSelector { match_labels: Some(labels), ..LabelSelector::default() }),
            ..WatchMode::default()
        };
        assert!(matches!(of(Some(chosen)), Ok(Scope::Selected(_))));
    }
}
