use serde_json::{Value, json};

use super::*;
use crate::kubernetes::tests::{fleet, options};

fn rendered(spec: Value) -> Vec<Object> {
    render(&fleet("web", spec), "boot: strap\n", &options()).expect("rendered")
}

fn of(spec: Value, kind: ObjectKind) -> Value {
    rendered(spec).into_iter().find(|o| o.at.kind == kind).expect("rendered").tree
}

fn kubernetes(fields: Value) -> Value {
    json!({"provider": {"type": "Kubernetes", "kubernetes": fields}})
}

fn kinds(spec: Value) -> Vec<ObjectKind> {
    rendered(spec).into_iter().map(|o| o.at.kind).collect()
}

#[test]
fn the_same_fleet_gives_the_same_bytes() {
    let text = |objects: Vec<Object>| objects.iter().map(|o| o.tree.to_string()).collect::<Vec<_>>();
    assert_eq!(text(rendered(json!({}))), text(rendered(json!({}))));
    let pods = of(json!({}), ObjectKind::Deployment)["spec"]["template"].to_string();
    for word in ["infra-term", "infra-digest"] {
        assert!(!pods.contains(word), "{word} in the pods");
    }
}

#[test]
fn objects_come_when_they_are_asked_for() {
    use ObjectKind::*;
    assert_eq!(kinds(json!({})), [ServiceAccount, ConfigMap, Deployment, Service]);
    let all = kubernetes(json!({"envoyHpa": {"maxReplicas": 2}, "envoyPDB": {"minAvailable": 1}}));
    assert_eq!(
        kinds(all),
        [ServiceAccount, ConfigMap, Deployment, Service, HorizontalPodAutoscaler, PodDisruptionBudget]
    );
    assert_eq!(kinds(kubernetes(json!({"envoyDaemonSet": {}}))), [ServiceAccount, ConfigMap, DaemonSet, Service]);
}

#[test]
fn names_can_be_chosen() {
    let named = kubernetes(json!({
        "envoyDeployment": {"name": "pods"}, "envoyService": {"name": "front"}, "envoyHpa": {"name": "scaler", "maxReplicas": 2},
        "envoyPDB": {"name": "budget", "maxUnavailable": "50%"}, "envoyServiceAccount": {"name": "account"},
    }));
    let names: Vec<String> = rendered(named.clone()).iter().map(|o| o.at.name.to_string()).collect();
    assert_eq!(names[0], "account");
    assert_eq!(names[2..], ["pods", "front", "scaler", "budget"]);
    assert_eq!(of(named.clone(), ObjectKind::HorizontalPodAutoscaler)["spec"]["scaleTargetRef"]["name"], "pods");
    assert_eq!(of(named.clone(), ObjectKind::Deployment)["spec"]["template"]["spec"]["serviceAccountName"], "account");
    assert_eq!(of(named, ObjectKind::PodDisruptionBudget)["spec"]["maxUnavailable"], "50%");
}

#[test]
fn pods_are_as_asked_for() {
    let spec = json!({
        "concurrency": 3, "extraArgs": ["--disable-extensions", "x"],
        "logging": {"level": {"default": "info", "upstream": "debug"}},
        "shutdown": {"drainTimeout": "90s", "minDrainDuration": "500ms"},
        "telemetry": {"metrics": {"prometheus": {"disable": true}}},
        "provider": {"type": "Kubernetes", "kubernetes": {"envoyDeployment": {
            "replicas": 4, "strategy": {"type": "Recreate"},
            "container": {"imageRepository": "mirror.test/envoy", "env": [{"name": "ENVOY_POD_NAME", "value": "x"}, {"name": "A", "value": "b"}],
                "volumeMounts": [{"name": "more", "mountPath": "/more"}], "securityContext": {"runAsUser": 7}},
            "pod": {"labels": {"team": "x", "app.kubernetes.io/name": "mine"}, "annotations": {"n": "o"}, "nodeSelector": {"d": "ssd"},
                "priorityClassName": "high", "volumes": [{"name": "certs", "secret": {"secretName": "own"}}, {"name": "more", "emptyDir": {}}],
                "imagePullSecrets": [{"name": "pull"}], "tolerations": [{"key": "k"}]},
            "initContainers": [{"name": "first", "image": "i"}],
        }}},
    });
    let deployment = of(spec, ObjectKind::Deployment);
    assert_eq!(deployment["spec"]["replicas"], 4);
    assert_eq!(deployment["spec"]["strategy"], json!({"type": "Recreate"}));
    let (meta, pod) = (&deployment["spec"]["template"]["metadata"], &deployment["spec"]["template"]["spec"]);
    assert_eq!(meta["annotations"], json!({"n": "o"}), "no scrapes");
    assert_eq!((&meta["labels"]["team"], &meta["labels"]["app.kubernetes.io/name"]), (&json!("x"), &json!("envoy")));
    assert_eq!(deployment["spec"]["selector"]["matchLabels"].get("team"), None);
    assert_eq!(pod["terminationGracePeriodSeconds"], 390);
    assert_eq!(pod["volumes"][0], json!({"name": "certs", "secret": {"secretName": "own"}}));
    assert_eq!(pod["volumes"][2]["name"], "more");
    assert_eq!((&pod["nodeSelector"]["d"], &pod["priorityClassName"]), (&json!("ssd"), &json!("high")));
    assert_eq!(pod["initContainers"][0]["name"], "first");
    let (envoy, manager) = (&pod["containers"][0], &pod["containers"][1]);
    let args: Vec<&str> = envoy["args"].as_array().expect("args").iter().filter_map(Value::as_str).collect();
    let tail = [
        "--log-level",
        "info",
        "--cpuset-threads",
        "--drain-strategy",
        "immediate",
        "--concurrency",
        "3",
        "--component-log-level",
        "misc:error,upstream:debug",
        "--drain-time-s",
        "90",
        "--disable-extensions",
        "x",
    ];
    assert_eq!(args[6..], tail);
    assert!(
        envoy["image"].as_str().is_some_and(|i| i.starts_with("mirror.test/envoy:distroless-v")),
        "{}",
        envoy["image"]
    );
    assert_eq!(envoy["env"][1], json!({"name": "ENVOY_POD_NAME", "value": "x"}));
    assert_eq!(envoy["ports"], json!([{"containerPort": 19003, "name": "readiness", "protocol": "TCP"}]));
    assert_eq!(
        (&envoy["securityContext"], &manager["securityContext"]),
        (&json!({"runAsUser": 7}), &json!({"runAsUser": 7}))
    );
    assert_eq!(manager["args"], json!(["envoy", "shutdown-manager", "--ready-timeout=1m40s"]));
    assert_eq!(
        manager["lifecycle"]["preStop"]["exec"]["command"],
        json!(["envoy-gateway", "envoy", "shutdown", "--drain-timeout=1m30s", "--min-drain-duration=500ms"])
    );
}

#[test]
fn an_autoscaler_sets_the_replicas() {
    let spec =
        kubernetes(json!({"envoyDeployment": {"replicas": 4}, "envoyHpa": {"minReplicas": 2, "maxReplicas": 9}}));
    assert_eq!(of(spec.clone(), ObjectKind::Deployment)["spec"].get("replicas"), None);
    let scaler = of(spec, ObjectKind::HorizontalPodAutoscaler);
    assert_eq!((&scaler["spec"]["minReplicas"], &scaler["spec"]["maxReplicas"]), (&json!(2), &json!(9)));
}

#[test]
fn services_are_as_asked_for() {
    let spec = kubernetes(
        json!({"envoyService": {"type": "LoadBalancer", "externalTrafficPolicy": "Cluster", "loadBalancerClass": "c",
        "loadBalancerIP": "192.0.2.1", "loadBalancerSourceRanges": ["192.0.2.0/24"], "allocateLoadBalancerNodePorts": false,
        "annotations": {"a": "b"}, "labels": {"l": "m", "app.kubernetes.io/name": "x"}}}),
    );
    let service = of(spec, ObjectKind::Service);
    let spec = &service["spec"];
    assert_eq!((&spec["externalTrafficPolicy"], &spec["loadBalancerClass"]), (&json!("Cluster"), &json!("c")));
    assert_eq!((&spec["loadBalancerIP"], &spec["allocateLoadBalancerNodePorts"]), (&json!("192.0.2.1"), &json!(false)));
    assert_eq!(service["metadata"]["annotations"], json!({"a": "b"}));
    assert_eq!(
        (&service["metadata"]["labels"]["l"], &service["metadata"]["labels"]["app.kubernetes.io/name"]),
        (&json!("m"), &json!("envoy"))
    );
    let inside = of(
        kubernetes(json!({"envoyService": {"type": "ClusterIP", "loadBalancerIP": "192.0.2.1"}})),
        ObjectKind::Service,
    );
    assert_eq!((inside["spec"].get("externalTrafficPolicy"), inside["spec"].get("loadBalancerIP")), (None, None));
}

#[test]
fn patches_are_applied_last_and_leave_what_the_fleet_is_found_by() {
    let json_merge = kubernetes(
        json!({"envoyService": {"patch": {"type": "JSONMerge", "value": {"spec": {"sessionAffinity": null}}}}}),
    );
    assert_eq!(of(json_merge, ObjectKind::Service)["spec"].get("sessionAffinity"), None);
    let strategic =
        kubernetes(json!({"envoyDeployment": {"patch": {"value": {"spec": {"template": {"spec": {"containers": [
        {"name": "envoy", "env": [{"name": "X", "value": "y"}]}, {"name": "side", "image": "s"}]}}}}}}}));
    let deployment = of(strategic, ObjectKind::Deployment);
    let names: Vec<&Value> = deployment["spec"]["template"]["spec"]["containers"]
        .as_array()
        .expect("containers")
        .iter()
        .map(|c| &c["name"])
        .collect();
    assert_eq!(names, ["envoy", "side", "shutdown-manager"]);
    for value in [
        json!({"metadata": {"name": "other"}}),
        json!({"metadata": {"labels": {"gateway.envoyproxy.io/owning-gateway-name": "other"}}}),
        json!({"metadata": {"labels": null}}),
    ] {
        let spec = kubernetes(json!({"envoyDeployment": {"patch": {"type": "JSONMerge", "value": value}}}));
        let error = render(&fleet("web", spec), "", &options()).expect_err("a patch that loses the object");
        assert!(error.to_string().contains("the patch of the Deployment changes metadata."), "{error}");
    }
}

#[test]
fn fleets_beside_their_gateway_show_a_token() {
    let options = Options { gateway_namespaces: true, ..options() };
    let objects = render(&fleet("web", json!({})), "", &options).expect("rendered");
    assert!(objects.iter().all(|o| &*o.at.namespace == "app" && &*o.at.name == "web"));
    let map = &objects[1].tree["data"];
    assert!(
        map["xds_service_account_token.json"].as_str().is_some_and(|t| t.contains("/var/run/secrets/token/sa-token"))
    );
    let pod = &objects[2].tree["spec"]["template"]["spec"];
    assert_eq!(pod["volumes"][0]["projected"]["sources"][0]["serviceAccountToken"]["audience"], options.xds_host());
    assert_eq!(pod["containers"][0]["volumeMounts"][2]["mountPath"], "/var/run/secrets/token");
}
