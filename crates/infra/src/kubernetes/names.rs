//! Names and labels of a fleet's objects: those of Envoy Gateway, which users' monitors, network policies and scripts rely
//! on, and by which a fleet that it made is found again.

use std::{collections::BTreeMap, sync::Arc};

use ir::Proxy;

use super::{object::Live, options::Options};

/// Name of the label with the owning Gateway.
pub(super) const OWNER_NAME: &str = "gateway.envoyproxy.io/owning-gateway-name";
/// Name of the label with the owning Gateway's namespace.
pub(super) const OWNER_NAMESPACE: &str = "gateway.envoyproxy.io/owning-gateway-namespace";
/// Name of the label with the owning class, where Gateways are merged.
pub(super) const OWNER_CLASS: &str = "gateway.envoyproxy.io/owning-gatewayclass";
/// Name of the label with the Gateway, where fleets live in its namespace.
pub(super) const GATEWAY_NAME: &str = "gateway.networking.k8s.io/gateway-name";
/// Labels of every object of a fleet.
pub(super) const FIXED: [(&str, &str); 3] = [
    ("app.kubernetes.io/component", "proxy"),
    ("app.kubernetes.io/managed-by", "envoy-gateway"),
    ("app.kubernetes.io/name", "envoy"),
];
/// What finds every object of every fleet.
pub const SELECTOR: &str = "app.kubernetes.io/component=proxy,app.kubernetes.io/managed-by=envoy-gateway";

/// Longest readable part of a generated name.
const READABLE: usize = 48;
/// Longest value of a label.
pub(super) const LABEL: usize = 63;

/// Identity of a fleet, as the labels of its objects tell it: the value of `owning-gateway-namespace`, a slash and the value
/// of `owning-gateway-name`; or the value of `owning-gatewayclass`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FleetKey(Arc<str>);

// === impl FleetKey ===

impl FleetKey {
    /// The fleet of a group (`NS/GW` or the class name).
    #[must_use]
    pub fn of_group(group: &str) -> Self {
        match group.split_once('/') {
            Some((namespace, name)) => Self(format!("{namespace}/{}", label(name)).into()),
            None => Self(label(group).into()),
        }
    }

    /// The fleet that an object belongs to, by its labels.
    #[must_use]
    pub fn of_object(live: &Live) -> Option<Self> {
        if FIXED[..2].iter().any(|(name, value)| live.label(name) != Some(value)) {
            return None;
        }
        if let Some(class) = live.label(OWNER_CLASS) {
            return Some(Self(class.into()));
        }
        Some(Self(format!("{}/{}", live.label(OWNER_NAMESPACE)?, live.label(OWNER_NAME)?).into()))
    }

    /// As text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for FleetKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Value of a label that names an object: names can be longer than labels.
fn label(text: &str) -> String {
    if text.len() <= LABEL {
        return text.to_owned();
    }
    format!("{}-{}", &text[..text.floor_char_boundary(LABEL - 9)], digest(text))
}

/// The first eight hexadecimal digits of the SHA-256.
fn digest(text: &str) -> String {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, text.as_bytes());
    digest.as_ref().iter().take(4).map(|b| format!("{b:02x}")).collect()
}

/// Name of a fleet's objects where nothing else is said.
#[must_use]
pub(super) fn name(proxy: &Proxy, options: &Options) -> String {
    if options.gateway_namespaces && !proxy.namespace.is_empty() {
        return proxy.name.to_string();
    }
    let readable = proxy.group.replace('/', "-");
    let readable = &readable[..readable.floor_char_boundary(READABLE)];
    let readable = if readable.len() == READABLE { readable.strip_suffix('-').unwrap_or(readable) } else { readable };
    format!("envoy-{readable}-{}", digest(&proxy.group))
}

/// Namespace of a fleet's objects.
#[must_use]
pub(super) fn namespace<'a>(proxy: &'a Proxy, options: &'a Options) -> &'a str {
    if options.gateway_namespaces && !proxy.namespace.is_empty() { &proxy.namespace } else { &options.namespace }
}

/// Labels of a fleet's objects.
pub(super) fn labels(proxy: &Proxy) -> BTreeMap<String, String> {
    let own = proxy.labels.iter().map(|(k, v)| (k.to_string(), v.to_string()));
    own.chain(FIXED.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))).collect()
}

/// Labels by which a fleet's pods are found: those that stay as long as the fleet does, as a selector cannot be changed.
pub(super) fn selector(proxy: &Proxy) -> BTreeMap<String, String> {
    let stable = |name: &str| {
        matches!(name, OWNER_NAME | OWNER_NAMESPACE | OWNER_CLASS | GATEWAY_NAME)
            || FIXED.iter().any(|(n, _)| *n == name)
    };
    labels(proxy).into_iter().filter(|(name, _)| stable(name)).collect()
}
