//! The seam to the API server, and its implementation.

use std::{fmt, future::Future, sync::Arc};

use http::{Method, Request, header};
use kube::{Client, Error};
use resources::{ObjectKey, Seen};
use serde_json::Value;

/// Writes show under this name in `managedFields`: that of the Go controller, so that its entries go on.
const FIELD_MANAGER: &str = "envoy-gateway";

/// Why a request did not do what it was to do.
#[derive(Debug, thiserror::Error)]
pub enum StatusError {
    /// The object is another version now: read it and compare again.
    #[error("the object has changed since it was read")]
    Conflict,
    /// The object, or its kind, is not there.
    #[error("the object does not exist")]
    NotFound,
    /// Others replace that status again and again: it is written ever more seldom.
    #[error("others replace it again and again; it is written again in {0:?}")]
    Contested(std::time::Duration),
    /// The server refused for another reason, or did not answer.
    #[error("{0}")]
    Other(String),
}

/// Which part of an object a patch is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The object itself (finalizers, claims).
    Object,
    /// Its status.
    Status,
}

/// Reads and patches single objects. A fake of it is a map.
pub trait StatusClient: Send + Sync + 'static {
    /// The object now; `like` says where it is served.
    fn read(&self, key: &ObjectKey, like: &Seen) -> impl Future<Output = Result<Seen, StatusError>> + Send;

    /// A JSON merge patch (RFC 7386) of that version of the object, and no other; answers with what it is then.
    fn patch(
        &self,
        key: &ObjectKey,
        part: Part,
        over: &Seen,
        body: Value,
    ) -> impl Future<Output = Result<Seen, StatusError>> + Send;
}

/// Statuses on a real API server.
#[derive(Clone)]
pub struct KubeStatusClient(Client);

// === impl KubeStatusClient ===

impl KubeStatusClient {
    /// Writes with this client; give it one that lets nothing pass without a permit
    /// ([`election::kubernetes::gated_client`]).
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self(client)
    }

    async fn request(&self, method: Method, path: String, body: Vec<u8>, like: &Seen) -> Result<Seen, StatusError> {
        let patch = method == Method::PATCH;
        let mut request = Request::builder().method(method).uri(path);
        if patch {
            request = request.header(header::CONTENT_TYPE, "application/merge-patch+json");
        }
        let request = request.body(body).map_err(|e| StatusError::Other(e.to_string()))?;
        match self.0.request::<Value>(request).await {
            Ok(object) => Ok(seen(&object, like)),
            Err(Error::Api(status)) if status.code == 409 => Err(StatusError::Conflict),
            Err(Error::Api(status)) if status.code == 404 => Err(StatusError::NotFound),
            Err(Error::Api(status)) => Err(StatusError::Other(format!("{} ({})", status.message, status.code))),
            Err(error) => Err(StatusError::Other(error.to_string())),
        }
    }
}

impl fmt::Debug for KubeStatusClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KubeStatusClient")
    }
}

impl StatusClient for KubeStatusClient {
    async fn read(&self, key: &ObjectKey, like: &Seen) -> Result<Seen, StatusError> {
        self.request(Method::GET, path(key, like), Vec::new(), like).await
    }

    async fn patch(&self, key: &ObjectKey, part: Part, over: &Seen, body: Value) -> Result<Seen, StatusError> {
        let part = match part {
            Part::Object => "",
            Part::Status => "/status",
        };
        let path = format!("{}{part}?fieldManager={FIELD_MANAGER}", path(key, over));
        self.request(Method::PATCH, path, body.to_string().into_bytes(), over).await
    }
}

fn path(key: &ObjectKey, like: &Seen) -> String {
    let root = if key.kind.group().is_empty() { "api" } else { "apis" };
    let namespace = match &*key.namespace {
        "" => String::new(),
        namespace => format!("/namespaces/{namespace}"),
    };
    format!("/{root}/{}{namespace}/{}/{}", like.api_version, like.plural, key.name)
}

/// What an answer says of the object; the object itself stays what the watch said.
fn seen(object: &Value, like: &Seen) -> Seen {
    let text = |field: &str| -> Arc<str> { object["metadata"][field].as_str().unwrap_or_default().into() };
    let finalizers = object["metadata"]["finalizers"].as_array().into_iter().flatten();
    Seen {
        uid: text("uid"),
        resource_version: text("resourceVersion"),
        status: object.get("status").map(|s| s.to_string().into()),
        finalizers: finalizers.filter_map(|f| f.as_str().map(str::to_owned)).collect(),
        deleting: object["metadata"].get("deletionTimestamp").is_some(),
        ..like.clone()
    }
}

#[cfg(test)]
mod tests {
    use resources::Kind;
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_and_answers() {
        let like = Seen {
            api_version: "gateway.networking.k8s.io/v1".into(),
            plural: "httproutes".into(),
            uid: "u".into(),
            resource_version: "1".into(),
            status: None,
            finalizers: Arc::new([]),
            deleting: false,
            object: None,
        };
        let key = ObjectKey::new(Kind::HttpRoute, "ns", "r");
        assert_eq!(path(&key, &like), "/apis/gateway.networking.k8s.io/v1/namespaces/ns/httproutes/r");
        let class = Seen { plural: "gatewayclasses".into(), ..like.clone() };
        let key = ObjectKey::new(Kind::GatewayClass, "", "c");
        assert_eq!(path(&key, &class), "/apis/gateway.networking.k8s.io/v1/gatewayclasses/c");
        let answer = json!({"metadata": {"uid": "u", "resourceVersion": "9", "finalizers": ["f"], "deletionTimestamp": "now"},
            "status": {"a": 1}});
        let seen = seen(&answer, &like);
        assert_eq!((&*seen.resource_version, seen.status.as_deref(), seen.deleting), ("9", Some(r#"{"a":1}"#), true));
        assert_eq!(*seen.finalizers, ["f".to_owned()]);
    }
}
