//! `egctl translate`.

use admission::Admission;
use anyhow::Result;
use api::config::EnvoyGateway;
use resources::Change;
use serde_json::{Value, json};
use translator::Config;

use crate::{
    cli::{ResourceType, Streams, To, Translate},
    fill, input, offline,
    output::{self, Format},
};

/// Tells whether nothing had to be left out.
pub(crate) fn run(args: &Translate, streams: &mut Streams<'_>) -> Result<bool> {
    let config = Config { dns_domain: args.dns_domain.as_str().into(), ..Config::from(&file(args, streams)?) };
    let admission = Admission::new();
    let mut objects = input::read(&args.files, streams.input, &admission, Some(&args.namespace))?;
    fill::services(&mut objects, &admission, args.add_missing_resources)?;
    for kind in &objects.ignored {
        writeln!(streams.err, "ignored: {kind}")?;
    }
    for refusal in &objects.refused {
        writeln!(streams.err, "refused: {}", refusal.message)?;
    }
    let mut complete = objects.refused.is_empty();
    objects.changes.push(Change::Synced);
    let full = translator::translate(std::mem::take(&mut objects.changes), &config);

    let xds = if args.to.contains(&To::Xds) {
        let (mut xds, errors) = offline::xds(&full)?;
        for error in &errors {
            writeln!(streams.err, "left out: {error}")?;
        }
        complete &= errors.is_empty();
        select(&mut xds, &args.types);
        Some(xds)
    } else {
        None
    };
    let statuses = if args.to.contains(&To::Status) { Some(offline::statuses(&full)) } else { None };
    let text = match (xds, statuses) {
        (Some(xds), None) => output::one(&xds, args.output)?,
        (None, Some(statuses)) => output::several(&statuses, args.output)?,
        (Some(xds), Some(statuses)) if args.output == Format::Json => {
            output::one(&json!({"xds": xds, "status": statuses}), args.output)?
        }
        (Some(xds), Some(statuses)) => {
            let documents: Vec<Value> = std::iter::once(xds).chain(statuses).collect();
            output::several(&documents, args.output)?
        }
        (None, None) => String::new(),
    };
    streams.out.write_all(text.as_bytes())?;
    Ok(complete)
}

/// The configuration file, or defaults with which everything in the input means something.
fn file(args: &Translate, streams: &mut Streams<'_>) -> Result<EnvoyGateway> {
    let Some(path) = &args.config else {
        let mut config = EnvoyGateway::default();
        config.extension_apis.enable_backend = true;
        config.extension_apis.enable_envoy_patch_policy = true;
        config.extension_apis.enable_lua = Some(true);
        return Ok(config);
    };
    let loaded = settings::read(Some(path), std::iter::empty())?;
    for warning in &loaded.warnings {
        writeln!(streams.err, "{warning}")?;
    }
    Ok(loaded.config)
}

/// Leaves only the lists of the types asked for.
fn select(xds: &mut Value, types: &[ResourceType]) {
    if types.contains(&ResourceType::All) {
        return;
    }
    let list = |t: &ResourceType| match t {
        ResourceType::All => "",
        ResourceType::Cluster => "clusters",
        ResourceType::Endpoint => "endpoints",
        ResourceType::Listener => "listeners",
        ResourceType::Route => "routes",
        ResourceType::Secret => "secrets",
    };
    let wanted: Vec<&str> = types.iter().map(list).collect();
    for group in xds.as_object_mut().into_iter().flat_map(|m| m.values_mut()) {
        if let Value::Object(lists) = group {
            lists.retain(|name, _| wanted.contains(&name.as_str()));
        }
    }
}
