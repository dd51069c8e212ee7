//! Proxies in the namespaces of their Gateways have no certificate of ours: they show the tokens of their service accounts.

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use api::config::{EnvoyGateway, ProviderType};
use aws_lc_rs::digest::{SHA256, digest};
use election::kubernetes::{ReadOnlyLayer, read_only_client};
use infra::kubernetes::{Options, service_account};
use provider::last_good;
use tokens::{Account, Basis, Claim, Reviewer};
use tokio::time::{sleep, timeout};
use tracing::{debug, info, warn};
use xds::{Admit, Applicant, Denied};

use crate::{
    cli::CommonArgs,
    fleets::{self, WantedFleets},
    leader,
    shared::Progress,
};

/// Name of the file with the published keys, beside the last good state.
const KEYS: &str = "token-keys";
/// How often it is seen whether the file has to be sealed with another key.
const LOOK: Duration = Duration::from_secs(30);
/// Longest wait for the first translation, which tells what fleets there are.
const PATIENCE: Duration = Duration::from_secs(10);

/// What decides about streams.
#[derive(Clone)]
pub(crate) struct Tokens {
    reviewer: Reviewer,
    options: Arc<Options>,
    fleets: WantedFleets,
    progress: Arc<Progress>,
}

/// Where the published keys are kept for a start while the API server is away.
pub(crate) struct Kept {
    /// The folder.
    pub(crate) folder: PathBuf,
    /// What the file is sealed with.
    pub(crate) secret: last_good::Secret,
}

impl Tokens {
    /// What the settings ask for: nothing where proxies show certificates. Nothing is asked of the cluster yet.
    ///
    /// # Errors
    /// When the kubeconfig makes no client.
    pub(crate) async fn open(
        settings: &EnvoyGateway,
        args: &CommonArgs,
        fleets: &WantedFleets,
        progress: &Arc<Progress>,
    ) -> Result<Option<Self>> {
        let options = fleets::options(settings);
        if settings.provider.type_ != ProviderType::Kubernetes || !options.gateway_namespaces {
            return Ok(None);
        }
        // Under a limit of its own: strangers with bad tokens must not slow down those who write.
        let config = leader::kube_config(args).await?;
        let client = read_only_client(config, &ReadOnlyLayer::new()).context("the kubeconfig makes no client")?;
        let reviewer = Reviewer::new(client, options.xds_host(), || certs::now().as_secs());
        Ok(Some(Self { reviewer, options: Arc::new(options), fleets: fleets.clone(), progress: progress.clone() }))
    }

    /// Decides by the certificate, where one was shown, else by the token.
    pub(crate) fn admit(&self) -> Admit {
        let tokens = self.clone();
        Admit::new(move |applicant| {
            let tokens = tokens.clone();
            async move { tokens.decide(&applicant).await }
        })
    }

    async fn decide(&self, applicant: &Applicant) -> Result<(), Denied> {
        // Proxies of before the mode was chosen; only the control plane's own namespace has such certificates.
        if applicant.certified {
            return Ok(());
        }
        let Some(shown) = &applicant.authorization else {
            return Err(Denied::Refused(
                "neither a certificate nor the token of a service account was shown".to_owned(),
            ));
        };
        let mut synced = self.progress.synced.subscribe();
        let known = timeout(PATIENCE, synced.wait_for(|n| *n > 0)).await.is_ok();
        let group = &*applicant.group.0;
        let fleet = known.then(|| self.fleets.get(&group.to_owned())).flatten();
        let Some(fleet) = fleet else {
            return Err(Denied::NotNow(format!("no Gateway with a fleet {group} is known")));
        };
        let (namespace, name) = service_account(&fleet, &self.options);
        let account = Account { namespace, name };
        match self.reviewer.check(shown, Claim { account: &account, pod: &applicant.node }).await {
            Ok(Basis::Keys) => {
                info!(node = %applicant.node, group, "admitted by the published keys: the API server does not answer");
                Ok(())
            }
            Ok(basis) => {
                debug!(node = %applicant.node, group, ?basis, "admitted");
                Ok(())
            }
            Err(refused) if refused.is_passing() => Err(Denied::NotNow(refused.to_string())),
            Err(refused) => Err(Denied::Refused(refused.to_string())),
        }
    }

    /// Follows the published keys, and keeps them on disk where the last good state is kept.
    pub(crate) async fn run(self, kept: Option<Kept>) {
        let Some(kept) = kept else { return self.reviewer.follow_keys().await };
        self.recall(&kept);
        tokio::select! {
            () = self.reviewer.follow_keys() => {}
            () = self.keep(&kept) => {}
        }
    }

    fn recall(&self, kept: &Kept) {
        let read = last_good::recall(&kept.folder, KEYS, &(kept.secret)());
        match read.map(|file| file.map(|file| serde_json::from_slice(&file))) {
            Ok(None) => {}
            Ok(Some(Ok(keys))) => self.reviewer.recall(keys),
            Ok(Some(Err(error))) => warn!(%error, "the keys for tokens that were kept are not used"),
            Err(error) => warn!(%error, "the keys for tokens that were kept are not used"),
        }
    }

    async fn keep(&self, kept: &Kept) {
        let mut keys = self.reviewer.keys();
        let (mut done, mut fault) = (None, String::new());
        loop {
            let secret = (kept.secret)();
            let now = keys.borrow_and_update().clone();
            let wanted = (now, digest(&SHA256, &secret).as_ref().to_vec());
            if wanted.0.is_some() && done.as_ref() != Some(&wanted) {
                let written = serde_json::to_vec(&wanted.0)
                    .map_err(|e| e.to_string())
                    .and_then(|file| last_good::keep(&kept.folder, KEYS, &secret, file).map_err(|e| e.to_string()));
                match written {
                    Ok(()) => (done, fault) = (Some(wanted), String::new()),
                    Err(error) if error != fault => {
                        warn!(error, "the keys for tokens cannot be kept for a start while the API server is away");
                        fault = error;
                    }
                    Err(_) => {}
                }
            }
            tokio::select! {
                () = sleep(LOOK) => {}
                changed = keys.changed() => if changed.is_err() { return },
            }
        }
    }
}
