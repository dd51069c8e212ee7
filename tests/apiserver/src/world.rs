//! A cluster without nodes: an API server with our definitions, objects in it, and the audit log by object.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::{
    api::rbac::v1::ClusterRoleBinding, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    jiff::Timestamp,
};
use kube::{
    Api, Client, Config,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};
use testkit::apiserver::{ApiServer, Options};
use tokio::time::{Instant, sleep};

/// An API server, and an administrator's client.
#[derive(Debug)]
pub struct World {
    /// The server.
    pub server: ApiServer,
    client: Admin,
}

struct Admin(Client);

impl std::fmt::Debug for Admin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Admin")
    }
}

/// A write that the audit log tells.
#[derive(Clone, Debug)]
pub struct Written {
    /// Who.
    pub user: String,
    /// `patch`, `update` …
    pub verb: String,
    /// `httproutes ns/name`, with `/status` where it was for the status.
    pub what: String,
    /// HTTP status of the answer.
    pub code: u16,
}

// === impl World ===

impl World {
    /// Starts a server; the users of these names may do everything.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn start(bin: PathBuf, users: &[&str], limited: &[&str]) -> Result<Self> {
        Self::start_with(bin, users, limited, false).await
    }

    /// As [`World::start`]; `bodies` is as in [`Options::bodies`].
    ///
    /// # Errors
    /// When it does not start.
    pub async fn start_with(bin: PathBuf, users: &[&str], limited: &[&str], bodies: bool) -> Result<Self> {
        let names = users.iter().chain(limited).map(|u| (*u).to_owned()).collect();
        let server = ApiServer::start(Options { bin, users: names, logs: None, bodies }).await?;
        let world = Self { client: Admin(server.admin()?), server };
        let subjects: Vec<_> =
            users.iter().map(|u| json!({"kind": "User", "name": u, "apiGroup": "rbac.authorization.k8s.io"})).collect();
        let binding = json!({"metadata": {"name": "everything"}, "subjects": subjects,
            "roleRef": {"kind": "ClusterRole", "name": "cluster-admin", "apiGroup": "rbac.authorization.k8s.io"}});
        let api: Api<ClusterRoleBinding> = Api::all(world.client());
        api.create(&PostParams::default(), &serde_json::from_value(binding)?).await?;
        Ok(world)
    }

    /// The administrator's client.
    #[must_use]
    pub fn client(&self) -> Client {
        self.client.0.clone()
    }

    /// A client configuration of a user through any address.
    ///
    /// # Errors
    /// When it makes no configuration.
    pub async fn config(&self, user: &str, url: &str) -> Result<Config> {
        let kubeconfig = Kubeconfig::from_yaml(&self.server.kubeconfig(user, url))?;
        Ok(Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)
    }

    /// Installs those of our definitions whose kind is chosen, and waits until they are served.
    ///
    /// # Errors
    /// When the server refuses one.
    pub async fn define(&self, chosen: impl Fn(&str) -> bool) -> Result<()> {
        let all = api::gateway::definitions().into_iter().chain(api::envoygateway::definitions());
        let chosen: Vec<_> = all.filter(|d| chosen(&d.spec.names.kind)).collect();
        for definition in &chosen {
            self.define_as(definition.clone()).await?;
        }
        for definition in &chosen {
            self.served(definition).await?;
        }
        Ok(())
    }

    /// Installs or replaces one definition.
    ///
    /// # Errors
    /// When the server refuses it.
    pub async fn define_as(&self, mut definition: CustomResourceDefinition) -> Result<()> {
        let api: Api<CustomResourceDefinition> = Api::all(self.client());
        let name = definition.metadata.name.clone().context("a definition has a name")?;
        // The API group is protected: the annotation says that it was approved.
        let approved = (
            "api-approved.kubernetes.io".to_owned(),
            "https://github.com/kubernetes-sigs/gateway-api/pull/0".to_owned(),
        );
        definition.metadata.annotations.get_or_insert_default().extend([approved]);
        let patch = Patch::Apply(&definition);
        api.patch(&name, &PatchParams::apply("tests").force(), &patch).await.with_context(|| name.clone())?;
        Ok(())
    }

    /// Waits until a definition is served.
    ///
    /// # Errors
    /// When it is not within 30 s.
    pub async fn served(&self, definition: &CustomResourceDefinition) -> Result<()> {
        let names = &definition.spec.names;
        let version = definition.spec.versions.iter().find(|v| v.storage).context("a stored version")?;
        let path = format!("/apis/{}/{}/{}", definition.spec.group, version.name, names.plural);
        let client = self.client();
        until(Duration::from_secs(30), &format!("{} is served", names.kind), async || {
            let request = http::Request::get(format!("{path}?limit=1")).body(Vec::new())?;
            Ok(client.request_text(request).await.is_ok())
        })
        .await
    }

    /// Removes a definition with all objects of the kind.
    ///
    /// # Errors
    /// When the server refuses.
    pub async fn undefine(&self, name: &str) -> Result<()> {
        let api: Api<CustomResourceDefinition> = Api::all(self.client());
        api.delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Creates objects, in order.
    ///
    /// # Errors
    /// When the server refuses one.
    pub async fn create(&self, objects: &[Value]) -> Result<()> {
        for object in objects {
            let path = collection(object)?;
            let request = http::Request::post(path).header("content-type", "application/json");
            let request = request.body(object.to_string().into_bytes())?;
            self.client().request::<Value>(request).await.with_context(|| object.to_string())?;
        }
        Ok(())
    }

    /// Creates a namespace with labels, or labels the one that is there.
    ///
    /// # Errors
    /// When the server refuses.
    pub async fn namespace(&self, name: &str, labels: Value) -> Result<()> {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}});
        let api: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(self.client());
        let patch = Patch::Apply(&object);
        api.patch(name, &PatchParams::apply("tests").force(), &patch).await?;
        Ok(())
    }

    /// A JSON merge patch of an object, or of its status.
    ///
    /// # Errors
    /// When the server refuses.
    pub async fn patch(&self, object: &Value, part: &str, patch: Value) -> Result<Value> {
        let request = http::Request::patch(format!("{}{part}", path(object)?));
        let request =
            request.header("content-type", "application/merge-patch+json").body(patch.to_string().into_bytes())?;
        Ok(self.client().request::<Value>(request).await?)
    }

    /// An object now.
    ///
    /// # Errors
    /// When it is not there.
    pub async fn get(&self, object: &Value) -> Result<Value> {
        Ok(self.client().request::<Value>(http::Request::get(path(object)?).body(Vec::new())?).await?)
    }

    /// Deletes an object; one that is not there is fine.
    ///
    /// # Errors
    /// When the server refuses.
    pub async fn delete(&self, object: &Value) -> Result<()> {
        match self.client().request::<Value>(http::Request::delete(path(object)?).body(Vec::new())?).await {
            Err(kube::Error::Api(s)) if s.code == 404 => Ok(()),
            other => Ok(other.map(|_| ())?),
        }
    }

    /// Writes of a user, in order, as the audit log tells them.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn written(&self, user: &str) -> Result<Vec<Written>> {
        let audit = self.server.audit()?;
        Ok(audit
            .into_iter()
            .filter(|e| e.user.username == user)
            .filter_map(|e| {
                let o = e.object_ref?;
                let part = if o.subresource.is_empty() { String::new() } else { format!("/{}", o.subresource) };
                Some(Written {
                    user: e.user.username,
                    verb: e.verb,
                    what: format!("{} {}/{}{part}", o.resource, o.namespace, o.name),
                    code: e.response_status.map_or(0, |s| s.code),
                })
            })
            .collect())
    }
}

/// Waits until something holds.
///
/// # Errors
/// When it does not within `limit`, or cannot be told.
pub async fn until(limit: Duration, what: &str, mut holds: impl AsyncFnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + limit;
    while !holds().await? {
        if Instant::now() > deadline {
            bail!("not within {limit:?}: {what}");
        }
        sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// Number of writes by object.
#[must_use]
pub fn by_object(written: &[Written]) -> BTreeMap<String, usize> {
    let mut out = BTreeMap::new();
    for w in written {
        *out.entry(w.what.clone()).or_default() += 1;
    }
    out
}

/// Waits for the beginning of the next second: creation times are kept in whole seconds.
pub async fn next_second() {
    let nanos = u64::try_from(Timestamp::now().subsec_nanosecond()).unwrap_or_default();
    sleep(Duration::from_nanos(1_000_000_000 - nanos)).await;
}

/// Path of the objects of a kind in the object's namespace.
///
/// # Errors
/// When the object has no kind that the gateway reads.
pub fn collection(object: &Value) -> Result<String> {
    let text = |at: &str| object.pointer(at).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (text("/apiVersion"), text("/kind"));
    ensure!(!api_version.is_empty() && !kind.is_empty(), "no kind: {object}");
    let lower = kind.to_lowercase();
    let plural = match lower.strip_suffix('y') {
        Some(stem) if !stem.ends_with('a') => format!("{stem}ies"),
        _ if lower.ends_with('s') => format!("{lower}es"),
        _ => format!("{lower}s"),
    };
    let root = if api_version.contains('/') { "apis" } else { "api" };
    let global = matches!(kind, "Namespace" | "Node" | "GatewayClass");
    let namespace = match text("/metadata/namespace") {
        _ if global => String::new(),
        "" => "/namespaces/default".to_owned(),
        namespace => format!("/namespaces/{namespace}"),
    };
    Ok(format!("/{root}/{api_version}{namespace}/{plural}"))
}

fn path(object: &Value) -> Result<String> {
    let name = object.pointer("/metadata/name").and_then(Value::as_str).context("no name")?;
    Ok(format!("{}/{name}", collection(object)?))
}
