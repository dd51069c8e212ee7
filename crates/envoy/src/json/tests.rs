use serde_json::json;

use super::*;

const CLUSTER: &str = "envoy.config.cluster.v3.Cluster";

fn round_trip(name: &str, value: &Value) -> Value {
    to_value(name, &from_value(name, value).unwrap()).unwrap()
}

#[test]
fn nested_any_is_typed_both_ways() {
    let cluster = json!({
        "name": "c",
        "connectTimeout": "0.250s",
        "perConnectionBufferLimitBytes": 0,
        "commonLbConfig": {},
        "type": "EDS",
        "typedExtensionProtocolOptions": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                "explicitHttpConfig": {"http2ProtocolOptions": {"maxConcurrentStreams": 100}}
            }
        },
        "loadBalancingPolicy": {"policies": [{"typedExtensionConfig": {
            "name": "lr",
            "typedConfig": {
                "@type": "type.googleapis.com/envoy.extensions.load_balancing_policies.least_request.v3.LeastRequest",
                "localityLbConfig": {"zoneAwareLbConfig": {"minClusterSize": "1"}}
            }
        }}]},
        "metadata": {"filterMetadata": {"envoy-gateway": {"resources": [{"kind": "X"}, null, 1.5, true]}}}
    });
    assert_eq!(round_trip(CLUSTER, &cluster), cluster);
}

#[test]
fn envoys_own_spelling_is_read() {
    let value = json!({"name": "c", "connect_timeout": "1.5s", "type": 3, "dns_lookup_family": "V4_ONLY"});
    let expected = json!({"name": "c", "connectTimeout": "1.500s", "type": "EDS", "dnsLookupFamily": "V4_ONLY"});
    assert_eq!(round_trip(CLUSTER, &value), expected);
}

#[test]
fn special_messages_in_any_stand_under_value() {
    let value =
        json!({"name": "x", "typedConfig": {"@type": "type.googleapis.com/google.protobuf.StringValue", "value": "v"}});
    assert_eq!(round_trip("envoy.config.core.v3.TypedExtensionConfig", &value), value);
}

#[test]
fn an_unknown_type_becomes_base64_and_back() {
    let value = json!({"name": "x", "typedConfig": {"@type": "type.googleapis.com/not.Known", "value": "AQID"}});
    assert_eq!(round_trip("envoy.config.core.v3.TypedExtensionConfig", &value), value);
}

#[test]
fn definitions_of_our_own_are_known() {
    for name in ["CelMatcher", "HttpAttributesCelMatchInput", "IPMatcher", "ServerNameMatcher"] {
        assert!(pool().get_message_by_name(&format!("xds.type.matcher.v3.{name}")).is_some(), "{name}");
    }
    assert!(pool().get_message_by_name("xds.type.v3.TypedStruct").is_some());
}

#[test]
fn errors_name_the_path() {
    let wrong = |value: Value| from_value(CLUSTER, &value).unwrap_err().to_string();
    assert_eq!(wrong(json!({"nome": 1})), ".nome: envoy.config.cluster.v3.Cluster has no such field");
    assert!(
        wrong(json!({"circuitBreakers": {"thresholds": [{"trackRemaining": 1}]}}))
            .starts_with(".circuitBreakers.thresholds[0].trackRemaining: 1 is no")
    );
    assert!(wrong(json!({"type": "EDS", "clusterType": {}})).contains("only one of"));
    assert!(wrong(json!({"connectTimeout": "soon"})).starts_with(".connectTimeout: "));
}
