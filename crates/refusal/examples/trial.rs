//! A cluster that a proxy refuses is traced to the route that it serves.

#![allow(clippy::print_stdout, reason = "an example prints")]

use std::sync::Arc;

use ir::{Endpoints, XdsKind, XdsValue};
use refusal::Refusals;

fn main() {
    let mut refusals = Refusals::new();
    let at = ("default/gw".into(), (XdsKind::Endpoints, "c".into()));
    let value = XdsValue::Endpoints(Arc::new(Endpoints { cluster: "c".into(), localities: Vec::new() }));
    refusals.sent(at.clone(), Some(("1".into(), value)));
    let changes = refusals.refused(&at, "1", "no such thing");
    println!("endpoints come from no object that can be left out: {changes:?}");
}
