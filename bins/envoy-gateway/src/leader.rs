//! The role of this process: by election on a Kubernetes Lease, or without one.

use anyhow::{Context, Result};
use api::config::{EnvoyGateway, OnLostLease};
use election::{Elector, ElectorThread, Identity, Policy, RoleWatch, Timings, kubernetes::KubernetesLease};

use crate::{cli::CommonArgs, convert};

/// Name of the Lease, that of the Go controller: during a migration the old and the new one never both lead.
pub(crate) const LEASE: &str = "5b9825d2.gateway.envoyproxy.io";

/// The role channel, and the election behind it if there is one.
pub(crate) async fn role(settings: &EnvoyGateway, args: &CommonArgs) -> Result<(RoleWatch, Option<ElectorThread>)> {
    let Some((_, section)) = settings::leader_election(settings) else {
        return Ok((RoleWatch::always_leader(), None));
    };
    let wanted = settings::election(section);
    if !wanted.enabled {
        return Ok((RoleWatch::always_leader(), None));
    }
    let timings = Timings {
        lease_duration: wanted.lease_duration,
        renew_deadline: wanted.renew_deadline,
        retry_period: wanted.retry_period,
        write_timeout: wanted.write_timeout,
    };
    let policy = Policy {
        on_lost_lease: match wanted.on_lost_lease {
            OnLostLease::Exit => election::OnLostLease::Exit,
            OnLostLease::Demote => election::OnLostLease::Demote,
        },
        max_recovery: wanted.max_recovery_duration,
    };
    let pod =
        std::env::var("POD_NAME").or_else(|_| std::env::var("HOSTNAME")).unwrap_or_else(|_| "envoy-gateway".to_owned());
    let identity = Identity::unique(&pod)?;
    let config = kube_config(args).await?;
    let store = KubernetesLease::new(config, &convert::controller_namespace(), LEASE)?;
    let (elector, role) = Elector::new(store, identity, timings)?;
    let thread = elector.with_policy(policy).spawn_thread().context("the elector has no thread")?;
    Ok((role, Some(thread)))
}

/// Reads the kubeconfig, or the service account of the pod.
pub(crate) async fn kube_config(args: &CommonArgs) -> Result<kube::Config> {
    match &args.kubeconfig {
        Some(path) => {
            let file = kube::config::Kubeconfig::read_from(path)
                .with_context(|| format!("--kubeconfig {} cannot be read", path.display()))?;
            Ok(kube::Config::from_custom_kubeconfig(file, &kube::config::KubeConfigOptions::default()).await?)
        }
        None => kube::Config::incluster().context("this is no pod of a cluster: give --kubeconfig FILE"),
    }
}
