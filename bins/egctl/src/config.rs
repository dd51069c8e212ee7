//! `egctl config`: what proxies and the control plane hold now.

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::Pod;
use resources::Kind;
use serde_json::{Map, Value};

use crate::{
    cli::{ConfigTarget, GatewayConfig, Pods, ProxyConfig, ProxyPart, Streams},
    cluster::{Cluster, place},
    output,
};

/// Labels of proxies.
const PROXIES: &str = "app.kubernetes.io/managed-by=envoy-gateway,app.kubernetes.io/component=proxy";
/// Labels of the control plane.
pub(crate) const CONTROL_PLANE: &str = "control-plane=envoy-gateway";

/// Short names of kinds, as `egctl config envoy-gateway` of the Go project knows them.
const SHORT: [(&str, &str); 24] = [
    ("gc", "GatewayClass"),
    ("gw", "Gateway"),
    ("ls", "ListenerSet"),
    ("hr", "HTTPRoute"),
    ("gr", "GRPCRoute"),
    ("tr", "TLSRoute"),
    ("tcr", "TCPRoute"),
    ("ur", "UDPRoute"),
    ("ctp", "ClientTrafficPolicy"),
    ("btp", "BackendTrafficPolicy"),
    ("btlsp", "BackendTLSPolicy"),
    ("sp", "SecurityPolicy"),
    ("epp", "EnvoyPatchPolicy"),
    ("eep", "EnvoyExtensionPolicy"),
    ("svc", "Service"),
    ("sec", "Secret"),
    ("cm", "ConfigMap"),
    ("ns", "Namespace"),
    ("eps", "EndpointSlice"),
    ("rg", "ReferenceGrant"),
    ("hrf", "HTTPRouteFilter"),
    ("ep", "EnvoyProxy"),
    ("be", "Backend"),
    ("si", "ServiceImport"),
];

/// Runs the command.
pub(crate) async fn run(target: &ConfigTarget, streams: &mut Streams<'_>) -> Result<bool> {
    let (pods, format, port, path, part) = match target {
        ConfigTarget::EnvoyProxy(ProxyConfig { part, pods, output, admin_port }) => {
            (pods, *output, *admin_port, "/config_dump?include_eds".to_owned(), Some(*part))
        }
        ConfigTarget::EnvoyGateway(GatewayConfig { kind, pods, output, admin_port }) => {
            let filter = kind_of(kind)?.map(|k| format!("&kind={k}")).unwrap_or_default();
            (pods, *output, *admin_port, format!("/api/config_dump?resource=all{filter}"), None)
        }
    };
    let cluster = Cluster::open(&pods.reach).await?;
    let labels = if part.is_some() { PROXIES } else { CONTROL_PLANE };
    let chosen = choose(&cluster, pods, labels).await?;
    let mut tree: Map<String, Value> = Map::new();
    let mut complete = true;
    for pod in &chosen {
        let (namespace, name) = place(pod);
        match cluster.ask_pod(pod, port, &path).await {
            Ok(answer) => {
                let answer = part.map_or_else(|| answer.clone(), |p| select(&answer, p));
                if let Value::Object(pods) = tree.entry(namespace).or_insert_with(|| Map::new().into()) {
                    pods.insert(name.to_owned(), answer);
                }
            }
            // Others may answer.
            Err(e) if chosen.len() > 1 => {
                writeln!(streams.err, "left out: {e:#}")?;
                complete = false;
            }
            Err(e) => return Err(e),
        }
    }
    streams.out.write_all(output::one(&Value::Object(tree), format)?.as_bytes())?;
    Ok(complete)
}

/// The pod by name, or those that the labels choose.
pub(crate) async fn choose(cluster: &Cluster, pods: &Pods, default: &str) -> Result<Vec<Pod>> {
    if let Some(name) = &pods.pod {
        return Ok(vec![cluster.pod(&pods.namespace, name).await?]);
    }
    let labels = pods.labels.as_deref().unwrap_or(default);
    let namespace = (!pods.all_namespaces).then_some(&*pods.namespace);
    let chosen = cluster.pods(namespace, labels).await?;
    if chosen.is_empty() {
        let place = namespace
            .map_or_else(|| "any namespace".to_owned(), |n| format!("namespace {n}; -n and -A look elsewhere"));
        bail!("no pod has the labels {labels} in {place}");
    }
    Ok(chosen)
}

/// The kind that a name or short name means; none for `all`.
fn kind_of(asked: &str) -> Result<Option<Kind>> {
    let asked = asked.to_ascii_lowercase();
    if asked == "all" {
        return Ok(None);
    }
    let long = SHORT.iter().find(|(short, _)| *short == asked).map(|(_, long)| *long);
    let kind = Kind::ALL.iter().find(|k| long.is_some_and(|l| l == k.as_str()) || names(k.as_str(), &asked));
    let known = || Kind::ALL.iter().map(|k| k.as_str().to_ascii_lowercase()).collect::<Vec<_>>().join(", ");
    kind.copied().map(Some).with_context(|| format!("no kind is called {asked}; there are all, {}", known()))
}

/// Whether `asked` is the kind's name, in the singular or plural.
pub(crate) fn names(kind: &str, asked: &str) -> bool {
    let kind = kind.to_ascii_lowercase();
    asked == kind
        || asked.strip_suffix('s') == Some(&*kind)
        || asked.strip_suffix("es") == Some(&*kind)
        || asked.strip_suffix("ies").is_some_and(|stem| kind.strip_suffix('y') == Some(stem))
}

/// Of a configuration dump, the part that was asked for.
fn select(dump: &Value, part: ProxyPart) -> Value {
    let name = match part {
        ProxyPart::All => return dump.clone(),
        ProxyPart::Bootstrap => "BootstrapConfigDump",
        ProxyPart::Cluster => "ClustersConfigDump",
        ProxyPart::Endpoint => "EndpointsConfigDump",
        ProxyPart::Listener => "ListenersConfigDump",
        ProxyPart::Route => "RoutesConfigDump",
    };
    let wanted = format!("type.googleapis.com/envoy.admin.v3.{name}");
    let found = dump["configs"].as_array().into_iter().flatten().find(|c| c["@type"] == wanted.as_str());
    // A proxy without, say, route tables has no such part.
    found.cloned().unwrap_or_else(|| serde_json::json!({"@type": wanted}))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn kinds_by_name_plural_and_short_name() {
        for (asked, kind) in [
            ("httproute", Kind::HttpRoute),
            ("HTTPRoutes", Kind::HttpRoute),
            ("hr", Kind::HttpRoute),
            ("btlsp", Kind::BackendTlsPolicy),
            ("envoyproxies", Kind::EnvoyProxy),
            ("sec", Kind::Secret),
        ] {
            assert_eq!(kind_of(asked).unwrap(), Some(kind), "{asked}");
        }
        assert_eq!(kind_of("all").unwrap(), None);
        assert!(kind_of("pods").unwrap_err().to_string().contains("there are all, gatewayclass"));
        for (_, long) in SHORT {
            assert!(Kind::ALL.iter().any(|k| k.as_str() == long), "{long}");
        }
    }

    #[test]
    fn one_part_of_a_dump() {
        let of = |name: &str| json!({"@type": format!("type.googleapis.com/envoy.admin.v3.{name}"), "x": name});
        let dump = json!({"configs": [of("BootstrapConfigDump"), of("ClustersConfigDump")]});
        assert_eq!(select(&dump, ProxyPart::Cluster)["x"], "ClustersConfigDump");
        assert_eq!(select(&dump, ProxyPart::All), dump);
        assert_eq!(select(&dump, ProxyPart::Route).as_object().unwrap().len(), 1);
    }
}
