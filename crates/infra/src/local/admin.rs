//! Envoy's admin interface, as far as running it needs it.
//!
//! Source: Envoy's documentation of the administration interface (`/ready`, `/healthcheck/fail`, `/drain_listeners`,
//! `/stats`, `/listeners`).

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::TokioIo;
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

/// No answer may take longer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Where Envoy's admin interface listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdminAddress {
    /// A TCP address.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

impl AdminAddress {
    /// Parses what Envoy writes to `--admin-address-path`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if let Ok(addr) = text.parse() {
            return Some(Self::Tcp(addr));
        }
        (text.starts_with('/')).then(|| Self::Unix(PathBuf::from(text)))
    }

    /// Reads it from the file that Envoy writes when the interface listens.
    pub(super) fn read(path: &Path) -> Option<Self> {
        std::fs::read_to_string(path).ok().and_then(|text| Self::parse(&text))
    }
}

impl fmt::Display for AdminAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(addr) => write!(f, "http://{addr}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// The admin interface did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// It cannot be reached.
    #[error("{address}: {source}")]
    Connect {
        /// Where it should be.
        address: AdminAddress,
        /// Why not.
        source: std::io::Error,
    },
    /// The exchange failed.
    #[error("{path}: {source}")]
    Http {
        /// What was asked for.
        path: String,
        /// Why not.
        source: hyper::Error,
    },
    /// No answer within 5 s.
    #[error("{path}: no answer within {TIMEOUT:?}")]
    Timeout {
        /// What was asked for.
        path: String,
    },
    /// It answered with something else than 200.
    #[error("{path}: status {status}: {body}")]
    Status {
        /// What was asked for.
        path: String,
        /// The answer's status.
        status: StatusCode,
        /// The answer's text.
        body: String,
    },
    /// It answered with something that is not what its documentation says.
    #[error("{path}: not understood: {why}")]
    Answer {
        /// What was asked for.
        path: String,
        /// Why not.
        why: String,
    },
}

impl AdminAddress {
    /// Whether Envoy is live: configured, listening, not draining.
    pub async fn ready(&self) -> bool {
        self.request(Method::GET, "/ready").await.is_ok()
    }

    /// Makes Envoy answer health checks with failure and ask HTTP clients to leave.
    ///
    /// # Errors
    /// Any [`AdminError`].
    pub async fn fail_health_checks(&self) -> Result<(), AdminError> {
        self.request(Method::POST, "/healthcheck/fail").await.map(drop)
    }

    /// Begins to drain the listeners: they go on accepting until the drain time is over, and clients are asked to leave.
    ///
    /// # Errors
    /// Any [`AdminError`].
    pub async fn drain_listeners(&self) -> Result<(), AdminError> {
        self.request(Method::POST, "/drain_listeners?graceful&skip_exit").await.map(drop)
    }

    /// Connections of clients to this process, and to the one that it is replacing.
    ///
    /// # Errors
    /// Any [`AdminError`].
    pub async fn connections(&self) -> Result<u64, AdminError> {
        const PATH: &str = r"/stats?filter=^(listener\..*\.downstream_cx_active|server\.parent_connections)$";
        Ok(sum_connections(&self.request(Method::GET, PATH).await?))
    }

    /// The addresses that Envoy listens on, by listener name, as it has really bound them.
    ///
    /// # Errors
    /// Any [`AdminError`].
    pub async fn listeners(&self) -> Result<BTreeMap<String, Vec<String>>, AdminError> {
        const PATH: &str = "/listeners?format=json";
        let text = self.request(Method::GET, PATH).await?;
        let json: serde_json::Value = serde_json::from_str(&text)
            .map_err(|e| AdminError::Answer { path: PATH.to_owned(), why: e.to_string() })?;
        Ok(parse_listeners(&json))
    }

    /// The answer's text to a request without a body.
    ///
    /// # Errors
    /// Any [`AdminError`].
    pub async fn request(&self, method: Method, path: &str) -> Result<String, AdminError> {
        let connect = |source| AdminError::Connect { address: self.clone(), source };
        let exchange = async {
            match self {
                Self::Tcp(addr) => exchange(TcpStream::connect(addr).await.map_err(connect)?, method, path).await,
                Self::Unix(socket) => exchange(UnixStream::connect(socket).await.map_err(connect)?, method, path).await,
            }
        };
        match tokio::time::timeout(TIMEOUT, exchange).await {
            Ok(answer) => answer,
            Err(_) => Err(AdminError::Timeout { path: path.to_owned() }),
        }
    }
}

async fn exchange<S>(stream: S, method: Method, path: &str) -> Result<String, AdminError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let failed = |source| AdminError::Http { path: path.to_owned(), source };
    // The characters of the filters that a URI must not contain.
    let target = path.replace('^', "%5E").replace('\\', "%5C").replace('|', "%7C");
    let request = Request::builder()
        .method(method)
        .uri(&target)
        .header("host", "envoy-admin")
        .body(Empty::<Bytes>::new())
        .map_err(|e| AdminError::Answer { path: path.to_owned(), why: e.to_string() })?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
    let answer = async {
        let (parts, body) = sender.send_request(request).await?.into_parts();
        let body = body.collect().await?.to_bytes();
        Ok((parts.status, String::from_utf8_lossy(&body).into_owned()))
    };
    let mut connection = std::pin::pin!(connection);
    let mut answer = std::pin::pin!(answer);
    let (status, body) = tokio::select! {
        biased;
        answer = &mut answer => answer,
        end = &mut connection => match end {
            // The connection may end in the same moment as the answer.
            Ok(()) => answer.await,
            Err(e) => Err(e),
        },
    }
    .map_err(failed)?;
    if status == StatusCode::OK {
        Ok(body)
    } else {
        Err(AdminError::Status { path: path.to_owned(), status, body: body.trim().to_owned() })
    }
}

/// Adds up `name: value` lines, leaving out the admin interface's own connections.
fn sum_connections(stats: &str) -> u64 {
    stats
        .lines()
        .filter_map(|line| line.rsplit_once(": "))
        .filter(|(name, _)| !name.starts_with("listener.admin.") && !name.contains(".worker_"))
        .filter_map(|(_, value)| value.trim().parse::<u64>().ok())
        .sum()
}

fn parse_listeners(json: &serde_json::Value) -> BTreeMap<String, Vec<String>> {
    let address = |value: &serde_json::Value| -> Option<String> {
        let socket = value.get("socket_address");
        if let Some(socket) = socket {
            let ip = socket.get("address")?.as_str()?;
            let port = socket.get("port_value").and_then(serde_json::Value::as_u64).unwrap_or(0);
            return Some(if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") });
        }
        value.get("pipe")?.get("path")?.as_str().map(str::to_owned)
    };
    let mut listeners = BTreeMap::new();
    for status in json.get("listener_statuses").and_then(|l| l.as_array()).into_iter().flatten() {
        let Some(name) = status.get("name").and_then(|n| n.as_str()) else { continue };
        let mut addresses: Vec<String> = status.get("local_address").and_then(address).into_iter().collect();
        let more = status.get("additional_local_addresses").and_then(|a| a.as_array());
        addresses.extend(more.into_iter().flatten().filter_map(address));
        listeners.insert(name.to_owned(), addresses);
    }
    listeners
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn admin_addresses_are_parsed() {
        assert_eq!(AdminAddress::parse("127.0.0.1:19000\n"), Some(AdminAddress::Tcp(([127, 0, 0, 1], 19000).into())));
        assert_eq!(AdminAddress::parse("[::1]:1").unwrap().to_string(), "http://[::1]:1");
        assert_eq!(AdminAddress::parse("/run/admin.sock"), Some(AdminAddress::Unix("/run/admin.sock".into())));
        assert_eq!(AdminAddress::parse(""), None);
    }

    #[test]
    fn connections_are_added_up_without_the_admin_interface_and_workers() {
        let stats = "listener.0.0.0.0_10080.downstream_cx_active: 3\n\
                     listener.0.0.0.0_10080.worker_0.downstream_cx_active: 3\n\
                     listener.[__]_10443.downstream_cx_active: 4\n\
                     listener.admin.downstream_cx_active: 1\n\
                     server.parent_connections: 2\n";
        assert_eq!(sum_connections(stats), 9);
        assert_eq!(sum_connections(""), 0);
    }

    #[test]
    fn listeners_are_parsed() {
        let json = serde_json::json!({"listener_statuses": [
            {"name": "a", "local_address": {"socket_address": {"address": "0.0.0.0", "port_value": 80}},
             "additional_local_addresses": [{"socket_address": {"address": "::", "port_value": 80}}]},
            {"name": "b", "local_address": {"pipe": {"path": "/s"}}},
        ]});
        let listeners = parse_listeners(&json);
        assert_eq!(listeners["a"], ["0.0.0.0:80", "[::]:80"]);
        assert_eq!(listeners["b"], ["/s"]);
    }
}
