//! Statuses of routes: what each parent says.

use std::collections::BTreeSet;

use api::gateway::ParentReference;
use ir::{Condition, Name, ParentRef, ParentStatus};

use crate::{
    attach::Attachment,
    condition::{Area, Conditions, Problem, summary},
    http::Overlap,
    route::Route,
};

/// The reference as the route wrote it.
pub(crate) fn parent_ref(reference: &ParentReference) -> ParentRef {
    let name = |s: &Option<String>| s.as_deref().map(Name::from);
    ParentRef {
        group: name(&reference.group).or_else(|| Some(api::gateway::GROUP.into())),
        kind: name(&reference.kind).or_else(|| Some("Gateway".into())),
        namespace: name(&reference.namespace),
        name: reference.name.as_str().into(),
        section_name: name(&reference.section_name),
        port: reference.port,
    }
}

/// The entry of one parent.
pub(crate) fn parent(
    controller: &Name,
    route: Route<'_>,
    attachment: &Attachment<'_>,
    problems: &[(usize, Problem)],
    rules: usize,
    overlaps: Option<&Overlap>,
) -> ParentStatus {
    ParentStatus {
        parent: parent_ref(attachment.reference),
        controller_name: controller.clone(),
        conditions: conditions(route, attachment, problems, rules, overlaps),
    }
}

/// Who answers requests that several routes match, in words that a further route does not change.
fn overlap_message(overlap: &Overlap) -> String {
    const FEW: usize = 8;
    let rule = "the oldest route answers, then the first by namespace and name";
    if overlap.loses_to.is_empty() {
        return format!("Matches are equal to some of routes that come after this one; this one answers: {rule}");
    }
    let mut list = overlap.loses_to.iter().take(FEW).map(ToString::to_string).collect::<Vec<_>>().join(", ");
    if overlap.loses_to.len() > FEW {
        list.push_str(" and others");
    }
    format!("Matches are equal to some of {list}, which comes first and answers in place of this route: {rule}")
}

fn conditions(
    route: Route<'_>,
    attachment: &Attachment<'_>,
    problems: &[(usize, Problem)],
    rules: usize,
    overlaps: Option<&Overlap>,
) -> Vec<Condition> {
    let make = Conditions::of(route.meta());
    let mut out = Vec::new();
    let bare: Vec<Problem> = problems.iter().map(|(_, p)| p.clone()).collect();
    let faulty: BTreeSet<usize> = problems.iter().filter(|(_, p)| p.area == Area::Value).map(|(i, _)| *i).collect();
    let value = summary(&bare, Area::Value);
    match (&attachment.refusal, value) {
        (Some((reason, message)), _) => out.push(make.no("Accepted", reason, message.clone())),
        (None, Some((reason, message))) if faulty.len() >= rules => {
            out.push(make.no("Accepted", reason, message));
        }
        (None, value) => {
            out.push(make.yes("Accepted", "Accepted", "The route is accepted"));
            if let Some((reason, message)) = value {
                let list: Vec<_> = faulty.iter().map(ToString::to_string).collect();
                let message = format!("Rules that are not served: {}. {message}", list.join(", "));
                out.push(make.yes("PartiallyInvalid", reason, message));
            }
        }
    }
    match summary(&bare, Area::Reference) {
        Some((reason, message)) => out.push(make.no("ResolvedRefs", reason, message)),
        None => out.push(make.yes("ResolvedRefs", "ResolvedRefs", "All references are resolved")),
    }
    if let Some((reason, message)) = summary(&bare, Area::Availability) {
        out.push(make.no("BackendsAvailable", reason, message));
    }
    if let (Some(overlap), None) = (overlaps, &attachment.refusal) {
        out.push(make.yes("RouteRulesOverlap", "RouteRulesOverlap", overlap_message(overlap)));
    }
    out
}
