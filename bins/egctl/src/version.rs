//! `egctl version`.

use anyhow::Result;
use serde_json::{Value, json};

use crate::{
    cli::{Streams, Version},
    cluster::{Cluster, place},
    config::{CONTROL_PLANE, choose},
    output,
};

pub(crate) async fn run(args: &Version, streams: &mut Streams<'_>) -> Result<bool> {
    let version = env!("CARGO_PKG_VERSION");
    let mut complete = true;
    let mut servers = Vec::new();
    if args.remote {
        let cluster = Cluster::open(&args.pods.reach).await?;
        for pod in choose(&cluster, &args.pods, CONTROL_PLANE).await? {
            let (namespace, name) = place(&pod);
            match cluster.ask_pod(&pod, args.admin_port, "/api/info").await {
                Ok(info) => servers.push(json!({
                    "namespace": namespace, "pod": name,
                    "envoyGatewayVersion": info["version"], "gatewayAPIVersion": info["gatewayApiVersion"],
                })),
                Err(e) => {
                    writeln!(streams.err, "left out: {e:#}")?;
                    complete = false;
                }
            }
        }
    }
    let text = match args.output {
        None => {
            let line = |s: &Value| {
                let text = |field: &str| s[field].as_str().unwrap_or("unknown");
                format!(
                    "{}/{} {} (Gateway API {})\n",
                    text("namespace"),
                    text("pod"),
                    text("envoyGatewayVersion"),
                    text("gatewayAPIVersion")
                )
            };
            format!("egctl {version}\n") + &servers.iter().map(line).collect::<String>()
        }
        Some(format) => {
            let mut all = json!({"client": {"egctlVersion": version}});
            if args.remote {
                all["servers"] = servers.into();
            }
            output::one(&all, format)?
        }
    };
    streams.out.write_all(text.as_bytes())?;
    Ok(complete)
}
