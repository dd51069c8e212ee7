//! What is otherwise on purpose than in the chart of the Go Envoy Gateway, and why. `deploy/README.md` tells the same to
//! readers.

/// Values with which the chart's defaults are those of the Go chart: more than one replica by default, spread over nodes
/// and evicted one by one, and what a start in an outage needs, are what this chart adds.
pub const GO_DEFAULTS: &str = "\
deployment:
  replicas: 1
  envoyGateway:
    lastGoodState: {enabled: false}
  pod:
    topologySpreadConstraints: []
podDisruptionBudget:
  auto: false
";

/// Differences of single lines as [`crate::objects::differences`] tells them (`*` stands for anything), each with its
/// reason.
pub const EXPLAINED: &[(&str, &str)] = &[
    ("*Role *-envoy-gateway-role: rules.update *", "statuses and finalizers are patched, nothing is replaced"),
    ("*Role *-envoy-gateway-role: rules.patch */status*", "statuses are patched"),
    ("*Role *-envoy-gateway-role: rules.* apps/d*", "workloads are read where proxies run only; see infra-manager"),
    (
        "ClusterRole *-envoy-gateway-role: rules.* apiextensions.k8s.io/customresourcedefinitions: nothing in golden*",
        "definitions that appear later are noticed at once",
    ),
    (
        "Role envoy-gateway-system/*-envoy-gateway-role: with it",
        "where namespaces are watched by name, the control plane's own is watched too",
    ),
    ("RoleBinding envoy-gateway-system/*-envoy-gateway-rolebinding: with it", "as the role"),
    ("Role envoy-gateway-system/*-infra-manager: rules.* /secrets: *", "part of the role in the own namespace"),
    ("*Role *-infra-manager: rules.* certificates.k8s.io/clustertrustbundles*", "not read"),
    (
        "*Role *-envoy-gateway-role: rules.* /pods*",
        "the topology injector writes no pods; it reads them where proxies run",
    ),
    ("*Role *-infra-manager: rules.deletecollection *", "objects are deleted one by one, each as it was seen"),
    ("*Role *-infra-manager: rules.get /pods: nothing in golden*", "for the topology injector"),
    ("Role *-leader-election-role: rules.* /configmaps: *", "the election is on a Lease alone"),
    ("Role *-leader-election-role: rules.delete coordination.k8s.io/leases: *", "a Lease is never deleted"),
    ("Role *-leader-election-role: rules.patch coordination.k8s.io/leases: *", "a Lease is created and replaced"),
    ("Role *-leader-election-role: rules.patch /events: *", "Events are created, never changed"),
    (
        "ClusterRole *-certgen:*: rules.* admissionregistration.k8s.io/mutatingwebhookconfigurations*",
        "one webhook configuration, by name, is read and patched",
    ),
    (
        "ConfigMap */envoy-gateway-config: data.envoy-gateway.yaml.p*roxyTopologyInjector: *",
        "the switch is where the control plane reads it, under provider.kubernetes",
    ),
    (
        "ConfigMap */envoy-gateway-config: data.envoy-gateway.yaml.provider.kubernetes.watch.type: nothing in golden*",
        "namespaces without a type are refused by either control plane; the chart adds the type",
    ),
    (
        "ConfigMap */envoy-gateway-config: data.envoy-gateway.yaml.envoyProxy.provider.kubernetes.envoyDeployment.container.imagePullPolicy: *",
        "there is no such field; see the next",
    ),
    (
        "ConfigMap */envoy-gateway-config: data.envoy-gateway.yaml.envoyProxy.provider.kubernetes.envoyDeployment.patch: nothing in golden*",
        "the pull policy of proxies as a patch of their Deployment, where it has an effect",
    ),
    (
        "ValidatingAdmissionPolicy safe-upgrades.gateway.networking.k8s.io: spec.validations[*",
        "the rules in words of our own; tests/chart shows that they judge alike",
    ),
];

/// Whether `pattern`, in which `*` stands for anything, is all of `line`.
#[must_use]
pub fn matches(pattern: &str, line: &str) -> bool {
    let Some((head, tail)) = pattern.split_once('*') else { return pattern == line };
    let Some(rest) = line.strip_prefix(head) else { return false };
    (0..=rest.len()).any(|i| rest.is_char_boundary(i) && matches(tail, &rest[i..]))
}

/// The reason for a difference, if it is on purpose.
#[must_use]
pub fn reason(line: &str) -> Option<&'static str> {
    EXPLAINED.iter().find(|(pattern, _)| matches(pattern, line)).map(|(_, why)| *why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_anything() {
        assert!(matches("a*c", "abc") && matches("a*c", "ac") && matches("*", "") && matches("a*b*", "axbxb"));
        assert!(!matches("a*c", "abd") && !matches("a", "ab") && !matches("a*b", "ba"));
    }
}
