//! The Deployment or DaemonSet: pods with Envoy and its shutdown manager.

use std::collections::BTreeMap;

use api::envoygateway::{KubernetesContainerSpec, KubernetesPodSpec, ShutdownConfig};
use serde_json::{Value, json};

use super::{Context, RenderError, patched, service_account, set};
use crate::{
    kubernetes::{
        names,
        object::{Object, ObjectKind},
    },
    shutdown,
};

/// Port of the readiness listener, which comes by xDS.
const READINESS_PORT: u16 = 19003;
/// Port of the statistics for scrapes.
const METRICS_PORT: u16 = 19001;
/// User and group that nobody is.
const NOBODY: u32 = 65532;
/// Time beyond the drain that a pod may take to end, in seconds.
const GRACE: u64 = 300;
/// Time beyond the drain that the shutdown manager waits for it, in seconds.
const READY: u64 = 10;
/// Where the token for the control plane is.
pub(super) const TOKEN_FILE: &str = "/var/run/secrets/token/sa-token";
/// Entry of the ConfigMap that names it.
pub(super) const TOKEN_SDS: &str = "xds_service_account_token.json";

// === impl Context ===

impl Context<'_> {
    /// The Deployment, or the DaemonSet where one is asked for.
    pub(super) fn workload(&self) -> Result<Object, RenderError> {
        if let Some(set_of) = &self.provider.envoy_daemon_set {
            let template = self.template(set_of.pod.as_ref(), set_of.container.as_ref(), &[])?;
            let mut spec = json!({
                "revisionHistoryLimit": 10,
                "selector": {"matchLabels": names::selector(self.proxy)},
                "template": template,
                "updateStrategy": {"type": "RollingUpdate"},
            });
            set(&mut spec, "updateStrategy", &set_of.strategy)?;
            let name = set_of.name.as_deref().unwrap_or(&self.name);
            let object = self.object(ObjectKind::DaemonSet, name, json!({"spec": spec}));
            return patched(object, set_of.patch.as_ref());
        }
        let deployment = self.provider.envoy_deployment.clone().unwrap_or_default();
        let init = serde_json::to_value(&deployment.init_containers)?;
        let init = init.as_array().cloned().unwrap_or_default();
        let template = self.template(deployment.pod.as_ref(), deployment.container.as_ref(), &init)?;
        let mut spec = json!({
            "progressDeadlineSeconds": 600,
            "revisionHistoryLimit": 10,
            "selector": {"matchLabels": names::selector(self.proxy)},
            "strategy": {"type": "RollingUpdate"},
            "template": template,
        });
        set(&mut spec, "strategy", &deployment.strategy)?;
        // An autoscaler sets the replicas.
        if self.provider.envoy_hpa.is_none() {
            set(&mut spec, "replicas", deployment.replicas)?;
        }
        let name = deployment.name.as_deref().unwrap_or(&self.name);
        let object = self.object(ObjectKind::Deployment, name, json!({"spec": spec}));
        patched(object, deployment.patch.as_ref())
    }

    fn template(
        &self,
        pod: Option<&KubernetesPodSpec>,
        container: Option<&KubernetesContainerSpec>,
        init: &[Value],
    ) -> Result<Value, RenderError> {
        let (pod, container) = (pod.cloned().unwrap_or_default(), container.cloned().unwrap_or_default());
        let mut labels = names::labels(self.proxy);
        for (name, value) in &pod.labels {
            // Those that the selector looks for stay.
            labels.entry(name.clone()).or_insert_with(|| value.clone());
        }
        let mut annotations: BTreeMap<&str, &str> = self.proxy.annotations.iter().map(|(k, v)| (&**k, &**v)).collect();
        if self.prometheus() {
            annotations.insert("prometheus.io/path", "/stats/prometheus");
            annotations.insert("prometheus.io/port", "19001");
            annotations.insert("prometheus.io/scrape", "true");
        }
        annotations.extend(pod.annotations.iter().map(|(k, v)| (k.as_str(), v.as_str())));
        let mut metadata = json!({"labels": labels});
        set(&mut metadata, "annotations", annotations)?;
        let mut spec = json!({
            "automountServiceAccountToken": false,
            "containers": [self.envoy(&container)?, self.shutdown_manager(&container)?],
            "dnsPolicy": "ClusterFirst",
            "restartPolicy": "Always",
            "schedulerName": "default-scheduler",
            "serviceAccountName": service_account(self.proxy, self.options).1,
            "terminationGracePeriodSeconds": self.drain_seconds() + GRACE,
            "volumes": self.volumes(&pod)?,
        });
        set(&mut spec, "initContainers", init)?;
        set(&mut spec, "securityContext", &pod.security_context)?;
        set(&mut spec, "affinity", &pod.affinity)?;
        set(&mut spec, "tolerations", &pod.tolerations)?;
        set(&mut spec, "imagePullSecrets", &pod.image_pull_secrets)?;
        set(&mut spec, "nodeSelector", &pod.node_selector)?;
        set(&mut spec, "topologySpreadConstraints", &pod.topology_spread_constraints)?;
        set(&mut spec, "priorityClassName", &pod.priority_class_name)?;
        Ok(json!({"metadata": metadata, "spec": spec}))
    }

    fn envoy(&self, own: &KubernetesContainerSpec) -> Result<Value, RenderError> {
        let mut ports = Vec::new();
        if self.prometheus() {
            ports.push(json!({"containerPort": METRICS_PORT, "name": "metrics", "protocol": "TCP"}));
        }
        ports.push(json!({"containerPort": READINESS_PORT, "name": "readiness", "protocol": "TCP"}));
        let mut mounts = vec![
            json!({"mountPath": "/certs", "name": "certs", "readOnly": true}),
            json!({"mountPath": "/sds", "name": "sds"}),
        ];
        if self.options.gateway_namespaces {
            mounts.push(json!({"mountPath": "/var/run/secrets/token", "name": "sa-token", "readOnly": true}));
        }
        let mut env = environment();
        let own_env = serde_json::to_value(&own.env)?;
        override_by(&mut env, own_env, "name");
        override_by(&mut mounts, serde_json::to_value(&own.volume_mounts)?, "mountPath");
        let mut out = json!({
            "name": "envoy",
            "image": self.image(own),
            "imagePullPolicy": "IfNotPresent",
            "command": ["envoy"],
            "args": self.arguments(),
            "env": env,
            "lifecycle": {"preStop": {"httpGet": {
                "path": shutdown::READY_PATH, "port": shutdown::PORT, "scheme": "HTTP",
            }}},
            "ports": ports,
            "resources": {"requests": {"cpu": "100m", "memory": "512Mi"}},
            "securityContext": security(),
            "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
            "volumeMounts": mounts,
        });
        probes(&mut out, "/ready", READINESS_PORT, 1, 5);
        set(&mut out, "resources", &own.resources)?;
        set(&mut out, "securityContext", &own.security_context)?;
        Ok(out)
    }

    fn shutdown_manager(&self, own: &KubernetesContainerSpec) -> Result<Value, RenderError> {
        let mut args = vec!["envoy".to_owned(), "shutdown-manager".to_owned()];
        let mut stop = vec!["envoy-gateway".to_owned(), "envoy".to_owned(), "shutdown".to_owned()];
        if let Some(ShutdownConfig { drain_timeout, min_drain_duration, health_check_failure_delay }) =
            &self.proxy.settings.shutdown
        {
            if drain_timeout.is_some() {
                args.push(format!("--ready-timeout={}", go_duration(self.drain_seconds() + READY)));
                stop.push(format!("--drain-timeout={}", go_duration(self.drain_seconds())));
            }
            if let Some(least) = min_drain_duration {
                stop.push(format!("--min-drain-duration={}", go_text(least)));
            }
            if let Some(delay) = health_check_failure_delay {
                stop.push(format!("--health-check-failure-delay={}", go_text(delay)));
            }
        }
        let mut out = json!({
            "name": "shutdown-manager",
            "image": self.options.shutdown_image,
            "imagePullPolicy": "IfNotPresent",
            "command": ["envoy-gateway"],
            "args": args,
            "env": environment(),
            "lifecycle": {"preStop": {"exec": {"command": stop}}},
            "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
            "securityContext": security(),
            "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
        });
        probes(&mut out, shutdown::HEALTH_PATH, shutdown::PORT, 3, 10);
        set(&mut out, "securityContext", &own.security_context)?;
        Ok(out)
    }

    fn image(&self, own: &KubernetesContainerSpec) -> String {
        match (&own.image, &own.image_repository) {
            (Some(image), _) => image.clone(),
            (None, Some(repository)) => {
                let default = &self.options.envoy_image;
                let tag =
                    default.rsplit('/').next().and_then(|last| last.split_once(':')).map_or("latest", |(_, tag)| tag);
                format!("{repository}:{tag}")
            }
            (None, None) => self.options.envoy_image.clone(),
        }
    }

    fn arguments(&self) -> Vec<String> {
        let settings = &self.proxy.settings;
        let level = settings.logging.as_ref().map(|l| &l.level);
        let default = level.and_then(|l| l.get("default")).map_or("warn", |l| l.as_str());
        let mut components: BTreeMap<&str, &str> = BTreeMap::from([("misc", "error")]);
        let own = level.into_iter().flatten().filter(|(component, _)| *component != "default");
        components.extend(own.map(|(component, level)| (component.as_str(), level.as_str())));
        let components: Vec<String> = components.iter().map(|(c, l)| format!("{c}:{l}")).collect();
        let mut out: Vec<String> = [
            "--service-cluster",
            &self.proxy.group,
            "--service-node",
            "$(ENVOY_POD_NAME)",
            "--config-yaml",
            self.bootstrap,
            "--log-level",
            default,
            "--cpuset-threads",
            "--drain-strategy",
            "immediate",
        ]
        .map(str::to_owned)
        .into();
        if let Some(threads) = settings.concurrency {
            out.extend(["--concurrency".to_owned(), threads.to_string()]);
        }
        out.extend(["--component-log-level".to_owned(), components.join(",")]);
        out.extend(["--drain-time-s".to_owned(), self.drain_seconds().to_string()]);
        out.extend(settings.extra_args.iter().cloned());
        out
    }

    fn volumes(&self, pod: &KubernetesPodSpec) -> Result<Vec<Value>, RenderError> {
        let items = |names: &[&str]| -> Vec<Value> { names.iter().map(|n| json!({"key": n, "path": n})).collect() };
        let of_map = |volume: &str, names: &[&str]| {
            json!({"name": volume, "configMap": {
                "name": self.name, "items": items(names), "defaultMode": 420, "optional": false,
            }})
        };
        let mut out = if self.options.gateway_namespaces {
            vec![
                json!({"name": "sa-token", "projected": {"defaultMode": 420, "sources": [{"serviceAccountToken": {
                    "audience": self.options.xds_host(), "expirationSeconds": 3600, "path": "sa-token",
                }}]}}),
                of_map("certs", &["ca.crt"]),
                of_map("sds", &["xds-trusted-ca.json", TOKEN_SDS]),
            ]
        } else {
            vec![
                json!({"name": "certs", "secret": {"defaultMode": 420, "secretName": "envoy"}}),
                of_map("sds", &["xds-trusted-ca.json", "xds-certificate.json"]),
            ]
        };
        override_by(&mut out, serde_json::to_value(&pod.volumes)?, "name");
        Ok(out)
    }

    fn drain_seconds(&self) -> u64 {
        let own = self.proxy.settings.shutdown.as_ref().and_then(|s| s.drain_timeout.as_ref());
        own.and_then(|d| d.get().ok()).map_or(60, |d| d.as_secs())
    }

    fn prometheus(&self) -> bool {
        let metrics = self.proxy.settings.telemetry.as_ref().and_then(|t| t.metrics.as_ref());
        metrics.and_then(|m| m.prometheus.as_ref()).and_then(|p| p.disable) != Some(true)
    }
}

/// Adds the items of `own`; one that has the key of another takes its place.
fn override_by(items: &mut Vec<Value>, own: Value, key: &str) {
    let Value::Array(own) = own else { return };
    for item in own {
        match items.iter_mut().find(|i| i[key] == item[key]) {
            Some(old) => *old = item,
            None => items.push(item),
        }
    }
}

fn environment() -> Vec<Value> {
    let of = |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}});
    vec![
        of("ENVOY_POD_NAMESPACE", "metadata.namespace"),
        of("ENVOY_POD_NAME", "metadata.name"),
        of("ENVOY_SERVICE_ZONE", "metadata.annotations['topology.kubernetes.io/zone']"),
    ]
}

fn probes(container: &mut Value, path: &str, port: u16, unready_after: u32, ready_period: u32) {
    let probe = |failures: u32, period: u32| {
        json!({
            "httpGet": {"path": path, "port": port, "scheme": "HTTP"},
            "failureThreshold": failures,
            "periodSeconds": period,
            "successThreshold": 1,
            "timeoutSeconds": 1,
        })
    };
    container["startupProbe"] = probe(30, 10);
    container["livenessProbe"] = probe(3, 10);
    container["readinessProbe"] = probe(unready_after, ready_period);
}

fn security() -> Value {
    json!({
        "allowPrivilegeEscalation": false,
        "capabilities": {"drop": ["ALL"]},
        "privileged": false,
        "runAsGroup": NOBODY,
        "runAsNonRoot": true,
        "runAsUser": NOBODY,
        "seccompProfile": {"type": "RuntimeDefault"},
    })
}

/// Seconds as Go writes durations: `1m30s`.
fn go_duration(seconds: u64) -> String {
    let (hours, minutes, rest) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match (hours, minutes) {
        (0, 0) => format!("{rest}s"),
        (0, _) => format!("{minutes}m{rest}s"),
        _ => format!("{hours}h{minutes}m{rest}s"),
    }
}

fn go_text(duration: &api::envoygateway::Duration) -> String {
    let Ok(time) = duration.get() else { return duration.to_string() };
    let millis = time.as_millis();
    if millis % 1000 == 0 {
        return go_duration(u64::try_from(millis / 1000).unwrap_or(u64::MAX));
    }
    format!("{millis}ms")
}
