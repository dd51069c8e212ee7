use serde_json::json;

use super::*;

fn one(list: &str, resource: Value) -> Value {
    group(&json!({ list: [resource] })).unwrap().into_values().next().unwrap()
}

fn same(list: &str, a: Value, b: Value) {
    assert_eq!(one(list, a), one(list, b));
}

fn different(list: &str, a: Value, b: Value) {
    assert_ne!(one(list, a), one(list, b));
}

fn host(name: &str, routes: Value) -> Value {
    json!({"name": name, "domains": [name, format!("*.{name}")], "routes": routes})
}

fn route(prefix: &str, cluster: &str, timeout: &str) -> Value {
    json!({"match": {"prefix": prefix}, "route": {"cluster": cluster, "timeout": timeout}})
}

fn table(hosts: Value) -> Value {
    json!({"name": "t", "virtualHosts": hosts})
}

#[test]
fn hosts_and_domains_are_sets_routes_are_not() {
    let (r1, r2) = (route("/a", "a", "1s"), route("/b", "b", "1s"));
    let a = table(json!([host("x", json!([r1, r2])), host("y", json!([r1]))]));
    let mut swapped = host("x", json!([r1, r2]));
    swapped["domains"] = json!(["*.x", "x"]);
    same("routes", a.clone(), table(json!([host("y", json!([r1])), swapped])));
    different("routes", a.clone(), table(json!([host("x", json!([r2, r1])), host("y", json!([r1]))])));
    different("routes", a, table(json!([host("x", json!([r1, r2])), host("z", json!([r1]))])));
}

#[test]
fn a_timeout_counts_its_spelling_does_not() {
    let with = |t| table(json!([host("x", json!([route("/a", "a", t)]))]));
    same("routes", with("1s"), with("1.000s"));
    different("routes", with("1s"), with("1.001s"));
    different(
        "routes",
        with("0s"),
        table(json!([host("x", json!([{"match": {"prefix": "/a"}, "route": {"cluster": "a"}}]))])),
    );
}

#[test]
fn weights_count_the_order_of_weighted_clusters_does_not() {
    let with = |a: Value, b: Value| {
        let action = json!({"weightedClusters": {"clusters": [a, b]}});
        table(json!([host("x", json!([{"match": {"prefix": "/"}, "route": action}]))]))
    };
    let cluster = |name: &str, weight: u32| json!({"name": name, "weight": weight});
    same("routes", with(cluster("a", 1), cluster("b", 2)), with(cluster("b", 2), cluster("a", 1)));
    different("routes", with(cluster("a", 1), cluster("b", 2)), with(cluster("a", 2), cluster("b", 1)));
}

#[test]
fn header_changes_of_one_header_keep_their_order() {
    let with = |headers: Value| {
        let mut route = route("/", "c", "1s");
        route["requestHeadersToAdd"] = headers;
        table(json!([host("x", json!([route]))]))
    };
    let h = |k: &str, v: &str| json!({"header": {"key": k, "value": v}});
    same("routes", with(json!([h("a", "1"), h("b", "2")])), with(json!([h("b", "2"), h("a", "1")])));
    different("routes", with(json!([h("a", "1"), h("a", "2")])), with(json!([h("a", "2"), h("a", "1")])));
}

#[test]
fn filters_and_access_logs_keep_their_order() {
    let with = |filters: Value| {
        let manager = json!({
            "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
            "httpFilters": filters
        });
        json!({"name": "l", "filterChains": [{"filters": [{"name": "hcm", "typedConfig": manager}]}]})
    };
    different("listeners", with(json!([{"name": "a"}, {"name": "b"}])), with(json!([{"name": "b"}, {"name": "a"}])));
    let with = |logs: Value| json!({"name": "l", "accessLog": logs});
    different("listeners", with(json!([{"name": "a"}, {"name": "b"}])), with(json!([{"name": "b"}, {"name": "a"}])));
    let chains = |chains: Value| json!({"name": "l", "filterChains": chains});
    same("listeners", chains(json!([{"name": "a"}, {"name": "b"}])), chains(json!([{"name": "b"}, {"name": "a"}])));
}

#[test]
fn defaults_equal_absence_but_a_wrapped_zero_does_not() {
    same("clusters", json!({"name": "c", "respectDnsTtl": false, "altStatName": ""}), json!({"name": "c"}));
    same("clusters", json!({"name": "c", "commonLbConfig": {}, "metadata": {}}), json!({"name": "c"}));
    different("clusters", json!({"name": "c", "perConnectionBufferLimitBytes": 0}), json!({"name": "c"}));
    // A member of a oneof is there, though empty.
    different("clusters", json!({"name": "c", "transportSocket": {"name": ""}}), json!({"name": "c"}));
    let with = |specifier: Value| {
        json!({"name": "c", "loadBalancingPolicy": {"policies": [{"typedExtensionConfig": {
            "name": "lr",
            "typedConfig": {
                "@type": "type.googleapis.com/envoy.extensions.load_balancing_policies.least_request.v3.LeastRequest",
                "localityLbConfig": specifier
            }
        }}]}})
    };
    different("clusters", with(json!({"localityWeightedLbConfig": {}})), with(json!({})));
}

#[test]
fn localities_of_one_priority_are_a_set() {
    let locality = |region: &str, priority: u32, port: u32| {
        json!({
            "locality": {"region": region}, "priority": priority,
            "lbEndpoints": [{"endpoint": {"address": {"socketAddress": {"address": "1.1.1.1", "portValue": port}}}}]
        })
    };
    let with = |l: Value| json!({"clusterName": "c", "endpoints": l});
    let (a, b, second) = (locality("a", 0, 1), locality("b", 0, 2), locality("a", 1, 1));
    same("endpoints", with(json!([a, b, second])), with(json!([b, a, second])));
    different("endpoints", with(json!([a, b])), with(json!([locality("a", 1, 1), b])));
    different("endpoints", with(json!([a])), with(json!([locality("a", 0, 2)])));
}

fn pem(blocks: &[&str], end: &str) -> Value {
    let text: String = blocks
        .iter()
        .map(|b| format!("-----BEGIN CERTIFICATE-----{end}{b}{end}-----END CERTIFICATE-----{end}"))
        .collect();
    use base64::{Engine as _, prelude::BASE64_STANDARD};
    json!({"inlineBytes": BASE64_STANDARD.encode(text)})
}

#[test]
fn certificates_are_compared_not_their_layout() {
    let ca = |p: Value| json!({"name": "s", "validationContext": {"trustedCa": p}});
    same("secrets", ca(pem(&["AAAA", "BBBB"], "\n")), ca(pem(&["BBBB", "AAAA"], "\r\n")));
    different("secrets", ca(pem(&["AAAA"], "\n")), ca(pem(&["BBBB"], "\n")));
    let chain = |p: Value| json!({"name": "s", "tlsCertificate": {"certificateChain": p}});
    different("secrets", chain(pem(&["AAAA", "BBBB"], "\n")), chain(pem(&["BBBB", "AAAA"], "\n")));
}

#[test]
fn hash_suffixes_are_renamed_consistently() {
    let with = |hash: &str, used: &str, issuer: &str| {
        let jwt = json!({
            "@type": "type.googleapis.com/envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication",
            "providers": {format!("p_{hash}"): {"issuer": issuer}},
            "requirementMap": {format!("r_{hash}"): {"providerName": format!("p_{used}")}}
        });
        json!({"name": "l", "filterChains": [{"filters": [{"name": "jwt", "typedConfig": jwt}]}]})
    };
    let (a, b) = ("0123456789abcdef", "fedcba9876543210");
    same("listeners", with(a, a, "i"), with(b, b, "i"));
    different("listeners", with(a, a, "i"), with(a, a, "j"));
    different("listeners", with(a, a, "i"), with(a, b, "i"));
}

#[test]
fn names_are_never_levelled() {
    let names = |tree: Value| group(&tree).unwrap().into_keys().map(|(_, n)| n).collect::<Vec<_>>();
    assert_eq!(names(json!({"clusters": [{"name": "a"}, {"name": "b"}]})), ["a", "b"]);
    assert_eq!(names(json!({"clusters": [{"name": "a"}, {"name": "a"}]})), ["a"]);
    assert!(group(&json!({"clusters": [{"name": "a"}, {"name": "a", "altStatName": "b"}]})).is_err());
    assert!(group(&json!({"clusters": [{"nome": "a"}]})).is_err());
}
