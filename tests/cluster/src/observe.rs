//! A look at objects where a command cannot tell: by watches, so that nothing is asked again and again.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, Result};
use k8s_openapi::api::{apps::v1::Deployment, coordination::v1::Lease, core::v1::Pod};
use kube::{
    Api, Client, ResourceExt,
    api::ListParams,
    core::{ApiResource, DynamicObject, GroupVersionKind},
    runtime::wait::await_condition,
};
use serde_json::Value;
use tokio::time::{Instant, timeout};

/// Label on everything that belongs to a Gateway's fleet.
pub const OWNER: &str = "gateway.envoyproxy.io/owning-gateway-name";

/// Looks at a cluster.
#[derive(Clone)]
pub struct Observer {
    client: Client,
}

/// What of a fleet changes when it is rolled out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fleet {
    /// Deployments: generation and annotations of the pod template.
    pub deployments: BTreeMap<String, (i64, BTreeMap<String, String>)>,
    /// Pods: UID and how often a container of theirs was started again.
    pub pods: BTreeMap<String, (String, i32)>,
}

// === impl Observer ===

impl std::fmt::Debug for Observer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Observer").finish_non_exhaustive()
    }
}

impl Observer {
    /// As the user of `KUBECONFIG`.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn from_env() -> Result<Self> {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        Ok(Self { client: Client::try_default().await? })
    }

    /// The client.
    #[must_use]
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Waits until an object of Gateway API is as `is` says; hands it back and how long that took.
    ///
    /// # Errors
    /// When it is not within `limit`.
    pub async fn until(
        &self,
        kind: &str,
        namespace: &str,
        name: &str,
        limit: Duration,
        is: impl Fn(&Value) -> bool,
    ) -> Result<(Value, Duration)> {
        let gvk = GroupVersionKind::gvk("gateway.networking.k8s.io", "v1", kind);
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), namespace, &ApiResource::from_gvk(&gvk));
        let from = Instant::now();
        let seen = |o: Option<&DynamicObject>| o.is_some_and(|o| is(&o.data));
        let object = timeout(limit, await_condition(api.clone(), name, seen)).await;
        match object {
            Ok(object) => Ok((object?.map(|o| o.data).unwrap_or_default(), from.elapsed())),
            Err(_) => {
                let now = api.get_opt(name).await?.map(|o| o.data["status"].to_string());
                anyhow::bail!("{kind} {namespace}/{name} is not so within {limit:?}; its status: {now:?}")
            }
        }
    }

    /// What a Gateway's fleet is now.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub async fn fleet(&self, gateway: &str) -> Result<Fleet> {
        let owned = ListParams::default().labels(&format!("{OWNER}={gateway}"));
        let mut fleet = Fleet::default();
        for d in Api::<Deployment>::all(self.client.clone()).list(&owned).await? {
            let template = d.spec.as_ref().and_then(|s| s.template.metadata.as_ref()?.annotations.clone());
            fleet.deployments.insert(d.name_any(), (d.metadata.generation.unwrap_or(0), template.unwrap_or_default()));
        }
        for p in Api::<Pod>::all(self.client.clone()).list(&owned).await? {
            let containers = p.status.as_ref().and_then(|s| s.container_statuses.clone()).unwrap_or_default();
            let restarts = containers.iter().map(|c| c.restart_count).sum();
            fleet.pods.insert(p.name_any(), (p.uid().unwrap_or_default(), restarts));
        }
        Ok(fleet)
    }

    /// Who holds the lease; `None` while nobody does.
    ///
    /// # Errors
    /// When the API server does not answer.
    pub async fn holder(&self, namespace: &str, lease: &str) -> Result<Option<String>> {
        let lease = Api::<Lease>::namespaced(self.client.clone(), namespace).get(lease).await?;
        Ok(holder(&lease))
    }

    /// Waits until somebody else than `old` holds the lease; who, and how long that took.
    ///
    /// # Errors
    /// When nobody does within `limit`.
    pub async fn next_holder(
        &self,
        namespace: &str,
        lease: &str,
        old: &str,
        limit: Duration,
    ) -> Result<(String, Duration)> {
        let api: Api<Lease> = Api::namespaced(self.client.clone(), namespace);
        let from = Instant::now();
        let other = |l: Option<&Lease>| l.and_then(holder).is_some_and(|h| h != old);
        let lease = timeout(limit, await_condition(api, lease, other)).await;
        let lease = lease.with_context(|| format!("nobody took the lease over within {limit:?}"))??;
        Ok((lease.as_ref().and_then(holder).unwrap_or_default(), from.elapsed()))
    }
}

// === impl Fleet ===

impl Fleet {
    /// What differs, in words; empty when there was no rollout.
    #[must_use]
    pub fn changes(&self, after: &Self) -> Vec<String> {
        let mut changes = Vec::new();
        for (name, before) in &self.deployments {
            match after.deployments.get(name) {
                Some(now) if now == before => {}
                Some((generation, _)) => {
                    changes.push(format!("Deployment {name}: generation {} -> {generation}", before.0))
                }
                None => changes.push(format!("Deployment {name} is gone")),
            }
        }
        for (name, before) in &self.pods {
            match after.pods.get(name) {
                Some(now) if now == before => {}
                Some((_, restarts)) => changes.push(format!("pod {name}: {restarts} restarts")),
                None => changes.push(format!("pod {name} was replaced")),
            }
        }
        let new = after.pods.keys().filter(|n| !self.pods.contains_key(*n)).map(|n| format!("pod {n} is new"));
        changes.extend(new);
        changes
    }
}

fn holder(lease: &Lease) -> Option<String> {
    lease.spec.as_ref()?.holder_identity.clone().filter(|h| !h.is_empty())
}

/// Whether a condition of this type has this status in a list of conditions.
#[must_use]
pub fn has(conditions: &Value, kind: &str, status: &str) -> bool {
    let list = conditions.as_array().map(Vec::as_slice).unwrap_or_default();
    list.iter().any(|c| c["type"] == kind && c["status"] == status)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fleet(generation: i64, pod: &str, restarts: i32) -> Fleet {
        Fleet {
            deployments: [("envoy".into(), (generation, BTreeMap::new()))].into(),
            pods: [(pod.into(), ("uid".into(), restarts))].into(),
        }
    }

    #[test]
    fn a_rollout_is_told_from_rest() {
        let before = fleet(1, "a", 0);
        assert!(before.changes(&before.clone()).is_empty());
        assert_eq!(before.changes(&fleet(2, "a", 0)), ["Deployment envoy: generation 1 -> 2"]);
        assert_eq!(before.changes(&fleet(1, "a", 1)), ["pod a: 1 restarts"]);
        assert_eq!(before.changes(&fleet(1, "b", 0)), ["pod a was replaced", "pod b is new"]);
        assert_eq!(before.changes(&Fleet::default()), ["Deployment envoy is gone", "pod a was replaced"]);
    }

    #[test]
    fn conditions_are_found_by_type_and_status() {
        let conditions = json!([{"type": "Accepted", "status": "True"}, {"type": "Programmed", "status": "False"}]);
        assert!(has(&conditions, "Accepted", "True"));
        assert!(!has(&conditions, "Programmed", "True"));
        assert!(!has(&Value::Null, "Accepted", "True"));
    }
}
