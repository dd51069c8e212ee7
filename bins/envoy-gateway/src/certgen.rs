//! `certgen`: the certificates between the control plane and its proxies, as files or as Secrets of a cluster.

use std::{collections::BTreeMap, process::ExitCode, time::Duration};

use anyhow::{Context, Result, bail};
use certs::{Ensured, Found, SecretData, Spec};
use k8s_openapi::{
    ByteString,
    api::{admissionregistration::v1::MutatingWebhookConfiguration, core::v1::Secret},
};
use kube::{
    Api, Client, Error,
    api::{Patch, PatchParams, PostParams},
    core::ObjectMeta,
};
use serde_json::json;

use crate::{
    cli::{CertgenArgs, CommonArgs},
    convert,
    homes::Homes,
    leader,
};

/// Label of the Secrets that this program or the Go controller made.
const OURS: (&str, &str) = ("control-plane", "envoy-gateway");
/// Longest time for all of it.
const PATIENCE: Duration = Duration::from_secs(120);
/// The server's certificate: its CA is the one that the webhook's caller trusts.
const SERVER: &str = "envoy-gateway";

/// Runs the command.
pub(crate) fn run(args: &CertgenArgs) -> Result<ExitCode> {
    let spec = Spec::new(convert::controller_namespace(), convert::dns_domain());
    if args.local {
        return local(args, &spec);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("no async runtime")?;
    runtime.block_on(async {
        let common = CommonArgs { kubeconfig: args.kubeconfig.clone(), ..CommonArgs::default() };
        let config = leader::kube_config(&common).await?;
        let client = Client::try_from(config).context("the kubeconfig makes no client")?;
        let work = async {
            let ca = secrets(&client, &spec, args.overwrite).await?;
            if args.disable_topology_injector { Ok(()) } else { webhook(client, &spec, ca).await }
        };
        tokio::time::timeout(PATIENCE, work).await.context("the API server takes too long")?
    })?;
    Ok(ExitCode::SUCCESS)
}

fn local(args: &CertgenArgs, spec: &Spec) -> Result<ExitCode> {
    let homes = Homes::new(None, args.config_home.as_deref())?;
    let store = certs::Store::new(homes.certs());
    let done = store.ensure(spec, certs::now(), args.overwrite).context("the certificates cannot be made")?;
    for replaced in &done.replaced {
        println!("{replaced}");
    }
    println!("certificates are in {}", store.root().display());
    Ok(ExitCode::SUCCESS)
}

/// Sees to the four Secrets; gives the CAs that the control plane's certificate is trusted by.
async fn secrets(client: &Client, spec: &Spec, overwrite: bool) -> Result<ByteString> {
    let namespace = &spec.namespace;
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let mut there = BTreeMap::new();
    let mut found = Found::default();
    for name in certs::SECRETS {
        let got = api.get_opt(name).await.with_context(|| format!("Secret {namespace}/{name} cannot be read"))?;
        if let Some(secret) = got {
            let data = secret.data.iter().flatten().map(|(k, v)| (k.clone(), v.0.clone())).collect();
            found.add_secret(name, &data);
            there.insert(name, secret);
        }
    }
    let done = certs::settle(found, spec, certs::now(), overwrite).context("the certificates cannot be made")?;
    for what in writes(&done, &there, overwrite) {
        let (name, old) = (what.name, there.get(what.name));
        write(&api, what, old).await.with_context(|| format!("Secret {namespace}/{name} cannot be written"))?;
    }
    // What is there now, also where others made it.
    let server = api.get(SERVER).await.with_context(|| format!("Secret {namespace}/{SERVER} cannot be read"))?;
    let ca = server.data.and_then(|mut d| d.remove("ca.crt"));
    ca.with_context(|| format!("Secret {namespace}/{SERVER} has no ca.crt"))
}

/// Secrets to write, each told with its reason. What others made is left alone unless everything is to be new.
fn writes(done: &Ensured, there: &BTreeMap<&str, Secret>, overwrite: bool) -> Vec<SecretData> {
    let mut out = Vec::new();
    for secret in done.set.secrets() {
        let name = secret.name;
        let why = match certs::Identity::from_name(name) {
            Some(identity) => done.replaced.iter().find(|r| r.identity == identity).map(|r| r.fault.to_string()),
            None => done.new_hmac.then(|| "new key".to_owned()),
        };
        match (why, there.get(name)) {
            (None, _) => println!("{name}: kept"),
            (Some(_), None) => {
                println!("{name}: made");
                out.push(secret);
            }
            (Some(why), Some(old)) if overwrite || is_ours(old) => {
                println!("{name}: made anew: {why}");
                out.push(secret);
            }
            (Some(why), Some(_)) => println!("{name}: kept, as others made it; but {why}"),
        }
    }
    out
}

fn is_ours(secret: &Secret) -> bool {
    let label = secret.metadata.labels.as_ref().and_then(|l| l.get(OURS.0));
    label.is_some_and(|v| v == OURS.1) && secret.metadata.owner_references.as_ref().is_none_or(Vec::is_empty)
}

/// Creates a Secret, or replaces the data of the version that was read.
async fn write(api: &Api<Secret>, what: SecretData, old: Option<&Secret>) -> Result<()> {
    let data = Some(what.data.into_iter().map(|(k, v)| (k.to_owned(), ByteString(v))).collect());
    let params = PostParams::default();
    let Some(old) = old else {
        let labels = Some(BTreeMap::from([(OURS.0.to_owned(), OURS.1.to_owned())]));
        let metadata = ObjectMeta { name: Some(what.name.to_owned()), labels, ..ObjectMeta::default() };
        let secret = Secret { metadata, data, type_: Some(what.kind.to_owned()), ..Secret::default() };
        api.create(&params, &secret).await?;
        return Ok(());
    };
    if let Some(kind) = old.type_.as_deref().filter(|k| *k != what.kind) {
        bail!("it is of type {kind}, not {}: delete it and try again", what.kind);
    }
    api.replace(what.name, &params, &Secret { data, ..old.clone() }).await?;
    Ok(())
}

/// Tells the webhook's caller whom to trust.
async fn webhook(client: Client, spec: &Spec, ca: ByteString) -> Result<()> {
    let api: Api<MutatingWebhookConfiguration> = Api::all(client);
    let name = format!("envoy-gateway-topology-injector.{}", spec.namespace);
    let patched = async {
        let there = api.get(&name).await?;
        let webhooks = there.webhooks.iter().flatten().enumerate();
        let stale = webhooks.filter(|(_, w)| w.client_config.ca_bundle.as_ref() != Some(&ca));
        let changes: Vec<_> = stale
            .flat_map(|(i, w)| {
                [
                    // Not that of another webhook, should the list have changed.
                    json!({"op": "test", "path": format!("/webhooks/{i}/name"), "value": w.name}),
                    json!({"op": "add", "path": format!("/webhooks/{i}/clientConfig/caBundle"), "value": ca}),
                ]
            })
            .collect();
        if changes.is_empty() {
            return Ok(false);
        }
        let patch: Patch<()> = Patch::Json(serde_json::from_value(changes.into()).map_err(Error::SerdeError)?);
        api.patch(&name, &PatchParams::default(), &patch).await?;
        Ok::<_, Error>(true)
    };
    match patched.await {
        Ok(true) => println!("{name}: CA bundle set"),
        Ok(false) => println!("{name}: kept"),
        Err(Error::Api(status)) if status.code == 404 => {
            bail!(
                "there is no MutatingWebhookConfiguration {name}: create it first, or give --disable-topology-injector"
            )
        }
        Err(e) => {
            return Err(e).with_context(|| format!("MutatingWebhookConfiguration {name} cannot be changed"));
        }
    }
    Ok(())
}
