//! What rows and resources lean on: ports, certificates, backends.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener},
    sync::{Mutex, PoisonError},
};

use anyhow::{Context, Result, bail};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, SanType};
use testkit::echo::{Config, Echo, tls_from_pem};

/// Ports below those that the system gives away by itself.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// Ports that this process has given away.
static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// Ports, certificates and backends, each made when it is first asked for.
///
/// Texts refer to them as `${KIND:NAME}`:
///
/// | placeholder | becomes |
/// |---|---|
/// | `${port:NAME}` | a port that was free, the same one for the same name |
/// | `${backend:NAME}` | port of a backend that [`Surroundings::start`] started; without any, some port |
/// | `${crt:HOST}`, `${key:HOST}` | base64 of a PEM certificate for that host, and of its key |
/// | `${ca:NAME}` | base64 of the PEM certificate of a CA; `server` signs `${crt:…}` |
/// | `${ca-text:NAME}` | the same as the inside of a YAML string in double quotes |
#[derive(Debug, Default)]
pub struct Surroundings {
    backends: BTreeMap<String, Echo>,
    made: Mutex<Made>,
}

#[derive(Debug, Default)]
struct Made {
    ports: BTreeMap<String, u16>,
    authorities: BTreeMap<String, CertifiedIssuer<'static, KeyPair>>,
    leaves: BTreeMap<(String, String), Leaf>,
}

/// A certificate and its key.
#[derive(Clone, Debug)]
pub struct Leaf {
    /// PEM.
    pub certificate: String,
    /// DER of the certificate.
    pub der: Vec<u8>,
    /// PEM.
    pub key: String,
}

// === impl Surroundings ===

impl Surroundings {
    /// Starts backends: `web-1`, `web-2`, `web-3` and `mirror` in plain text on 127.0.0.1, `web-6` on `::1`, and
    /// `tls-1` with a certificate for `tls.backend.test`.
    ///
    /// # Errors
    /// When an address cannot be bound.
    pub async fn start() -> Result<Self> {
        let mut all = Self { backends: BTreeMap::new(), made: Mutex::default() };
        for name in ["web-1", "web-2", "web-3", "mirror"] {
            all.backends.insert(name.to_owned(), Echo::start(name).await?);
        }
        let v6 = SocketAddr::from((Ipv6Addr::LOCALHOST, 0));
        all.backends.insert("web-6".to_owned(), Echo::start_with(v6, Config::named("web-6")).await?);
        let leaf = all.leaf("server", "tls.backend.test")?;
        let tls = Some(tls_from_pem(&leaf.certificate, &leaf.key)?);
        let v4 = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let secure = Echo::start_with(v4, Config { tls, ..Config::named("tls-1") }).await?;
        all.backends.insert("tls-1".to_owned(), secure);
        Ok(all)
    }

    /// A backend.
    ///
    /// # Errors
    /// When there is none of that name.
    pub fn backend(&self, name: &str) -> Result<&Echo> {
        self.backends.get(name).with_context(|| format!("there is no backend {name}"))
    }

    /// The port of that name; chosen when it is first asked for.
    ///
    /// # Errors
    /// When no port is free.
    pub fn port(&self, name: &str) -> Result<u16> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(port) = made.ports.get(name) {
            return Ok(*port);
        }
        // Each test process begins elsewhere, so that those which run at once seldom ask for the same port.
        let span = u32::from(PORTS.end - PORTS.start);
        let begin = std::process::id().wrapping_mul(97) % span;
        let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
        for i in 0..span {
            let port = PORTS.start + u16::try_from((begin + i) % span)?;
            if !given.contains(&port) && TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok() {
                given.insert(port);
                made.ports.insert(name.to_owned(), port);
                return Ok(port);
            }
        }
        bail!("no port is free")
    }

    /// All ports that were asked for, by name.
    #[must_use]
    pub fn ports(&self) -> BTreeMap<String, u16> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner).ports.clone()
    }

    /// PEM of the certificate of a CA; made when it is first asked for.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn authority(&self, name: &str) -> Result<String> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(made.authority(name)?.pem())
    }

    /// A certificate for a host, signed by a CA; made when it is first asked for.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn leaf(&self, authority: &str, host: &str) -> Result<Leaf> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let at = (authority.to_owned(), host.to_owned());
        if let Some(leaf) = made.leaves.get(&at) {
            return Ok(leaf.clone());
        }
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, host);
        params.subject_alt_names = vec![SanType::DnsName(host.try_into()?)];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, made.authority(authority)?)?;
        let leaf = Leaf { certificate: certificate.pem(), der: certificate.der().to_vec(), key: key.serialize_pem() };
        made.leaves.insert(at, leaf.clone());
        Ok(leaf)
    }

    /// Fills in the placeholders of a text.
    ///
    /// # Errors
    /// When one is not known.
    pub fn fill(&self, text: &str) -> Result<String> {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find("${") {
            out.push_str(&rest[..at]);
            let end = rest[at..].find('}').with_context(|| format!("unfinished placeholder {}", &rest[at..]))?;
            out.push_str(&self.value(&rest[at + 2..at + end])?);
            rest = &rest[at + end + 1..];
        }
        out.push_str(rest);
        Ok(out)
    }

    fn value(&self, placeholder: &str) -> Result<String> {
        let (kind, name) = placeholder.split_once(':').with_context(|| format!("{placeholder} is no placeholder"))?;
        Ok(match kind {
            "port" => self.port(name)?.to_string(),
            "backend" if self.backends.is_empty() => self.port(name)?.to_string(),
            "backend" => self.backend(name)?.addr().port().to_string(),
            "crt" => base64(&self.leaf("server", name)?.certificate),
            "key" => base64(&self.leaf("server", name)?.key),
            "ca" => base64(&self.authority(name)?),
            "ca-text" => self.authority(name)?.replace('\n', "\\n"),
            _ => bail!("{placeholder} is no placeholder"),
        })
    }
}

impl Made {
    fn authority(&mut self, name: &str) -> Result<&CertifiedIssuer<'static, KeyPair>> {
        if !self.authorities.contains_key(name) {
            let mut params = CertificateParams::default();
            params.distinguished_name.push(DnType::CommonName, format!("{name} CA"));
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let ca = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
            self.authorities.insert(name.to_owned(), ca);
        }
        self.authorities.get(name).context("just made")
    }
}

fn base64(text: &str) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(text)
}
