use serde_json::json;

use super::*;

fn decode(value: serde_json::Value) -> EnvoyGateway {
    serde_json::from_value(value).unwrap()
}

#[test]
fn a_bare_file_is_the_default() {
    let bare = decode(json!({ "apiVersion": API_VERSION, "kind": KIND }));
    assert_eq!(bare, EnvoyGateway::default());
    assert_eq!(
        serde_json::to_value(&bare).unwrap(),
        json!({
            "apiVersion": "gateway.envoyproxy.io/v1alpha1",
            "kind": "EnvoyGateway",
            "gateway": { "controllerName": "gateway.envoyproxy.io/gatewayclass-controller" },
            "provider": {
                "type": "Kubernetes",
                "kubernetes": {
                    "client": { "rateLimit": { "qps": 50, "burst": 100 } },
                    "leaderElection": {
                        "disable": false, "leaseDuration": "15s", "renewDeadline": "10s", "retryPeriod": "2s"
                    },
                },
            },
            "logging": { "level": { "default": "info" } },
            "admin": { "address": { "host": "127.0.0.1", "port": 19000 } },
            "telemetry": { "metrics": { "prometheus": {} } },
            "xdsServer": {},
        })
    );
}

#[test]
fn an_election_section_replaces_the_standard_one_as_a_whole() {
    let partly = decode(json!({
        "apiVersion": API_VERSION, "kind": KIND,
        "provider": { "type": "Kubernetes", "kubernetes": { "leaderElection": { "preset": "Fast" } } },
    }));
    let election = &partly.provider.kubernetes.leader_election;
    assert_eq!(election.preset, Some(LeaderElectionPreset::Fast));
    assert_eq!(election.lease_duration, None, "a default here would win over the preset");
}

#[test]
fn a_gateway_section_needs_its_name() {
    let empty = decode(json!({ "apiVersion": API_VERSION, "kind": KIND, "gateway": {} }));
    assert_eq!(empty.gateway.controller_name, "");
}

#[test]
fn component_names_are_those_of_the_file() {
    for component in LogComponent::ALL {
        assert_eq!(serde_json::to_value(component).unwrap(), json!(component.as_str()));
    }
}

#[test]
fn lua_is_off_unless_asked_for() {
    for (enable, disable, on) in [
        (None, None, false),
        (Some(true), None, true),
        (Some(false), None, false),
        (None, Some(true), false),
        (None, Some(false), true),
        (Some(true), Some(true), true),
    ] {
        let apis = ExtensionApis { enable_lua: enable, disable_lua: disable, ..Default::default() };
        assert_eq!(apis.lua(), on, "{enable:?} {disable:?}");
    }
}

#[test]
fn flags_have_defaults_of_their_own_and_off_wins() {
    let mut flags = RuntimeFlags::default();
    assert!(flags.is_enabled(&RuntimeFlag::EndpointSliceIndex));
    assert!(!flags.is_enabled(&RuntimeFlag::XDSNameSchemeV2));
    flags.enabled = vec![RuntimeFlag::XDSNameSchemeV2];
    assert!(flags.is_enabled(&RuntimeFlag::XDSNameSchemeV2));
    flags.disabled = vec![RuntimeFlag::XDSNameSchemeV2, RuntimeFlag::EndpointSliceIndex];
    assert!(!flags.is_enabled(&RuntimeFlag::XDSNameSchemeV2));
    assert!(!flags.is_enabled(&RuntimeFlag::EndpointSliceIndex));
}
