//! Commands from arguments to output, in-process.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::process::ExitCode;

use clap::Parser as _;
use egctl::cli::{Cli, Streams, run};
use serde_json::Value;

const SHOP: &str = r#"
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: eg}
spec: {controllerName: gateway.envoyproxy.io/gatewayclass-controller}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: front, namespace: shop}
spec:
  gatewayClassName: eg
  listeners: [{name: http, port: 80, protocol: HTTP}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: cart, namespace: shop}
spec:
  parentRefs: [{name: front}]
  hostnames: [shop.example.com]
  rules:
  - matches: [{path: {type: PathPrefix, value: /cart}}]
    backendRefs: [{group: gateway.envoyproxy.io, kind: Backend, name: cart}]
---
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: Backend
metadata: {name: cart, namespace: shop}
spec: {endpoints: [{ip: {address: 10.0.0.1, port: 8080}}]}
---
apiVersion: example.com/v1
kind: Unknown
metadata: {name: x}
"#;

struct Outcome {
    code: ExitCode,
    out: String,
    err: String,
}

fn egctl(args: &[&str], input: &str) -> Outcome {
    let cli = Cli::try_parse_from(std::iter::once("egctl").chain(args.iter().copied())).unwrap();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let code = run(cli, Streams { input: &mut input.as_bytes(), out: &mut out, err: &mut err });
    Outcome { code, out: String::from_utf8(out).unwrap(), err: String::from_utf8(err).unwrap() }
}

fn succeeded(outcome: &Outcome) -> bool {
    format!("{:?}", outcome.code) == format!("{:?}", ExitCode::SUCCESS)
}

fn documents(text: &str) -> Vec<Value> {
    provider::parse(text).unwrap().into_iter().map(|d| d.value).collect()
}

#[test]
fn translate_shows_xds_by_group() {
    let done = egctl(&["translate", "--from", "gateway-api", "--to", "xds", "-f", "-"], SHOP);
    assert!(succeeded(&done), "{}", done.err);
    assert_eq!(done.err, "ignored: standard input:29: kind Unknown of example.com/v1 is not read by the gateway\n");
    let xds = &documents(&done.out)[0];
    let group = &xds["shop/front"];
    let route = &group["routes"][0]["virtualHosts"][0]["routes"][0];
    assert_eq!(route["match"]["pathSeparatedPrefix"], "/cart");
    assert_eq!(route["route"]["cluster"], "httproute/shop/cart/rule/0");
    let address = &group["endpoints"][0]["endpoints"][0]["lbEndpoints"][0]["endpoint"]["address"];
    assert_eq!(address["socketAddress"]["address"], "10.0.0.1");
    let manager = &group["listeners"].as_array().unwrap().iter().find(|l| l["name"] == "shop/front/http").unwrap()["defaultFilterChain"]
        ["filters"][0]["typedConfig"];
    assert!(manager["@type"].as_str().unwrap().ends_with(".HttpConnectionManager"), "Any is typed: {manager}");
}

#[test]
fn both_outputs_in_one_run() {
    let args = ["experimental", "translate", "--to", "xds,status", "-f", "-", "-o"];
    let yaml = egctl(&[&args[..], &["yaml"]].concat(), SHOP);
    let documents = documents(&yaml.out);
    let kinds: Vec<_> = documents[1..].iter().map(|d| d["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["Backend", "Gateway", "GatewayClass", "HTTPRoute"]);
    let json = egctl(&[&args[..], &["json"]].concat(), SHOP);
    let json: Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!(json["xds"], documents[0]);
    assert_eq!(json["status"].as_array().unwrap()[..], documents[1..]);
    let route = &documents[4]["status"]["parents"][0];
    assert_eq!(
        (route["controllerName"].as_str(), route["conditions"][0]["status"].as_str()),
        (Some("gateway.envoyproxy.io/gatewayclass-controller"), Some("True"))
    );
}

#[test]
fn the_same_bytes_each_time_and_in_any_order() {
    let args = ["translate", "--to", "xds,status", "-f", "-"];
    let first = egctl(&args, SHOP).out;
    let mut parts: Vec<&str> = SHOP.split("---\n").collect();
    parts.reverse();
    for _ in 0..5 {
        assert_eq!(egctl(&args, &parts.join("\n---\n")).out, first);
        parts.rotate_left(1);
    }
}

#[test]
fn types_are_selected() {
    let done = egctl(&["x", "translate", "-f", "-", "-t", "cluster,route", "-o", "json"], SHOP);
    let xds: Value = serde_json::from_str(&done.out).unwrap();
    let lists: Vec<_> = xds["shop/front"].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(lists, ["clusters", "routes"]);
}

const BY_ADDRESS: &str = r#"
apiVersion: v1
kind: List
items:
- {apiVersion: gateway.networking.k8s.io/v1, kind: GatewayClass, metadata: {name: eg}, spec: {controllerName: gateway.envoyproxy.io/gatewayclass-controller}}
- {apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {name: front}, spec: {gatewayClassName: eg, listeners: [{name: http, port: 80, protocol: HTTP}]}}
- {apiVersion: v1, kind: Service, metadata: {name: here}, spec: {clusterIP: 7.7.7.7, ports: [{name: http, port: 80, targetPort: 8080}]}}
- apiVersion: gateway.networking.k8s.io/v1
  kind: HTTPRoute
  metadata: {name: r}
  spec:
    parentRefs: [{name: front}]
    rules:
    - {matches: [{path: {value: /a}}], backendRefs: [{name: here, port: 80}]}
    - {matches: [{path: {value: /b}}], backendRefs: [{name: gone, port: 90}]}
"#;

#[test]
fn services_without_slices_are_reached_at_their_own_address() {
    let addresses = |more: &[&str]| -> Vec<(String, u64)> {
        let done = egctl(
            &[&["x", "translate", "-f", "-", "-n", "shop", "-t", "endpoint", "-o", "json"], more].concat(),
            BY_ADDRESS,
        );
        let xds: Value = serde_json::from_str(&done.out).unwrap();
        let lists = xds["shop/front"]["endpoints"].as_array().unwrap().clone();
        let addresses =
            lists.iter().flat_map(|l| l["endpoints"][0]["lbEndpoints"].as_array().cloned().unwrap_or_default());
        let addresses = addresses.map(|e| e["endpoint"]["address"]["socketAddress"].clone());
        addresses.map(|a| (a["address"].as_str().unwrap().to_owned(), a["portValue"].as_u64().unwrap())).collect()
    };
    assert_eq!(addresses(&[]), [("7.7.7.7".to_owned(), 80)]);
    assert_eq!(addresses(&["--add-missing-resources"]), [("7.7.7.7".to_owned(), 80), ("1.2.3.4".to_owned(), 90)]);
}

#[test]
fn a_refused_object_is_left_out_and_told_with_its_line_and_field() {
    let input = SHOP.replace("value: /cart", "value: cart");
    let done = egctl(&["translate", "-f", "-"], &input);
    assert!(!succeeded(&done));
    assert!(
        done.err.contains("standard input:21: ") && done.err.contains("spec.rules[0].matches[0].path"),
        "{}",
        done.err
    );
    assert!(!done.out.contains("httproute/shop/cart") && done.out.contains("shop/front/http"), "{}", done.out);
    let done = egctl(&["validate", "-f", "-"], &input);
    assert!(!succeeded(&done));
    assert!(done.out.contains("HTTPRoute.gateway.networking.k8s.io \"shop/cart\" is invalid"), "{}", done.out);
}

#[test]
fn valid_input_is_told_so() {
    let done = egctl(&["validate", "-f", "-"], SHOP);
    assert!(succeeded(&done));
    assert_eq!(done.out, "4 objects are valid\n");
}

#[test]
fn what_is_no_yaml_is_an_error_with_its_line() {
    let done = egctl(&["translate", "-f", "-"], "a: 1\nb: [\n");
    assert!(!succeeded(&done) && done.out.is_empty());
    assert!(done.err.starts_with("egctl: standard input:"), "{}", done.err);
}

#[test]
fn version_in_three_forms() {
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(egctl(&["version"], "").out, format!("egctl {version}\n"));
    assert_eq!(egctl(&["version", "-o", "yaml"], "").out, format!("client:\n  egctlVersion: \"{version}\"\n"));
}

/// An admin server that gives one answer.
fn admin_server(answer: &'static str) -> (String, std::thread::JoinHandle<String>) {
    use std::io::{Read as _, Write as _};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            request.push(byte[0]);
        }
        stream.write_all(answer.as_bytes()).unwrap();
        String::from_utf8(request).unwrap()
    });
    (address, server)
}

#[test]
fn status_asks_the_admin_server() {
    let body = r#"[{"kind":"Gateway","metadata":{"name":"g","namespace":"a"},"status":{"conditions":[{"type":"Accepted","status":"True","reason":"R"}]}}]"#;
    let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let (address, server) = admin_server(answer.leak());
    let done = egctl(&["x", "status", "gateway", "--admin", &address], "");
    assert!(succeeded(&done), "{}", done.err);
    assert!(done.out.contains("Gateway   a           g           Accepted   True     R"), "{}", done.out);
    assert!(server.join().unwrap().starts_with("GET /api/status HTTP/1.1"));
}

#[test]
fn a_server_that_fails_or_is_not_there_is_told() {
    let (address, server) = admin_server("HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n");
    let done = egctl(&["status", "--admin", &address], "");
    assert!(!succeeded(&done) && done.out.is_empty());
    assert!(done.err.contains("503"), "{}", done.err);
    server.join().unwrap();
    let done = egctl(&["status", "--admin", &address], "");
    assert!(done.err.contains(&format!("asking http://{address}/api/status")), "{}", done.err);
}

/// A cluster that takes connections and says nothing.
#[test]
fn a_cluster_that_does_not_answer_or_is_not_there_is_told_in_time() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let file = tempfile::NamedTempFile::new().unwrap();
    let kubeconfig = |port: u16| {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: x\nclusters: [{{name: c, cluster: {{server: \"http://127.0.0.1:{port}\"}}}}]\n\
             users: [{{name: u, user: {{}}}}]\ncontexts: [{{name: x, context: {{cluster: c, user: u}}}}]\n"
        )
    };
    std::fs::write(file.path(), kubeconfig(port)).unwrap();
    let path = file.path().to_str().unwrap();
    for command in [vec!["status"], vec!["config", "envoy-proxy", "all"], vec!["version", "--remote"]] {
        let done = egctl(&[&command[..], &["--kubeconfig", path, "--request-timeout", "200ms"]].concat(), "");
        assert!(!succeeded(&done) && done.out.is_empty(), "{command:?}");
        let words = format!("no answer from the API server at http://127.0.0.1:{port}/ within 200ms");
        assert!(done.err.contains(&words), "{command:?}: {}", done.err);
    }
    drop(listener);
    let done = egctl(&["status", "gateway", "--kubeconfig", path], "");
    assert!(
        done.err.contains(&format!("the API server at http://127.0.0.1:{port}/ cannot be reached")),
        "{}",
        done.err
    );
    let done = egctl(&["status", "--kubeconfig", "/does/not/exist"], "");
    assert!(done.err.contains("the kubeconfig /does/not/exist cannot be read"), "{}", done.err);
    let done = egctl(&["status", "pods", "--kubeconfig", path], "");
    assert!(done.err.contains("no kind with a status is called pods; there are all, xroute"), "{}", done.err);
}
