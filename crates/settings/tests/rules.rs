//! Each rule by its smallest example: what is refused, with which field and remedy, and what is only warned of.

use settings::{Loaded, Problem, SettingsError};

const HEAD: &str = "apiVersion: gateway.envoyproxy.io/v1alpha1\nkind: EnvoyGateway\n";

fn parse(body: &str) -> Result<Loaded, SettingsError> {
    settings::parse(&format!("{HEAD}{body}"), "eg.yaml", std::iter::empty())
}

#[track_caller]
fn refused(body: &str, field: &str, reason: &str) {
    let error = parse(body).map(|loaded| format!("{:?}", loaded.config)).expect_err(body);
    let found = error.problems().iter().any(|problem| problem.field == field && problem.reason.contains(reason));
    assert!(found, "{body}\nexpected {field}: {reason}\ngot {error}");
    assert!(
        error.problems().iter().all(|problem| problem.origin == "eg.yaml" && !problem.remedy.is_empty()),
        "{error}"
    );
}

#[track_caller]
fn accepted(body: &str) -> Loaded {
    parse(body).unwrap_or_else(|error| panic!("{body}\n{error}"))
}

#[test]
fn kind_and_version() {
    let kinds = [
        ("kind: EnvoyGateway", "apiVersion", "missing"),
        ("apiVersion: gateway.envoyproxy.io/v1alpha1", "kind", "missing"),
        ("apiVersion: gateway.envoyproxy.io/v1\nkind: EnvoyGateway", "apiVersion", "no configuration of this program"),
        ("apiVersion: gateway.envoyproxy.io/v1alpha1\nkind: EnvoyProxy", "kind", "no configuration of this program"),
        ("", "apiVersion", "missing"),
    ];
    for (text, field, reason) in kinds {
        let error = settings::parse(text, "eg.yaml", std::iter::empty()).unwrap_err();
        assert!(matches!(error, SettingsError::Decode(_)));
        assert_eq!(error.problems()[0].field, field, "{text}");
        assert!(error.problems()[0].reason.contains(reason), "{error}");
    }
}

#[test]
fn text_that_is_no_document() {
    for (body, line) in [("admin: {\n", 0), ("gateway: {}\ngateway: {}\n", 4), ("a: b: c\n", 3), ("---\nkind: X\n", 0)]
    {
        match parse(body).expect_err(body) {
            SettingsError::Syntax { file, line: found, .. } => {
                assert_eq!(file, "eg.yaml");
                assert!(line == 0 || found == line, "{body}: line {found}");
            }
            other => panic!("{body}: {other}"),
        }
    }
}

#[test]
fn syntax_errors_show_no_text_of_the_file() {
    let error = parse("rateLimit:\n  url: redis://u:secret@h\n  url: again\n").unwrap_err();
    assert!(!error.to_string().contains("secret"), "{error}");
}

#[test]
fn types() {
    refused("admin:\n  address:\n    port: http\n", "admin.address.port", "invalid type");
    refused("admin:\n  address:\n    port: 70000\n", "admin.address.port", "invalid value");
    refused("admin:\n  enablePprof: maybe\n", "admin.enablePprof", "invalid type");
    refused("provider:\n  type: Nomad\n", "provider.type", "none of those known");
    refused("provider: {}\n", "provider.type", "missing");
    refused("logging:\n  level:\n    default: loud\n", "logging.level.default", "none of those known");
    refused("logging:\n  level:\n    nonsense: info\n", "logging.level.nonsense", "no such component");
    refused("xdsServer:\n  maxConnectionAge: soon\n", "xdsServer.maxConnectionAge", "invalid duration \"soon\"");
    refused("xdsServer:\n  maxReceiveMessageSize: 8MB\n", "xdsServer.maxReceiveMessageSize", "invalid size");
    refused(
        "telemetry:\n  metrics:\n    sinks:\n    - openTelemetry: {}\n",
        "telemetry.metrics.sinks[0].openTelemetry.host",
        "missing",
    );
}

#[test]
fn messages_say_everything() {
    assert_eq!(
        parse("provider:\n  type: Nomad\n").unwrap_err().to_string(),
        "eg.yaml: provider.type: the value is none of those known (found \"Nomad\"); write one of Kubernetes, Custom"
    );
    assert_eq!(
        parse("xdsServer:\n  maxConnectionAge: 5 minutes\n").unwrap_err().to_string(),
        "eg.yaml: xdsServer.maxConnectionAge: invalid duration \"5 minutes\" (found \"5 minutes\"); write numbers with the unit h, m, s or ms, such as \"15s\", \"1m30s\" or \"100ms\""
    );
}

#[test]
fn all_rules_are_checked_at_once() {
    let error =
        parse("gateway: {}\nxdsServer:\n  maxConnectionAge: 0s\nadmin:\n  address:\n    host: ''\n").unwrap_err();
    let fields: Vec<_> = error.problems().iter().map(|problem| problem.field.as_str()).collect();
    assert_eq!(fields, ["gateway.controllerName", "admin.address.host", "xdsServer.maxConnectionAge"]);
}

#[test]
fn providers() {
    let kubernetes = |watch: &str| format!("provider:\n  type: Kubernetes\n  kubernetes:\n    watch: {watch}\n");
    refused(&kubernetes("{}"), "provider.kubernetes.watch.type", "watch mode invalid");
    refused(&kubernetes("{ type: Namespaces }"), "provider.kubernetes.watch.namespaces", "should be specified");
    refused(
        &kubernetes("{ type: NamespaceSelector }"),
        "provider.kubernetes.watch.namespaceSelector",
        "should be specified",
    );
    accepted(&kubernetes("{ type: Namespaces, namespaces: [a] }"));
    refused(
        "provider:\n  type: Kubernetes\n  kubernetes:\n    client: { rateLimit: { qps: 0 } }\n",
        "provider.kubernetes.client.rateLimit.qps",
        "no request",
    );

    let custom = |body: &str| format!("provider:\n  type: Custom\n  custom: {body}\n");
    refused("provider:\n  type: Custom\n", "provider.custom", "empty custom provider settings");
    refused(&custom("{}"), "provider.custom.resource", "missing");
    refused(&custom("{ resource: {} }"), "provider.custom.resource.type", "missing");
    refused(&custom("{ resource: { type: File } }"), "provider.custom.resource.file", "should be specified");
    refused(&custom("{ resource: { type: File, file: {} } }"), "provider.custom.resource.file.paths", "no paths");
    let file = "resource: { type: File, file: { paths: [a] } }";
    accepted(&custom(&format!("{{ {file} }}")));
    let infrastructure = |body: &str| custom(&format!("{{ {file}, infrastructure: {body} }}"));
    refused(&infrastructure("{ type: Host }"), "provider.custom.infrastructure.host", "should be specified");
    accepted(&infrastructure("{ type: Host, host: {} }"));
    refused(
        &infrastructure("{ type: Remote }"),
        "provider.custom.infrastructure.remote.service",
        "should be specified",
    );
    refused(
        &infrastructure("{ type: Remote, remote: { service: {} } }"),
        "provider.custom.infrastructure.remote.service",
        "configured target",
    );
    accepted(&infrastructure("{ type: Remote, remote: { service: { unix: { path: /run/s } } } }"));
    refused(
        &custom("{ resource: { type: Kubernetes, kubernetes: { watch: {} } } }"),
        "provider.custom.resource.kubernetes.watch.type",
        "watch mode invalid",
    );
}

#[test]
fn a_cluster_as_a_custom_source_has_the_usual_defaults() {
    let loaded = accepted("provider:\n  type: Custom\n  custom: { resource: { type: Kubernetes } }\n");
    let (at, section) = settings::leader_election(&loaded.config).unwrap();
    assert_eq!(at, "provider.custom.resource.kubernetes.leaderElection");
    assert_eq!(section.lease_duration, Some(api::config::Duration::from_secs(15)));
}

#[test]
fn rate_limit() {
    let redis = |body: &str| format!("rateLimit:\n  backend:\n    type: Redis\n    redis: {body}\n");
    let at = "rateLimit.backend.redis";
    refused("rateLimit:\n  backend:\n    type: Redis\n", at, "empty");
    refused(&redis("{ url: '' }"), at, "empty");
    refused(&redis("{ url: ':foo' }"), &format!("{at}.url"), "unknown ratelimit redis url format");
    refused(&redis("{ url: 'a:1,b:x' }"), &format!("{at}.url"), "the port is no number");
    accepted(&redis("{ url: 'a:1,10.0.0.2:2' }"));
    let secret = "urlRef: { secretKeyRef: { name: s, key: k } }";
    accepted(&redis(&format!("{{ {secret} }}")));
    refused(&redis(&format!("{{ url: 'a:1', {secret} }}")), &format!("{at}.urlRef"), "exclude one another");
    refused(
        &redis("{ urlRef: { secretKeyRef: { name: s, key: k, optional: true } } }"),
        &format!("{at}.urlRef.secretKeyRef.optional"),
        "cannot start",
    );
    refused(
        &format!("{}  telemetry: {{ tracing: {{ samplingRate: 101 }} }}\n", redis("{ url: 'a:1' }")),
        "rateLimit.telemetry.tracing.samplingRate",
        "more than 100",
    );
    let error = parse(&redis("{ url: 'redis://u:secret@h:0' }")).unwrap_err();
    assert!(!error.to_string().contains("secret"), "{error}");
}

#[test]
fn extension_managers() {
    let hooks = "hooks: { xdsTranslator: { post: [Route] } }";
    let service = "service: { fqdn: { hostname: x.y, port: 1 } }";
    let one = |body: &str| format!("extensionManager: {{ {body} }}\n");
    accepted(&one(&format!("{hooks}, {service}")));
    refused(&one(service), "extensionManager.hooks", "no hooks");
    refused(
        &one(&format!("hooks: {{ xdsTranslator: {{ post: [] }} }}, {service}")),
        "extensionManager.hooks",
        "no hooks",
    );
    refused(&one(hooks), "extensionManager.service", "empty");
    refused(&one(&format!("{hooks}, service: {{}}")), "extensionManager.service", "configured target");
    refused(
        &one(&format!("{hooks}, service: {{ host: x, unix: {{ path: /s }} }}")),
        "extensionManager.service",
        "only one backend target",
    );
    refused(
        &one(&format!("{hooks}, service: {{ host: x, tls: {{ certificateRef: {{ name: c, kind: ConfigMap }} }} }}")),
        "extensionManager.service.tls.certificateRef",
        "group/kind",
    );
    refused(
        &one(&format!("{hooks}, service: {{ host: x, retry: {{ RetryableStatusCodes: [OOPS] }} }}")),
        "extensionManager.service.retry.RetryableStatusCodes[0]",
        "no gRPC status code",
    );
    refused(
        &one(&format!("hooks: {{ xdsTranslator: {{ post: [Rout] }} }}, {service}")),
        "extensionManager.hooks.xdsTranslator.post[0]",
        "none of those known",
    );
    let list = |names: &[&str]| {
        let entries: Vec<_> = names.iter().map(|name| format!("- {{ {name} {hooks}, {service} }}\n")).collect();
        format!("extensionManagers:\n{}", entries.concat())
    };
    accepted(&list(&["name: a,", "name: b,"]));
    refused(&list(&["name: a,", "name: a,"]), "extensionManagers[1].name", "duplicate name \"a\"");
    refused(&list(&["name: a,", ""]), "extensionManagers[1].name", "required");
    refused(
        &format!("{}{}", one(&format!("{hooks}, {service}")), list(&["name: a,"])),
        "extensionManagers",
        "mutually exclusive",
    );
}

#[test]
fn telemetry() {
    refused(
        "telemetry:\n  metrics:\n    sinks:\n    - type: OpenTelemetry\n",
        "telemetry.metrics.sinks[0].openTelemetry",
        "OpenTelemetry is required",
    );
    refused("telemetry:\n  traces: {}\n", "telemetry.traces.sink.openTelemetry", "OpenTelemetry is required");
    accepted("telemetry:\n  traces: { disable: true }\n");
    let traces =
        |more: &str| format!("telemetry:\n  traces:\n    sink: {{ openTelemetry: {{ host: h }} }}\n    {more}\n");
    accepted(&traces("samplingRate: { numerator: 1, denominator: 3 }"));
    refused(&traces("samplingRate: { numerator: 101 }"), "telemetry.traces.samplingRate", "not from 0 to 1");
    refused(
        &traces("batchSpanProcessor: { maxQueueSize: 0 }"),
        "telemetry.traces.batchSpanProcessor.maxQueueSize",
        "no span",
    );
}

#[test]
fn election_timings_that_could_not_work() {
    let election =
        |body: &str| format!("provider:\n  type: Kubernetes\n  kubernetes:\n    leaderElection: {{ {body} }}\n");
    let at = |field: &str| format!("provider.kubernetes.leaderElection.{field}");
    refused(&election("leaseDuration: 10s"), &at("renewDeadline"), "× 1.23 is not below leaseDuration 10s");
    refused(
        &election("leaseDuration: 13s, renewDeadline: 10s"),
        &at("writeTimeout"),
        "renewDeadline 10s + writeTimeout 3s",
    );
    accepted(&election("leaseDuration: 13s, renewDeadline: 10s, writeTimeout: 2s"));
    refused(&election("retryPeriod: 6s"), &at("retryPeriod"), "× 2 is above renewDeadline 10s");
    accepted(&election("retryPeriod: 5s"));
    refused(&election("retryPeriod: 0s"), &at("retryPeriod"), "zero");
    refused(&election("maxRecoveryDuration: 0s"), &at("maxRecoveryDuration"), "zero");
    refused(
        &election("leaseDuration: 900ms, renewDeadline: 400ms, retryPeriod: 100ms, writeTimeout: 100ms"),
        &at("leaseDuration"),
        "below one second",
    );
    accepted(&election("disable: true, leaseDuration: 1s, renewDeadline: 2s, retryPeriod: 3s"));
    refused(&election("leaseDuration: 600000h"), &at("leaseDuration"), "longer than");
    for preset in ["Fast", "Tolerant"] {
        accepted(&election(&format!("preset: {preset}")));
    }
}

#[test]
fn the_last_good_state_needs_a_folder_of_its_own() {
    let state = |body: &str| format!("provider:\n  type: Kubernetes\n  kubernetes:\n    lastGoodState: {{ {body} }}\n");
    let at = |field: &str| format!("provider.kubernetes.lastGoodState.{field}");
    assert_eq!(settings::last_good(&accepted("provider:\n  type: Kubernetes\n").config), None, "it is off");
    let chosen = settings::last_good(&accepted(&state("folder: /var/lib/eg")).config).unwrap();
    assert_eq!((chosen.folder.to_str(), chosen.after.as_secs()), (Some("/var/lib/eg"), 5));
    let chosen = settings::last_good(&accepted(&state("folder: /var/lib/eg, after: 2s")).config).unwrap();
    assert_eq!(chosen.after.as_secs(), 2);
    refused(&state("folder: state"), &at("folder"), "no absolute path");
    refused(&state("folder: \"\""), &at("folder"), "no absolute path");
    refused(&state("folder: /x, after: 0s"), &at("after"), "not above zero");
    refused(&state("folder: /x, after: 2m"), &at("after"), "at most 60s");
    let files = settings::defaults_for_standalone(["x"]);
    assert_eq!(settings::last_good(&files), None, "files are there without any API server");
}

#[test]
fn explicit_timings_win_over_the_preset() {
    let loaded = accepted(
        "provider:\n  type: Kubernetes\n  kubernetes:\n    leaderElection: { preset: Tolerant, retryPeriod: 1s, onLostLease: Exit, maxRecoveryDuration: 1h }\n",
    );
    let (_, section) = settings::leader_election(&loaded.config).unwrap();
    let election = settings::election(section);
    let plain = settings::election(&api::config::LeaderElection {
        preset: Some(api::config::LeaderElectionPreset::Tolerant),
        ..Default::default()
    });
    assert_eq!(election.retry_period.as_secs(), 1);
    assert_eq!(election.lease_duration, plain.lease_duration);
    assert!(election.lease_duration.as_secs() > 15);
    assert_eq!(election.on_lost_lease, api::config::OnLostLease::Exit);
    assert_eq!(election.max_recovery_duration.map(|longest| longest.as_secs()), Some(3600));
    assert!(election.enabled);
}

#[test]
fn what_has_no_effect_is_warned_of() {
    let loaded = accepted(
        "provider:\n  type: Kubernetes\n  kubernetes: { leaderElection: { leaseDuraton: 20s } }\nlogging00: {}\nenvoyProxy: { concurency: 2 }\n\
         runtimeFlags: { enabled: [NewThing, XDSNameSchemeV2], disabled: [XDSNameSchemeV2] }\ngatewayAPI: { enabled: [XFuture] }\n\
         extensionApis: { disableLua: true, enableLua: true }\n",
    );
    let warnings: Vec<_> = loaded.warnings.iter().map(Problem::to_string).collect();
    let mut fields: Vec<_> = loaded.warnings.iter().map(|warning| warning.field.as_str()).collect();
    fields.sort_unstable();
    assert_eq!(
        fields,
        [
            "envoyProxy.concurency",
            "extensionApis.disableLua",
            "gatewayAPI.enabled[0]",
            "logging00",
            "provider.kubernetes.leaderElection.leaseDuraton",
            "runtimeFlags.enabled[0]",
            "runtimeFlags.enabled[1]",
        ],
        "{warnings:#?}"
    );
    assert!(
        warnings.iter().any(|warning| warning.ends_with("leaseDuration may be meant; else remove it")),
        "{warnings:#?}"
    );
    assert!(loaded.config.extension_apis.lua());
}

#[test]
fn a_null_section_is_an_absent_one_but_not_inside_a_patch() {
    let loaded = accepted(
        "gateway:\nprovider:\n  type: Kubernetes\n  kubernetes:\n    leaderElection: ~\n    rateLimitDeployment:\n      patch: { type: JSONMerge, value: { spec: { replicas: null } } }\n",
    );
    assert_eq!(loaded.config.gateway, api::config::Gateway::default());
    let tree = serde_json::to_value(&loaded.config).unwrap();
    let spec = tree.pointer("/provider/kubernetes/rateLimitDeployment/patch/value/spec").unwrap();
    assert_eq!(spec, &serde_json::json!({ "replicas": null }));
}

#[test]
fn overrides_come_before_defaults_and_rules_and_are_named_by_them() {
    let env = |name: &str, value: &str| [(name.to_owned(), value.to_owned())].into_iter();
    let lease = "ENVOY_GATEWAY__PROVIDER__KUBERNETES__LEADERELECTION__LEASEDURATION";
    let longer = settings::load(None, env(lease, "20s")).unwrap();
    assert_eq!(longer.provider.kubernetes.leader_election.lease_duration, Some(api::config::Duration::from_secs(20)));

    let error = settings::load(None, env(lease, "2s")).unwrap_err();
    assert_eq!(error.problems().len(), 2, "{error}");
    for problem in error.problems() {
        assert_eq!(problem.origin, format!("environment variable {lease}"), "the file's own values were good");
    }

    let error = settings::load(None, env(lease, "20 seconds")).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with(&format!("environment variable {lease}: provider.kubernetes.leaderElection.leaseDuration: ")),
        "{error}"
    );

    let error = settings::load(None, env("ENVOY_GATEWAY__XDSSERVER__MAXCONNECTIONAGE", "0s")).unwrap_err();
    assert!(
        error.to_string().starts_with(
            "environment variable ENVOY_GATEWAY__XDSSERVER__MAXCONNECTIONAGE: xdsServer.maxConnectionAge: "
        )
    );
}

#[test]
fn standalone() {
    let loaded = settings::standalone(["res", "more.yaml"], std::iter::empty()).unwrap();
    assert_eq!(loaded.config, settings::defaults_for_standalone(["res", "more.yaml"]));
    assert_eq!(settings::validate(&loaded.config), []);
    assert!(loaded.config.extension_apis.enable_backend);
    assert_eq!(settings::leader_election(&loaded.config), None);
    assert!(settings::standalone([""; 0], std::iter::empty()).is_err(), "nothing to read is refused");
}

#[test]
fn a_file_that_is_not_there() {
    let error = settings::load(Some(std::path::Path::new("no/such.yaml")), std::iter::empty()).unwrap_err();
    assert!(error.to_string().starts_with("no/such.yaml: the file cannot be read: "), "{error}");
}
