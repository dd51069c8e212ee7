//! An object that passes every check of ours and that Envoy refuses all the same: traced, told in its status, left out,
//! while everything else goes on.

use anyhow::{Context, Result, ensure};
use e2e::{Gateway, Surroundings, client::Request, gateway::envoy_bin, wait::until};

const GATEWAY: &str = r#"
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: test}
spec: {controllerName: gateway.envoyproxy.io/gatewayclass-controller}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: main, namespace: default}
spec:
  gatewayClassName: test
  listeners:
  - {name: http, protocol: HTTP, port: ${port:http}}
---
apiVersion: gateway.envoyproxy.io/v1alpha1
kind: Backend
metadata: {name: web-1, namespace: default}
spec: {endpoints: [{ip: {address: 127.0.0.1, port: ${backend:web-1}}}]}
"#;

/// A response header with a time in this format. What a format may hold is Envoy's own business; it refuses a line break.
fn refused(format: &str) -> String {
    format!(
        r#"
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {{name: bad, namespace: default}}
spec:
  parentRefs: [{{name: main}}]
  hostnames: [bad.test]
  rules:
  - filters:
    - type: ResponseHeaderModifier
      responseHeaderModifier: {{set: [{{name: x-value, value: "%START_TIME({format})%"}}]}}
    backendRefs: [{{group: gateway.envoyproxy.io, kind: Backend, name: web-1}}]
"#
    )
}

fn route(name: &str, value: &str) -> String {
    format!(
        r#"
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {{name: {name}, namespace: default}}
spec:
  parentRefs: [{{name: main}}]
  hostnames: [{name}.test]
  rules:
  - filters:
    - type: ResponseHeaderModifier
      responseHeaderModifier: {{set: [{{name: x-value, value: "{value}"}}]}}
    backendRefs: [{{group: gateway.envoyproxy.io, kind: Backend, name: web-1}}]
"#
    )
}

/// `x-value` of an answer, or its status.
async fn ask(host: &str, port: u16) -> Result<String> {
    let answer = Request::get(format!("http://{host}.test:{port}/")).send().await?;
    let value = answer.headers.get("x-value").and_then(|v| v.to_str().ok());
    Ok(value.map_or_else(|| answer.status.to_string(), str::to_owned))
}

/// The `Accepted` condition of a route: status, reason, message.
async fn accepted(gateway: &Gateway, name: &str) -> Result<(String, String, String)> {
    let all = gateway.admin("/api/status").await?;
    let route =
        all.as_array().context("statuses")?.iter().find(|o| o["kind"] == "HTTPRoute" && o["metadata"]["name"] == name);
    let conditions =
        route.context("no status")?["status"]["parents"][0]["conditions"].as_array().context("conditions")?.clone();
    let accepted = conditions.iter().find(|c| c["type"] == "Accepted").context("no Accepted")?;
    let text = |field: &str| accepted[field].as_str().unwrap_or_default().to_owned();
    Ok((text("status"), text("reason"), text("message")))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_route_that_envoy_refuses_is_told_and_left_out_and_nothing_else_waits() -> Result<()> {
    let Some(envoy) = envoy_bin() else { return Ok(()) };
    let surroundings = Surroundings::start().await?;
    let config = surroundings.fill(GATEWAY)?;
    let port = surroundings.port("http")?;
    let gateway = Gateway::start(&envoy, &[("gateway.yaml", &config), ("good.yaml", &route("good", "v1"))]).await?;
    until("the first answer", async || Ok(ask("good", port).await.unwrap_or_default() == "v1")).await?;

    // One change with the culprit among others: a table that Envoy refuses whole.
    let both = |format| format!("{}---\n{}---\n{}", route("good", "v2"), refused(format), route("new", "v1"));
    gateway.write("good.yaml", &both("%n"))?;
    let took =
        until("the others go on", async || Ok(ask("good", port).await? == "v2" && ask("new", port).await? == "v1"))
            .await?;
    println!("the others were served {} ms after the change", took.as_millis());
    until("the culprit is told", async || Ok(accepted(&gateway, "bad").await?.0 == "False")).await?;
    until("the others are accepted", async || {
        Ok(accepted(&gateway, "good").await?.0 == "True" && accepted(&gateway, "new").await?.0 == "True")
    })
    .await?;
    let (_, reason, message) = accepted(&gateway, "bad").await?;
    ensure!(reason == "UnsupportedValue", "reason {reason}");
    for part in ["HTTPRoute default/bad", "contains newline", "until it is changed"] {
        ensure!(message.contains(part), "{part:?} is not in {message:?}");
    }
    ensure!(ask("bad", port).await? == "404", "the culprit is not served");

    // Later changes are not held up, and the culprit is not tried again for them.
    gateway.write("later.yaml", &route("later", "v1"))?;
    until("a later route", async || Ok(ask("later", port).await? == "v1")).await?;
    ensure!(accepted(&gateway, "bad").await?.0 == "False", "the culprit came back unchanged");

    // Mended, it comes back.
    gateway.write("good.yaml", &both("ok"))?;
    until("the mended route", async || Ok(ask("bad", port).await? == "ok")).await?;
    until("it is accepted", async || Ok(accepted(&gateway, "bad").await?.0 == "True")).await?;
    Ok(())
}
