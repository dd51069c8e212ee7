//! Statuses of Gateways and ListenerSets.

use ir::{ListenerStatus, Status};

use super::{GatewayUnit, ListenerUnit};
use crate::condition::Conditions;

/// Status of the Gateway; `attached` counts routes per listener, in the order of [`GatewayUnit::listeners`].
pub(crate) fn gateway_status(unit: &GatewayUnit<'_>, attached: &[i32]) -> Status {
    let own = unit.listeners.iter().zip(attached).filter(|(l, _)| l.set.is_none());
    let sets = unit
        .sets
        .iter()
        .enumerate()
        .filter(|(i, s)| s.allowed && unit.listeners.iter().any(|l| l.set == Some(*i) && l.programmed));
    let count = i32::try_from(sets.count()).unwrap_or(i32::MAX);
    Status::Gateway {
        conditions: unit.conditions.clone(),
        listeners: own.map(|(l, n)| listener(l, *n)).collect(),
        attached_listener_sets: (count > 0).then_some(count),
    }
}

/// Status of one ListenerSet.
pub(crate) fn set_status(unit: &GatewayUnit<'_>, index: usize, attached: &[i32]) -> Status {
    let set = &unit.sets[index];
    let make = Conditions::of(&set.object.metadata);
    if !set.allowed {
        let message = format!(
            "Gateway {}/{} does not let ListenerSets of namespace {} attach; change its spec.allowedListeners",
            unit.namespace, unit.name, set.namespace
        );
        let conditions =
            vec![make.no("Accepted", "NotAllowed", message.clone()), make.no("Programmed", "NotAllowed", message)];
        return Status::Gateway { conditions, listeners: Vec::new(), attached_listener_sets: None };
    }
    let members: Vec<_> = unit.listeners.iter().zip(attached).filter(|(l, _)| l.set == Some(index)).collect();
    let good = members.iter().filter(|(l, _)| l.programmed).count();
    let conditions = if good == members.len() {
        vec![
            make.yes("Accepted", "Accepted", "All listeners are accepted"),
            make.yes("Programmed", "Programmed", "All listeners are programmed"),
        ]
    } else {
        let bad: Vec<_> = members.iter().filter(|(l, _)| !l.programmed).map(|(l, _)| l.spec.name.as_str()).collect();
        let message = format!("Listeners that cannot be served: {}; see their conditions", bad.join(", "));
        if good == 0 {
            vec![
                make.no("Accepted", "ListenersNotValid", message.clone()),
                make.no("Programmed", "ListenersNotValid", message),
            ]
        } else {
            vec![
                make.yes("Accepted", "ListenersNotValid", message.clone()),
                make.yes("Programmed", "Programmed", message),
            ]
        }
    };
    let listeners = members.into_iter().map(|(l, n)| listener(l, *n)).collect();
    Status::Gateway { conditions, listeners, attached_listener_sets: None }
}

fn listener(unit: &ListenerUnit<'_>, attached: i32) -> ListenerStatus {
    let group: ir::Name = api::gateway::GROUP.into();
    ListenerStatus {
        name: unit.spec.name.as_str().into(),
        supported_kinds: unit.kinds.iter().map(|k| (group.clone(), k.kind().into())).collect(),
        attached_routes: attached,
        conditions: unit.conditions.clone(),
        port: None,
    }
}
