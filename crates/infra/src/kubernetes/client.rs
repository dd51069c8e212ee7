//! The seam to the API server, and its implementation.

use std::{fmt, future::Future};

use http::{Method, Request, header};
use kube::{Client, Error};
use serde_json::{Value, json};

use super::object::{Live, Object, ObjectRef};

/// Writes show under this name in `managedFields`: that of the Go controller, so that what it applied and we do not is
/// taken away.
pub const FIELD_MANAGER: &str = "envoy-gateway";

/// Why a request did not do what it was to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// The object is another version now, or another object.
    #[error("the object has changed since it was read")]
    Conflict,
    /// There is one already.
    #[error("the object exists already")]
    Exists,
    /// It is not there.
    #[error("the object does not exist")]
    NotFound,
    /// The server refuses it, in these words; asking again as it is will not help.
    #[error("{0}")]
    Refused(String),
    /// The server cannot do it now, or did not answer.
    #[error("{0}")]
    Failed(String),
}

/// Reads and writes single objects. A fake of it is a map.
pub trait InfraClient: Send + Sync + 'static {
    /// The object now.
    fn read(&self, at: &ObjectRef) -> impl Future<Output = Result<Live, ClientError>> + Send;

    /// Creates it, by POST: one that is there already is not touched.
    fn create(&self, object: &Object) -> impl Future<Output = Result<Live, ClientError>> + Send;

    /// Applies it to that version and no other, by server-side apply. Fields of ours that it does not name are taken away.
    fn apply(&self, object: &Object, over: &Live) -> impl Future<Output = Result<Live, ClientError>> + Send;

    /// Deletes that version and no other.
    fn delete(&self, at: &ObjectRef, over: &Live) -> impl Future<Output = Result<(), ClientError>> + Send;
}

/// Objects on a real API server.
#[derive(Clone)]
pub struct KubeInfraClient(Client);

// === impl KubeInfraClient ===

impl KubeInfraClient {
    /// Writes with this client; give it one that lets nothing pass without a permit
    /// ([`election::kubernetes::PermitLayer`]).
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self(client)
    }

    async fn send(&self, method: Method, path: String, content: &str, body: Vec<u8>) -> Result<Value, ClientError> {
        let mut request = Request::builder().method(method).uri(path);
        if !content.is_empty() {
            request = request.header(header::CONTENT_TYPE, content);
        }
        let request = request.body(body).map_err(|e| ClientError::Failed(e.to_string()))?;
        match self.0.request::<Value>(request).await {
            Ok(answer) => Ok(answer),
            Err(Error::Api(status)) => Err(match (status.code, status.reason.as_str()) {
                (409, "AlreadyExists") => ClientError::Exists,
                (409, _) => ClientError::Conflict,
                (404, _) if status.details.as_ref().is_none_or(|d| d.kind != "namespaces") => ClientError::NotFound,
                (400..=404 | 422, _) => ClientError::Refused(format!("{} ({})", status.message, status.code)),
                (code, _) => ClientError::Failed(format!("{} ({code})", status.message)),
            }),
            Err(error) => Err(ClientError::Failed(error.to_string())),
        }
    }
}

impl fmt::Debug for KubeInfraClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KubeInfraClient")
    }
}

fn live(answer: Value) -> Result<Live, ClientError> {
    Live::from_tree(answer).ok_or_else(|| ClientError::Failed("the server's answer is no object".to_owned()))
}

/// Path of the collection that an object is in.
fn collection(at: &ObjectRef) -> String {
    let (_, version, plural) = at.kind.names();
    let root = if version.contains('/') { "apis" } else { "api" };
    format!("/{root}/{version}/namespaces/{}/{plural}", at.namespace)
}

fn path(at: &ObjectRef) -> String {
    format!("{}/{}", collection(at), at.name)
}

impl InfraClient for KubeInfraClient {
    async fn read(&self, at: &ObjectRef) -> Result<Live, ClientError> {
        live(self.send(Method::GET, path(at), "", Vec::new()).await?)
    }

    async fn create(&self, object: &Object) -> Result<Live, ClientError> {
        let path = format!("{}?fieldManager={FIELD_MANAGER}", collection(&object.at));
        live(self.send(Method::POST, path, "application/json", object.tree.to_string().into_bytes()).await?)
    }

    async fn apply(&self, object: &Object, over: &Live) -> Result<Live, ClientError> {
        let mut version = over.resource_version.to_string();
        if let Some(managed) = owned_by_apply(&over.tree) {
            // What was created by POST is owned by an update; an apply takes away only what was applied.
            let body = json!({"metadata": {
                "uid": &*over.uid, "resourceVersion": &*over.resource_version, "managedFields": managed,
            }});
            let path = format!("{}?fieldManager={FIELD_MANAGER}", path(&object.at));
            let content = "application/merge-patch+json";
            let answer = live(self.send(Method::PATCH, path, content, body.to_string().into_bytes()).await?)?;
            version = answer.resource_version.to_string();
        }
        let mut tree = object.tree.clone();
        tree["metadata"]["uid"] = (*over.uid).into();
        tree["metadata"]["resourceVersion"] = version.into();
        let path = format!("{}?fieldManager={FIELD_MANAGER}&force=true", path(&object.at));
        live(self.send(Method::PATCH, path, "application/apply-patch+yaml", tree.to_string().into_bytes()).await?)
    }

    async fn delete(&self, at: &ObjectRef, over: &Live) -> Result<(), ClientError> {
        let body = json!({
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Background",
            "preconditions": {"uid": &*over.uid, "resourceVersion": &*over.resource_version},
        });
        self.send(Method::DELETE, path(at), "application/json", body.to_string().into_bytes()).await.map(drop)
    }
}

/// `metadata.managedFields` with what our updates own given to our applies; `None` where our updates own nothing.
fn owned_by_apply(tree: &Value) -> Option<Value> {
    let entries = tree["metadata"]["managedFields"].as_array()?;
    let ours = |e: &Value, operation: &str| {
        e["manager"] == FIELD_MANAGER && e["operation"] == operation && e.get("subresource").is_none()
    };
    let updated: Vec<&Value> = entries.iter().filter(|e| ours(e, "Update")).collect();
    let first = (*updated.first()?).clone();
    let mut out: Vec<Value> = entries.iter().filter(|e| !ours(e, "Update")).cloned().collect();
    let at = match out.iter().position(|e| ours(e, "Apply")) {
        Some(at) => at,
        None => {
            let mut entry = first;
            entry["operation"] = "Apply".into();
            out.push(entry);
            out.len() - 1
        }
    };
    for entry in updated {
        unite(&mut out[at]["fieldsV1"], &entry["fieldsV1"]);
    }
    Some(out.into())
}

/// Fields of both.
fn unite(fields: &mut Value, more: &Value) {
    let Value::Object(more) = more else { return };
    for (name, below) in more {
        unite(&mut fields[name], below);
        if fields[name].is_null() {
            fields[name] = json!({});
        }
    }
}
