//! GatewayClasses and Backends: objects whose status depends on nothing but themselves and what they name.

use std::{collections::BTreeMap, sync::Arc};

use api::{
    envoygateway::{Backend, EnvoyProxy},
    gateway::GatewayClass,
};
use ir::Status;
use resources::{Kind, ObjectKey};

use crate::{backend, condition::Conditions, view::View};

/// Judges a class of ours; what is wrong with its parameters, if anything is.
fn parameters(view: &View<'_>, class: &GatewayClass) -> Result<(), String> {
    let Some(reference) = &class.spec.parameters_ref else { return Ok(()) };
    let field = "spec.parametersRef";
    if reference.group != api::envoygateway::GROUP || reference.kind != "EnvoyProxy" {
        let kind = api::shared::group_kind(&reference.group, &reference.kind);
        return Err(format!(
            "{field}: {kind} is not supported; refer to an EnvoyProxy of group {}",
            api::envoygateway::GROUP
        ));
    }
    let Some(namespace) = reference.namespace.as_deref().filter(|n| !n.is_empty()) else {
        return Err(format!("{field}.namespace is missing; add the namespace of the EnvoyProxy"));
    };
    let name = &reference.name;
    let Some(proxy) = view.store.get::<EnvoyProxy>(namespace, name) else {
        return Err(format!(
            "{field}: EnvoyProxy {namespace}/{name} does not exist; create it or remove the reference"
        ));
    };
    policy::proxies::check(&proxy.spec).map_err(|e| format!("{field}: EnvoyProxy {namespace}/{name}: {e}"))
}

/// The classes of ours by name, and whether each is accepted; adds their statuses.
pub(crate) fn evaluate<'a>(
    view: &View<'a>,
    statuses: &mut BTreeMap<ObjectKey, Arc<Status>>,
) -> BTreeMap<&'a str, bool> {
    let mut out = BTreeMap::new();
    for class in view.store.all::<GatewayClass>() {
        if class.spec.controller_name != *view.config.controller_name {
            continue;
        }
        let name = class.metadata.name.as_deref().unwrap_or_default();
        let make = Conditions::of(&class.metadata);
        let verdict = parameters(view, class);
        out.insert(name, verdict.is_ok());
        let condition = match verdict {
            Ok(()) => make.yes("Accepted", "Accepted", "The class is valid"),
            Err(message) => make.no("Accepted", "InvalidParameters", message),
        };
        let key = ObjectKey::new(Kind::GatewayClass, "", name);
        statuses.insert(key, Arc::new(Status::GatewayClass { conditions: vec![condition] }));
    }
    out
}

/// Adds the statuses of Backends.
pub(crate) fn backends(view: &View<'_>, statuses: &mut BTreeMap<ObjectKey, Arc<Status>>) {
    for object in view.store.all::<Backend>() {
        let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
        let name = object.metadata.name.as_deref().unwrap_or_default();
        let make = Conditions::of(&object.metadata);
        let verdict = if view.config.extension_apis.backend {
            backend::check_backend(view, object)
        } else {
            Err("the Backend API is off; set extensionApis.enableBackend in the EnvoyGateway configuration".to_owned())
        };
        let condition = match verdict {
            Ok(()) => make.yes("Accepted", "Accepted", "The Backend is valid"),
            Err(message) => make.no("Accepted", "Invalid", message),
        };
        let key = ObjectKey::new(Kind::Backend, namespace, name);
        statuses.insert(key, Arc::new(Status::Plain { conditions: vec![condition] }));
    }
}
