//! Route tables as Envoy reads them.

mod common;

use common::{forward, host, json, route, route_json, table, to, upgrade, with_route};
use ir::{
    Action, Cors, Destination, Fraction, HeaderAdd, HeaderMutation, HostRewrite, Millis, Mirror, PathMatch,
    PathRewrite, Redirect, RedirectPath, Retry, SessionPersistence, StringMatch, WeightedCluster,
};
use serde_json::{Value, json};

#[test]
fn a_table_holds_its_hosts_and_routes_in_order() {
    let value = json(&table(vec![
        host("a.example", vec![route("1", to("x")), route("2", to("y"))]),
        host("*", vec![route("3", to("z"))]),
    ]));
    assert_eq!(value["name"], "t");
    assert_eq!(value["ignorePortInHostMatching"], true);
    let hosts = value["virtualHosts"].as_array().unwrap();
    assert_eq!(hosts[0]["domains"], json!(["a.example"]));
    let names: Vec<_> = hosts.iter().flat_map(|h| h["routes"].as_array().unwrap()).map(|r| &r["name"]).collect();
    assert_eq!(names, ["1", "2", "3"]);
    let resources = &hosts[0]["metadata"]["filterMetadata"]["envoy-gateway"]["resources"];
    assert_eq!(*resources, json!([{"kind": "Gateway", "namespace": "ns", "name": "gw"}]));
}

#[test]
fn a_table_allows_the_bodies_that_its_routes_answer_with() {
    let limit = |length: usize| {
        let respond = Action::Respond { status: 200, body: Some("x".repeat(length).into()) };
        let hosts = vec![host("a.example", vec![route("1", to("x"))]), host("*", vec![route("2", respond)])];
        json(&table(hosts))["maxDirectResponseBodySizeBytes"].take()
    };
    // Envoy's own default.
    assert_eq!(limit(4096), Value::Null);
    assert_eq!(limit(4097), 1_048_576);
    assert_eq!(limit(1_048_577), 1_048_577);
}

#[test]
fn the_origin_tells_section_and_annotations() {
    let mut r = route("r", to("c"));
    r.origin.section = Some("rule-1".into());
    r.origin.annotations = vec![("a".into(), "b".into())];
    assert_eq!(
        route_json(r)["metadata"]["filterMetadata"]["envoy-gateway"]["resources"][0],
        json!({"kind": "HTTPRoute", "namespace": "ns", "name": "r", "sectionName": "rule-1", "annotations": {"a": "b"}})
    );
}

#[test]
fn matches() {
    let path = |path: PathMatch| {
        let mut r = route("r", to("c"));
        r.matches.path = path;
        route_json(r)["match"].take()
    };
    assert_eq!(path(PathMatch::Prefix("/".into())), json!({"prefix": "/"}));
    assert_eq!(path(PathMatch::SeparatedPrefix("/a".into())), json!({"pathSeparatedPrefix": "/a"}));
    assert_eq!(path(PathMatch::Exact("/a".into())), json!({"path": "/a"}));
    assert_eq!(path(PathMatch::Regex("/a.*".into())), json!({"safeRegex": {"regex": "/a.*"}}));
    let mut r = route("r", to("c"));
    r.matches.headers =
        vec![("a".into(), StringMatch::Exact("1".into())), ("b".into(), StringMatch::Regex("2.".into()))];
    r.matches.method = Some("POST".into());
    r.matches.query = vec![("q".into(), StringMatch::Exact("3".into()))];
    let m = route_json(r)["match"].take();
    assert_eq!(
        m["headers"],
        json!([
            {"name": "a", "stringMatch": {"exact": "1"}},
            {"name": "b", "stringMatch": {"safeRegex": {"regex": "2."}}},
            {"name": ":method", "stringMatch": {"exact": "POST"}},
        ])
    );
    assert_eq!(m["queryParameters"], json!([{"name": "q", "stringMatch": {"exact": "3"}}]));
}

fn action(change: impl FnOnce(&mut ir::Forward)) -> Value {
    let mut f = forward("c");
    change(&mut f);
    route_json(route("r", Action::Forward(Box::new(f))))["route"].take()
}

#[test]
fn forwarding() {
    assert_eq!(action(|_| {}), json!({"cluster": "c"}));
    assert_eq!(
        action(|f| {
            f.timeout = Some(Millis(1_500));
            f.idle_timeout = Some(Millis(0));
        }),
        json!({"cluster": "c", "timeout": "1.500s", "idleTimeout": "0s"})
    );
    assert_eq!(
        action(|f| f.upgrades = vec![upgrade("websocket")])["upgradeConfigs"],
        json!([{"upgradeType": "websocket"}])
    );
    assert_eq!(action(|f| f.path = Some(PathRewrite::Prefix("/x".into())))["prefixRewrite"], "/x");
    let regex = PathRewrite::Regex { pattern: "^/a".into(), substitution: r"\1".into() };
    assert_eq!(
        action(|f| f.path = Some(regex))["regexRewrite"],
        json!({"pattern": {"regex": "^/a"}, "substitution": r"\1"})
    );
    assert_eq!(action(|f| f.host = Some(HostRewrite::Literal("h".into())))["hostRewriteLiteral"], "h");
    assert_eq!(action(|f| f.host = Some(HostRewrite::Header("x".into())))["hostRewriteHeader"], "x");
    assert_eq!(action(|f| f.host = Some(HostRewrite::Endpoint))["autoHostRewrite"], true);
    assert_eq!(action(|f| f.append_x_forwarded_host = true)["appendXForwardedHost"], true);
}

fn weighted(cluster: &str, weight: u32) -> WeightedCluster {
    WeightedCluster {
        cluster: cluster.into(),
        weight,
        request_headers: HeaderMutation::default(),
        response_headers: HeaderMutation::default(),
        host: None,
    }
}

#[test]
fn weights_and_what_is_changed_for_one_backend() {
    let mut a = weighted("a", 3);
    a.request_headers.add = vec![HeaderAdd { name: "x".into(), value: "1".into(), overwrite: true }];
    a.host = Some(HostRewrite::Literal("h".into()));
    let value = action(|f| f.to = Destination::Weighted(vec![a, weighted("b", 0)]));
    assert_eq!(value["clusterNotFoundResponseCode"], "INTERNAL_SERVER_ERROR");
    let clusters = &value["weightedClusters"]["clusters"];
    assert_eq!(clusters[1], json!({"name": "b", "weight": 0}));
    assert_eq!(clusters[0]["weight"], 3);
    assert_eq!(clusters[0]["hostRewriteLiteral"], "h");
    assert_eq!(clusters[0]["requestHeadersToAdd"][0]["appendAction"], "OVERWRITE_IF_EXISTS_OR_ADD");
}

#[test]
fn mirrors_with_and_without_a_fraction() {
    let mirror = |fraction| Mirror { cluster: "m".into(), fraction };
    let some = Some(Fraction { numerator: 5, denominator: 1_000_000 });
    let value = action(|f| f.mirrors = vec![mirror(None), mirror(some)]);
    let policies = &value["requestMirrorPolicies"];
    assert_eq!(policies[0]["runtimeFraction"]["defaultValue"], json!({"numerator": 100}));
    assert_eq!(policies[1]["runtimeFraction"]["defaultValue"], json!({"numerator": 5, "denominator": "MILLION"}));
    assert_eq!(policies[0]["disableShadowHostSuffixAppend"], true);
}

#[test]
fn retries() {
    let retry = Retry {
        on: vec!["reset".into(), "retriable-status-codes".into()],
        status_codes: vec![503],
        attempts: Some(2),
        per_try_timeout: Some(Millis(200)),
        backoff_base: Some(Millis(100)),
        backoff_max: None,
        avoid_previous_hosts: true,
        attempts_per_priority: None,
    };
    let value = action(|f| f.retry = Some(retry))["retryPolicy"].take();
    assert_eq!(value["retryOn"], "reset,retriable-status-codes");
    assert_eq!(value["retriableStatusCodes"], json!([503]));
    assert_eq!(value["numRetries"], 2);
    assert_eq!(value["perTryTimeout"], "0.200s");
    assert_eq!(value["retryBackOff"], json!({"baseInterval": "0.100s"}));
    assert_eq!(value["hostSelectionRetryMaxAttempts"], "5");
    assert_eq!(value["retryHostPredicate"][0]["name"], "envoy.retry_host_predicates.previous_hosts");
}

#[test]
fn redirects_and_direct_answers() {
    let redirect = |status, path| {
        let r = Redirect { scheme: Some("https".into()), host: Some("h".into()), port: Some(8443), path, status };
        route_json(route("r", Action::Redirect(r)))["redirect"].take()
    };
    assert_eq!(
        redirect(301, None),
        json!({"schemeRedirect": "https", "hostRedirect": "h", "portRedirect": 8443}),
        "301 is Envoy's default"
    );
    for (status, code) in [(302, "FOUND"), (303, "SEE_OTHER"), (307, "TEMPORARY_REDIRECT"), (308, "PERMANENT_REDIRECT")]
    {
        assert_eq!(redirect(status, None)["responseCode"], code);
    }
    assert_eq!(redirect(302, Some(RedirectPath::Full("/f".into())))["pathRedirect"], "/f");
    assert_eq!(redirect(302, Some(RedirectPath::Prefix("/p".into())))["prefixRewrite"], "/p");
    let respond = |body: Option<&str>| {
        route_json(route("r", Action::Respond { status: 503, body: body.map(Into::into) }))["directResponse"].take()
    };
    assert_eq!(respond(None), json!({"status": 503}));
    assert_eq!(respond(Some("sorry")), json!({"status": 503, "body": {"inlineString": "sorry"}}));
}

#[test]
fn header_changes_keep_their_order() {
    let mut r = route("r", to("c"));
    let add = |name: &str, overwrite| HeaderAdd { name: name.into(), value: "v".into(), overwrite };
    r.request_headers = HeaderMutation { add: vec![add("b", false), add("a", true)], remove: vec!["z".into()] };
    r.response_headers = HeaderMutation { add: vec![add("c", false)], remove: vec!["y".into()] };
    let value = route_json(r);
    assert_eq!(
        value["requestHeadersToAdd"],
        json!([
            {"header": {"key": "b", "value": "v"}},
            {"header": {"key": "a", "value": "v"}, "appendAction": "OVERWRITE_IF_EXISTS_OR_ADD"},
        ])
    );
    assert_eq!(value["requestHeadersToRemove"], json!(["z"]));
    assert_eq!(value["responseHeadersToAdd"][0]["header"]["key"], "c");
    assert_eq!(value["responseHeadersToRemove"], json!(["y"]));
}

#[test]
fn settings_of_filters_for_a_route() {
    let mut r = route("r", to("c"));
    r.cors = Some(Cors {
        allow_origins: vec![StringMatch::Exact("https://a".into())],
        allow_methods: vec!["GET".into(), "POST".into()],
        max_age: Some(Millis(600_000)),
        allow_credentials: Some(true),
        ..Cors::default()
    });
    r.session = Some(SessionPersistence::Cookie { name: "S".into(), ttl: Some(Millis(3_600_000)), path: "/a".into() });
    r.deny_loopback = true;
    let filters = route_json(r)["typedPerFilterConfig"].take();
    let cors = &filters["envoy.filters.http.cors"];
    assert_eq!(
        (&cors["allowMethods"], &cors["maxAge"], &cors["allowCredentials"]),
        (&json!("GET, POST"), &json!("600"), &json!(true))
    );
    let session = &filters["envoy.filters.http.stateful_session"]["statefulSession"]["sessionState"]["typedConfig"];
    assert_eq!(session["cookie"], json!({"name": "S", "ttl": "3600s", "path": "/a"}));
    let rbac = filters["envoy.filters.http.rbac.dfp_loopback_deny"]["rbac"]["matcher"].to_string();
    for text in [r"127\\.0\\.0\\.1", "localhost", "::1", "DENY", "ALLOW"] {
        assert!(rbac.contains(text), "{text}: {rbac}");
    }
}

#[test]
fn clusters_are_told_for_the_order_of_updates() {
    let mut f = forward("unused");
    f.to = Destination::Weighted(vec![weighted("b", 1), weighted(ir::INVALID_BACKEND_CLUSTER, 1)]);
    f.mirrors = vec![Mirror { cluster: "m".into(), fraction: None }];
    let routes = vec![route("1", to("a")), route("2", Action::Forward(Box::new(f))), route("3", to("a"))];
    let encoded = envoy::encode(&table(vec![host("h", routes)])).unwrap();
    let clusters = ["a", "b", "m"].map(ir::Name::from).to_vec();
    assert_eq!(encoded.hints, envoy::Hints::RouteTable { clusters });
    assert_eq!(encoded.type_url, "type.googleapis.com/envoy.config.route.v3.RouteConfiguration");
}

#[test]
fn the_version_follows_the_content() {
    let version = |cluster: &str| envoy::encode(&with_route(route("r", to(cluster)))).unwrap().version;
    assert_eq!(version("a"), version("a"));
    assert_ne!(version("a"), version("b"));
}

#[test]
fn an_encoder_that_remembers_says_the_same_as_one_that_does_not() {
    let mut encoder = envoy::Encoder::new();
    let (a, b) = (host("a", vec![route("1", to("x"))]), host("b", vec![route("2", to("y"))]));
    let steps = [
        table(vec![a.clone(), b.clone()]),
        table(vec![b.clone(), a.clone()]),
        table(vec![a.clone(), host("b", vec![route("2", to("z"))])]),
        table(vec![b]),
        table(vec![a.clone(), a]),
    ];
    for (i, value) in steps.iter().enumerate().take(4) {
        assert_eq!(encoder.encode(value), envoy::encode(value), "step {i}");
    }
    assert!(encoder.encode(&steps[4]).is_err(), "twice the same host");
    encoder.forget(&steps[0].key());
    assert_eq!(encoder.encode(&steps[0]), envoy::encode(&steps[0]));
}
