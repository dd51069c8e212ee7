//! What the chart makes by default and by its main switches.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use chart::{
    NAMESPACE, helm_bin,
    objects::{Objects, parse, rights},
    render, repository,
};
use serde_json::{Value, json};

fn get<'a>(objects: &'a Objects, name: &str) -> Result<&'a Value> {
    objects.get(name).with_context(|| format!("no {name} in {:?}", objects.keys()))
}

#[test]
fn by_default_the_loss_of_a_replica_is_not_noticed() -> Result<()> {
    let Some(helm) = helm_bin() else { return Ok(()) };
    let objects = parse(&render(&helm, "eg", &[])?)?;
    let deployment = get(&objects, &format!("Deployment {NAMESPACE}/envoy-gateway"))?;
    ensure!(deployment["spec"]["replicas"] == 2);
    let pod = &deployment["spec"]["template"];
    let spread = &pod["spec"]["topologySpreadConstraints"][0];
    ensure!(spread["topologyKey"] == "kubernetes.io/hostname" && spread["whenUnsatisfiable"] == "ScheduleAnyway");
    let selector = &deployment["spec"]["selector"]["matchLabels"];
    ensure!(spread["labelSelector"]["matchLabels"] == *selector);
    for (label, value) in selector.as_object().context("a selector")? {
        ensure!(pod["metadata"]["labels"][label] == *value, "{label}");
    }
    let budget = get(&objects, &format!("PodDisruptionBudget {NAMESPACE}/envoy-gateway"))?;
    ensure!(budget["spec"]["maxUnavailable"] == 1 && budget["spec"]["selector"]["matchLabels"] == *selector);
    let container = &pod["spec"]["containers"][0];
    ensure!(container["readinessProbe"]["httpGet"] == json!({"path": "/readyz", "port": 8081}));
    ensure!(container["livenessProbe"]["httpGet"] == json!({"path": "/healthz", "port": 8081}));
    ensure!(container["securityContext"]["readOnlyRootFilesystem"] == true);
    Ok(())
}

#[test]
fn a_single_replica_may_be_evicted() -> Result<()> {
    let Some(helm) = helm_bin() else { return Ok(()) };
    let budget = |values: &str| -> Result<Option<Value>> {
        let mut objects = parse(&render(&helm, "eg", &[values])?)?;
        Ok(objects.remove(&format!("PodDisruptionBudget {NAMESPACE}/envoy-gateway")).map(|b| b["spec"].clone()))
    };
    ensure!(budget("deployment: {replicas: 1}")?.is_none());
    ensure!(budget("podDisruptionBudget: {auto: false}")?.is_none());
    let own =
        budget("podDisruptionBudget: {minAvailable: 1, unhealthyPodEvictionPolicy: AlwaysAllow}")?.context("none")?;
    // A budget with both is refused by the API server.
    ensure!(own["minAvailable"] == 1 && own.get("maxUnavailable").is_none(), "{own}");
    ensure!(own["unhealthyPodEvictionPolicy"] == "AlwaysAllow");
    let scaled = budget("deployment: {replicas: 1}\nhpa: {enabled: true, minReplicas: 2, maxReplicas: 4}")?;
    ensure!(scaled.context("none")?["maxUnavailable"] == 1);
    Ok(())
}

#[test]
fn namespaces_by_name_need_no_rights_in_others() -> Result<()> {
    let Some(helm) = helm_bin() else { return Ok(()) };
    let values = "config: {envoyGateway: {provider: {kubernetes: {watch: {type: Namespaces, namespaces: [app]}}}}}";
    let objects = parse(&render(&helm, "eg", &[values])?)?;
    let everywhere = rights(get(&objects, "ClusterRole eg-gateway-helm-envoy-gateway-role")?);
    for right in &everywhere {
        let of = right.split(' ').nth(1).unwrap_or_default();
        let global = ["/nodes", "/namespaces", "gatewayclasses", "serviceimports", "customresourcedefinitions"];
        ensure!(global.iter().any(|g| of.contains(g)), "cluster-wide: {right}");
    }
    for namespace in ["app", NAMESPACE] {
        let there = rights(get(&objects, &format!("Role {namespace}/eg-gateway-helm-envoy-gateway-role"))?);
        ensure!(there.contains("watch gateway.networking.k8s.io/httproutes"), "{there:?}");
        get(&objects, &format!("RoleBinding {namespace}/eg-gateway-helm-envoy-gateway-rolebinding"))?;
    }
    ensure!(!objects.keys().any(|n| n.contains("namespaced-infra-manager")), "proxies run beside the control plane");
    Ok(())
}

#[test]
fn the_plain_manifest_is_what_the_chart_makes() -> Result<()> {
    let Some(helm) = helm_bin() else { return Ok(()) };
    let manifest = std::fs::read_to_string(repository("deploy/install.yaml"))?;
    let out = Command::new(repository("deploy/manifest.sh")).output()?;
    ensure!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    ensure!(String::from_utf8(out.stdout)? == manifest, "run: deploy/manifest.sh > deploy/install.yaml");

    // Nothing was lost on the way but what only helm reads.
    let (plain, mut chart) = (parse(&manifest)?, parse(&render(&helm, "eg", &["createNamespace: true"])?)?);
    for object in chart.values_mut() {
        let Some(metadata) = object["metadata"].as_object_mut() else { continue };
        metadata["name"].as_str().context("a name")?;
        for map in ["labels", "annotations"] {
            let Some(Value::Object(entries)) = metadata.get_mut(map) else { continue };
            entries.retain(|k, _| !k.starts_with("helm.sh/") && k != "app.kubernetes.io/managed-by");
            if entries.is_empty() {
                metadata.remove(map);
            }
        }
    }
    ensure!(plain == chart);
    Ok(())
}

#[test]
fn the_image_runs_as_the_user_of_the_chart() -> Result<()> {
    let Some(helm) = helm_bin() else { return Ok(()) };
    let file = std::fs::read_to_string(repository("deploy/Dockerfile"))?;
    let user = file.lines().find_map(|l| l.strip_prefix("USER ")).context("no USER")?;
    for (name, object) in parse(&render(&helm, "eg", &[])?)? {
        let pod = &object["spec"]["template"]["spec"];
        for container in pod["containers"].as_array().into_iter().flatten() {
            let context = &container["securityContext"];
            ensure!(user == format!("{}:{}", context["runAsUser"], context["runAsGroup"]), "{name}: {user}");
            ensure!(context["runAsNonRoot"] == true && pod["securityContext"]["runAsNonRoot"] == true, "{name}");
        }
    }
    Ok(())
}
