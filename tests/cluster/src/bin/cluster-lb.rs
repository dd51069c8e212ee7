//! Hands out LoadBalancer addresses in the test cluster: `cluster-lb RANGE`, with `KUBECONFIG` set.

#![allow(clippy::print_stdout, reason = "a program whose output is its log")]

use std::{net::Ipv4Addr, pin::pin, time::Duration};

use anyhow::{Context, Result};
use cluster::pool::{Need, Pool};
use futures::StreamExt;
use k8s_openapi::api::core::v1::Service;
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
    runtime::{
        WatchStreamExt,
        watcher::{self, Event, watcher},
    },
};
use serde_json::json;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let range = std::env::args().nth(1).context("usage: cluster-lb RANGE")?;
    let mut pool = Pool::new(&range)?;
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let client = Client::try_default().await?;
    let services: Api<Service> = Api::all(client.clone());
    let mut events = pin!(watcher(services, watcher::Config::default()).default_backoff());
    while let Some(event) = events.next().await {
        let service = match event {
            Ok(Event::Apply(service) | Event::InitApply(service)) => service,
            Ok(Event::Delete(service)) => {
                pool.gone(&service);
                continue;
            }
            Ok(Event::Init | Event::InitDone) => continue,
            Err(e) => {
                println!("watch: {e}");
                continue;
            }
        };
        let Need::Tell(address) = pool.seen(&service) else { continue };
        tell(&client, &service, address).await;
    }
    Ok(())
}

/// Writes the address, again and again while the API server does not take it.
async fn tell(client: &Client, service: &Service, address: Ipv4Addr) {
    let (namespace, name) = (service.namespace().unwrap_or_default(), service.name_any());
    let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": address}]}}});
    let api: Api<Service> = Api::namespaced(client.clone(), &namespace);
    loop {
        match api.patch_status(&name, &PatchParams::default(), &Patch::Merge(&status)).await {
            Ok(_) => return println!("{namespace}/{name} {address}"),
            Err(kube::Error::Api(s)) if s.code == 404 => return,
            Err(e) => println!("{namespace}/{name} {address}: {e}"),
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}
