//! Who gets a certificate, and for which names.

use std::time::Duration;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A holder of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Identity {
    /// The control plane: serves xDS, is a client of the rate limit service and of other replicas.
    EnvoyGateway,
    /// The proxies: clients of xDS.
    Envoy,
    /// The rate limit service: serves gRPC to proxies, a client of xDS.
    RateLimit,
}

impl Identity {
    /// All of them, in the order in which they are written.
    pub const ALL: [Self; 3] = [Self::EnvoyGateway, Self::Envoy, Self::RateLimit];

    /// The name of the Secret and of the directory that holds the certificate.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::EnvoyGateway => "envoy-gateway",
            Self::Envoy => "envoy",
            Self::RateLimit => "envoy-rate-limit",
        }
    }

    /// The DNS names that a new certificate carries.
    #[must_use]
    pub fn dns_names(self, spec: &Spec) -> Vec<String> {
        let mut names = match self {
            Self::EnvoyGateway => service_names("envoy-gateway", spec),
            Self::Envoy => vec![format!("*.{}", spec.namespace)],
            Self::RateLimit => {
                let mut names = service_names("envoy-ratelimit", spec);
                names.push(format!("*.{}", spec.namespace));
                names
            }
        };
        if self == Self::EnvoyGateway {
            for extra in &spec.extra_server_names {
                if !names.contains(extra) {
                    names.push(extra.clone());
                }
            }
        }
        names
    }

    /// The names without which an existing certificate is of no use: those that the other side checks. Nobody checks a
    /// client certificate's names.
    #[must_use]
    pub fn required_names(self, spec: &Spec) -> Vec<String> {
        match self {
            Self::EnvoyGateway => self.dns_names(spec),
            Self::Envoy | Self::RateLimit => Vec::new(),
        }
    }
}

impl std::fmt::Display for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// The four names under which a Kubernetes Service is reached.
fn service_names(service: &str, spec: &Spec) -> Vec<String> {
    let Spec { namespace, dns_domain, .. } = spec;
    vec![
        service.to_owned(),
        format!("{service}.{namespace}"),
        format!("{service}.{namespace}.svc"),
        format!("{service}.{namespace}.svc.{dns_domain}"),
    ]
}

/// What the certificates have to be like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// The control plane's namespace, part of the names.
    pub namespace: String,
    /// The cluster's DNS domain, part of the names.
    pub dns_domain: String,
    /// How long new certificates are valid. Default 5 years (1825 days).
    pub validity: Duration,
    /// How long before its end a certificate is renewed. Default 90 days, a third of the validity at most.
    pub renew_before: Duration,
    /// More DNS names or IP addresses for the control plane's certificate. Default: none.
    pub extra_server_names: Vec<String>,
}

impl Spec {
    /// A specification with the defaults.
    #[must_use]
    pub fn new(namespace: impl Into<String>, dns_domain: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            dns_domain: dns_domain.into(),
            validity: DAY * 1825,
            renew_before: DAY * 90,
            extra_server_names: Vec::new(),
        }
    }

    /// The margin that is really used: a validity shorter than three margins would mean renewing without end.
    pub(crate) fn margin(&self) -> Duration {
        self.renew_before.min(self.validity / 3)
    }
}
