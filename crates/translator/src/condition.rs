//! Conditions: how they are made and how those of a route add up.

use ir::{Condition, ConditionStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::{route::Route, view::View};

/// Makes the conditions of one object: all bear its generation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Conditions {
    generation: Option<i64>,
}

impl Conditions {
    pub(crate) fn of(meta: &ObjectMeta) -> Self {
        Self { generation: meta.generation }
    }

    pub(crate) fn yes(self, kind: &'static str, reason: &'static str, message: impl Into<String>) -> Condition {
        self.make(kind, ConditionStatus::True, reason, message)
    }

    pub(crate) fn no(self, kind: &'static str, reason: &'static str, message: impl Into<String>) -> Condition {
        self.make(kind, ConditionStatus::False, reason, message)
    }

    fn make(
        self,
        kind: &'static str,
        status: ConditionStatus,
        reason: &'static str,
        message: impl Into<String>,
    ) -> Condition {
        Condition { kind, status, reason, message: message.into(), observed_generation: self.generation }
    }
}

/// Something wrong with a reference or a value, on its way to a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    /// Which condition it becomes.
    pub(crate) area: Area,
    /// Reason of the condition.
    pub(crate) reason: &'static str,
    /// Object, field, cause and remedy.
    pub(crate) message: String,
}

/// Which condition a [`Problem`] becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Area {
    /// `Accepted` (or `PartiallyInvalid` when other rules hold).
    Value,
    /// `ResolvedRefs`.
    Reference,
    /// `BackendsAvailable`.
    Availability,
}

impl Problem {
    /// Envoy refused what this route asks for: it is left out until it changes.
    pub(crate) fn refused(view: &View<'_>, route: Route<'_>) -> Option<Self> {
        let words = view.store.exclusion(&route.key())?;
        let message = format!(
            "{} {}/{}: spec: Envoy refuses what this route asks for ({words}); the route is left out until it is changed",
            route.kind().kind(),
            route.namespace(),
            route.name()
        );
        Some(Self::value("UnsupportedValue", message))
    }

    pub(crate) fn value(reason: &'static str, message: impl Into<String>) -> Self {
        Self { area: Area::Value, reason, message: message.into() }
    }

    pub(crate) fn reference(reason: &'static str, message: impl Into<String>) -> Self {
        Self { area: Area::Reference, reason, message: message.into() }
    }

    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self { area: Area::Availability, reason: "EndpointsNotFound", message: message.into() }
    }

    /// Puts the place before the message.
    pub(crate) fn at(mut self, place: &str) -> Self {
        self.message = format!("{place}: {}", self.message);
        self
    }
}

/// Problems of one area as a reason (that of the first) and a text (all, each once).
pub(crate) fn summary(problems: &[Problem], area: Area) -> Option<(&'static str, String)> {
    let mut texts: Vec<&str> = Vec::new();
    let mut reason = None;
    for p in problems.iter().filter(|p| p.area == area) {
        reason = reason.or(Some(p.reason));
        if !texts.contains(&p.message.as_str()) {
            texts.push(&p.message);
        }
    }
    reason.map(|r| (r, texts.join("\n")))
}
