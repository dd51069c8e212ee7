//! What policies can be attached to, as the translation sees it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Gateways and routes that this controller serves, in the order of their precedence. Positions in its lists are how the
/// rest of the crate names its parts.
#[derive(Clone, Debug, Default)]
pub struct Topology<'a> {
    /// Gateways.
    pub gateways: Vec<Gateway<'a>>,
    /// Routes of all kinds.
    pub routes: Vec<Route<'a>>,
}

/// A Gateway with its listeners.
#[derive(Clone, Debug)]
pub struct Gateway<'a> {
    /// Metadata of the Gateway.
    pub meta: &'a ObjectMeta,
    /// Its own listeners, and those of its ListenerSets.
    pub listeners: Vec<Listener<'a>>,
    /// ListenerSets that name it, in the order in which listeners refer to them.
    pub sets: Vec<&'a ObjectMeta>,
}

/// A listener of a Gateway.
#[derive(Clone, Copy, Debug)]
pub struct Listener<'a> {
    /// Name.
    pub name: &'a str,
    /// The ListenerSet that declares it, as a position in [`Gateway::sets`].
    pub set: Option<usize>,
}

/// A route.
#[derive(Clone, Debug)]
pub struct Route<'a> {
    /// Kind, such as `HTTPRoute`.
    pub kind: &'static str,
    /// Metadata.
    pub meta: &'a ObjectMeta,
    /// Names of its rules, as far as they have any.
    pub rules: Vec<Option<&'a str>>,
    /// Its parents among the Gateways and their ListenerSets.
    pub parents: Vec<Parent<'a>>,
}

/// One parent of a route.
#[derive(Clone, Debug)]
pub struct Parent<'a> {
    /// Position of the Gateway.
    pub gateway: usize,
    /// The ListenerSet that the route names, if it names one, as a position in [`Gateway::sets`].
    pub set: Option<usize>,
    /// The listener that it names.
    pub section: Option<&'a str>,
    /// Positions of the listeners that take the route.
    pub listeners: Vec<usize>,
}

/// A rule of a route on a listener: the smallest part that a policy can hold for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Position of the Gateway.
    pub gateway: usize,
    /// Position of the listener.
    pub listener: usize,
    /// Position of the route.
    pub route: usize,
    /// Position of the rule.
    pub rule: usize,
}

/// Namespace of an object.
pub(crate) fn namespace(meta: &ObjectMeta) -> &str {
    meta.namespace.as_deref().unwrap_or_default()
}

/// Name of an object.
pub(crate) fn name(meta: &ObjectMeta) -> &str {
    meta.name.as_deref().unwrap_or_default()
}
