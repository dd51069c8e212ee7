//! A real etcd and kube-apiserver on loopback, with the audit log as data.

use std::{
    net::TcpListener,
    path::{Path, PathBuf},
    process::Stdio,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use k8s_openapi::jiff::Timestamp;
use kube::{Client, Config, config::AuthInfo};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType};
use serde::Deserialize;
use tempfile::TempDir;
use tokio::process::{Child, Command};

/// Token of the user `admin` (group `system:masters`).
const ADMIN: &str = "admin";

/// A running API server; it and its etcd end when this is dropped.
#[derive(Debug)]
pub struct ApiServer {
    dir: TempDir,
    port: u16,
    ca_pem: String,
    _etcd: Child,
    etcd_url: String,
    apiserver: Child,
    options: Options,
}

/// What an API server is started with.
#[derive(Clone, Debug)]
pub struct Options {
    /// Folder with `etcd` and `kube-apiserver`.
    pub bin: PathBuf,
    /// Users beside `admin`; the token of each is its name.
    pub users: Vec<String>,
    /// Where the servers' own logs go; the scratch folder if none.
    pub logs: Option<PathBuf>,
    /// The audit log holds of every write what was stored, not only that of ConfigMaps and Leases.
    pub bodies: bool,
}

/// One line of the audit log: a request that was answered.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditEvent {
    /// `create`, `update`, `patch`, `delete`, …
    pub verb: String,
    /// Who asked.
    pub user: AuditUser,
    /// What it was about.
    pub object_ref: Option<AuditObject>,
    /// The answer.
    pub response_status: Option<AuditStatus>,
    /// What was sent (ConfigMaps and Leases only).
    #[serde(default)]
    pub request_object: Option<serde_json::Value>,
    /// What was stored (ConfigMaps and Leases only).
    #[serde(default)]
    pub response_object: Option<serde_json::Value>,
    /// When the request came in.
    pub request_received_timestamp: Timestamp,
    /// When it was answered.
    pub stage_timestamp: Timestamp,
}

/// User of a request.
#[derive(Clone, Debug, Deserialize)]
pub struct AuditUser {
    /// Name.
    pub username: String,
}

/// Object of a request.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct AuditObject {
    /// Plural, such as `leases`.
    pub resource: String,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Such as `status`.
    pub subresource: String,
}

/// Answer to a request.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct AuditStatus {
    /// HTTP status.
    pub code: u16,
}

/// The folder with the Kubernetes binaries from `KUBE_BIN`, or `None` (said on the terminal) where it is not set.
#[must_use]
pub fn kube_bin() -> Option<PathBuf> {
    match std::env::var_os("KUBE_BIN") {
        Some(dir) => Some(dir.into()),
        None => {
            println!("skipped: KUBE_BIN is not set (tests/tools/kube.sh prints the folder)");
            None
        }
    }
}

/// A port that was free a moment ago.
///
/// # Errors
/// When loopback has none.
pub fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// A port that is free now, below those that the kernel gives to outgoing connections: it can be taken again after it was
/// given up.
///
/// # Errors
/// When there is none.
pub fn stable_port() -> Result<u16> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    for _ in 0..PORTS.len() {
        let n = std::process::id().wrapping_mul(101).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = PORTS.start + u16::try_from(n % u32::try_from(PORTS.len())?)?;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() && TcpListener::bind(("0.0.0.0", port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no port of {PORTS:?} is free")
}

/// Where [`stable_port`] looks.
const PORTS: std::ops::Range<u16> = 15_000..30_000;

// === impl ApiServer ===

impl ApiServer {
    /// Starts etcd and kube-apiserver and waits until the latter is ready.
    ///
    /// # Errors
    /// When a process does not start or is not ready within 60 s; the end of its log is part of the error.
    pub async fn start(options: Options) -> Result<Self> {
        let dir = TempDir::new()?;
        let logs = options.logs.clone().unwrap_or_else(|| dir.path().join("logs"));
        std::fs::create_dir_all(&logs)?;
        let (client_port, peer_port, port) = (free_port()?, free_port()?, stable_port()?);
        let ca_pem = write_pki(dir.path())?;
        let tokens: String = std::iter::once(format!("{ADMIN},{ADMIN},{ADMIN},system:masters\n"))
            .chain(options.users.iter().map(|u| format!("{u},{u},{u}\n")))
            .collect();
        std::fs::write(dir.path().join("tokens.csv"), tokens)?;
        let policy = if options.bodies { AUDIT_BODIES } else { AUDIT_POLICY };
        std::fs::write(dir.path().join("audit.yaml"), policy)?;

        let etcd_url = format!("http://127.0.0.1:{client_port}");
        let peer_url = format!("http://127.0.0.1:{peer_port}");
        let etcd = spawn(
            &options.bin.join("etcd"),
            &[
                "--data-dir",
                &path(dir.path(), "etcd"),
                "--listen-client-urls",
                &etcd_url,
                "--advertise-client-urls",
                &etcd_url,
                "--listen-peer-urls",
                &peer_url,
                "--initial-advertise-peer-urls",
                &peer_url,
                "--initial-cluster",
                &format!("default={peer_url}"),
                "--unsafe-no-fsync",
                "--log-level",
                "warn",
            ],
            &logs.join("etcd.log"),
        )?;
        let apiserver = start_apiserver(&options.bin, dir.path(), port, &etcd_url, &logs)?;
        let options = Options { logs: Some(logs), ..options };
        let mut server = Self { dir, port, ca_pem, _etcd: etcd, etcd_url, apiserver, options };
        server.ready().await?;
        Ok(server)
    }

    /// Ends kube-apiserver as an update would (SIGTERM, after 5 s SIGKILL), starts it on the same port with the same etcd, and
    /// waits until it is ready. The audit log goes on.
    ///
    /// # Errors
    /// As [`ApiServer::start`].
    pub async fn restart(&mut self) -> Result<()> {
        if let Some(pid) = self.apiserver.id() {
            Command::new("kill").args(["-TERM", &pid.to_string()]).status().await?;
        }
        if tokio::time::timeout(Duration::from_secs(5), self.apiserver.wait()).await.is_err() {
            self.apiserver.kill().await?;
        }
        let logs = self.options.logs.clone().unwrap_or_else(|| self.dir.path().join("logs"));
        self.apiserver = start_apiserver(&self.options.bin, self.dir.path(), self.port, &self.etcd_url, &logs)?;
        self.ready().await
    }

    /// The audit log, a JSON object per line; the last line may be half-written.
    #[must_use]
    pub fn audit_path(&self) -> PathBuf {
        self.dir.path().join("audit.log")
    }

    /// URL of the server.
    #[must_use]
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// Port on loopback.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// CA of the server's certificate, PEM.
    #[must_use]
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// A kubeconfig for a user through any address (a proxy, say).
    #[must_use]
    pub fn kubeconfig(&self, user: &str, url: &str) -> String {
        let ca = self.dir.path().join("ca.crt");
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: x\n\
             clusters: [{{name: c, cluster: {{server: \"{url}\", certificate-authority: \"{}\"}}}}]\n\
             users: [{{name: u, user: {{token: \"{user}\"}}}}]\n\
             contexts: [{{name: x, context: {{cluster: c, user: u}}}}]\n",
            ca.display()
        )
    }

    /// A client of the user `admin`.
    ///
    /// # Errors
    /// When TLS cannot be set up.
    pub fn admin(&self) -> Result<Client> {
        self.client(ADMIN, &self.url())
    }

    /// A client of a user through any address.
    ///
    /// # Errors
    /// When TLS cannot be set up.
    pub fn client(&self, user: &str, url: &str) -> Result<Client> {
        let mut config = Config::new(url.parse()?);
        let ca = pem_to_der(&self.ca_pem)?;
        config.root_cert = Some(vec![ca]);
        config.auth_info = AuthInfo { token: Some(user.to_owned().into()), ..AuthInfo::default() };
        Ok(Client::try_from(config)?)
    }

    /// Writes that the audit log tells so far.
    ///
    /// # Errors
    /// When it cannot be read or a line is no event.
    pub fn audit(&self) -> Result<Vec<AuditEvent>> {
        Ok(self.log()?.into_iter().filter(|e| !READS.contains(&e.verb.as_str())).collect())
    }

    /// Lists, watches and gets of Secrets and ConfigMaps that the audit log tells so far.
    ///
    /// # Errors
    /// As of [`ApiServer::audit`].
    pub fn reads(&self) -> Result<Vec<AuditEvent>> {
        Ok(self.log()?.into_iter().filter(|e| READS.contains(&e.verb.as_str())).collect())
    }

    fn log(&self) -> Result<Vec<AuditEvent>> {
        let text = std::fs::read_to_string(self.audit_path()).unwrap_or_default();
        // The last line may be half-written.
        let complete = text.rfind('\n').map_or("", |end| &text[..end]);
        complete.lines().map(|l| serde_json::from_str(l).with_context(|| l.to_owned())).collect()
    }

    async fn ready(&mut self) -> Result<()> {
        let client = self.admin()?;
        let deadline = tokio::time::Instant::now() + Duration::from_secs(90);
        loop {
            let request = http::Request::get("/readyz").body(Vec::new())?;
            if client.request_text(request).await.is_ok() {
                return Ok(());
            }
            if let Some(status) = self.apiserver.try_wait()? {
                bail!("kube-apiserver ended with {status}: {}", self.log_tail());
            }
            if tokio::time::Instant::now() > deadline {
                bail!("kube-apiserver was not ready within 90 s: {}", self.log_tail());
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    fn log_tail(&self) -> String {
        let log = self.options.logs.as_ref().map(|l| l.join("kube-apiserver.log"));
        let text = log.and_then(|l| std::fs::read_to_string(l).ok()).unwrap_or_default();
        let lines: Vec<_> = text.lines().rev().take(15).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }
}

fn start_apiserver(bin: &Path, dir: &Path, port: u16, etcd: &str, logs: &Path) -> Result<Child> {
    spawn(
        &bin.join("kube-apiserver"),
        &[
            &format!("--etcd-servers={etcd}"),
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            "--endpoint-reconciler-type=none",
            &format!("--secure-port={port}"),
            &format!("--tls-cert-file={}", path(dir, "server.crt")),
            &format!("--tls-private-key-file={}", path(dir, "server.key")),
            "--service-account-issuer=https://kubernetes.default.svc",
            &format!("--service-account-key-file={}", path(dir, "sa.pub")),
            &format!("--service-account-signing-key-file={}", path(dir, "sa.key")),
            "--service-cluster-ip-range=10.96.0.0/16",
            "--authorization-mode=RBAC",
            "--disable-admission-plugins=ServiceAccount",
            &format!("--token-auth-file={}", path(dir, "tokens.csv")),
            &format!("--audit-policy-file={}", path(dir, "audit.yaml")),
            &format!("--audit-log-path={}", path(dir, "audit.log")),
            "--audit-log-mode=blocking",
            // MiB: one file whatever comes.
            "--audit-log-maxsize=16384",
            &format!("--cert-dir={}", path(dir, "run")),
            "--v=0",
        ],
        &logs.join("kube-apiserver.log"),
    )
}

const READS: [&str; 3] = ["get", "list", "watch"];

/// Who wrote what, and of the objects that the tests write themselves what was written; who read Secrets and ConfigMaps.
const AUDIT_POLICY: &str = "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n\
    - {level: RequestResponse, verbs: [create, update, patch, delete], \
       resources: [{group: \"\", resources: [configmaps]}, {group: coordination.k8s.io, resources: [leases]}]}\n\
    - {level: Metadata, verbs: [create, update, patch, delete, deletecollection]}\n\
    - {level: Metadata, verbs: [get, list, watch], resources: [{group: \"\", resources: [secrets, configmaps]}]}\n- {level: None}\n";

/// As [`AUDIT_POLICY`], with what was stored by every write but Events and reviews.
const AUDIT_BODIES: &str = "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nomitManagedFields: true\nrules:\n\
    - {level: Metadata, verbs: [create, update, patch, delete, deletecollection], \
       resources: [{group: \"\", resources: [events, secrets]}, {group: events.k8s.io}, {group: authentication.k8s.io}, \
                   {group: authorization.k8s.io}]}\n\
    - {level: RequestResponse, verbs: [create, update, patch, delete, deletecollection]}\n- {level: None}\n";

fn path(dir: &Path, name: &str) -> String {
    dir.join(name).display().to_string()
}

/// Starts a program that ends with this process, however that ends.
fn spawn(program: &Path, args: &[&str], log: &Path) -> Result<Child> {
    let log = std::fs::OpenOptions::new().create(true).append(true).open(log)?;
    Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "--"])
        .arg(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("{} does not start", program.display()))
}

/// CA, server certificate and the key for service accounts; returns the CA as PEM.
fn write_pki(dir: &Path) -> Result<String> {
    let ca_key = KeyPair::generate()?;
    let mut ca = CertificateParams::default();
    ca.distinguished_name.push(DnType::CommonName, "test-ca");
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    let ca_cert = ca.self_signed(&ca_key)?;
    let issuer = Issuer::new(ca, ca_key);
    let key = KeyPair::generate()?;
    let mut server = CertificateParams::new(vec!["localhost".to_owned(), "kubernetes.default.svc".to_owned()])?;
    server.subject_alt_names.push(SanType::IpAddress([127, 0, 0, 1].into()));
    let cert = server.signed_by(&key, &issuer)?;
    std::fs::write(dir.join("ca.crt"), ca_cert.pem())?;
    std::fs::write(dir.join("server.crt"), cert.pem())?;
    std::fs::write(dir.join("server.key"), key.serialize_pem())?;
    let accounts = KeyPair::generate()?;
    std::fs::write(dir.join("sa.key"), accounts.serialize_pem())?;
    std::fs::write(dir.join("sa.pub"), accounts.public_key_pem())?;
    Ok(ca_cert.pem())
}

fn pem_to_der(pem: &str) -> Result<Vec<u8>> {
    use rustls_pki_types::{CertificateDer, pem::PemObject};
    Ok(CertificateDer::from_pem_slice(pem.as_bytes())?.to_vec())
}
