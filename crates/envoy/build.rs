//! Compiles Envoy's protocol definitions, as crate `envoy-types` ships them, into what the crate needs at run time:
//!
//! * `envoy.fds`: a descriptor set of all messages, for JSON (`src/json`);
//! * `schema.rs`: a table of those fields that hold a map or an `Any`, directly or further down, for the encoder that
//!   brings maps into order (`src/wire.rs`).
//!
//! `envoy-types` is found with `cargo metadata`; `protoc` comes from `protoc-bin-vendored`. Both work without a network.
//! `proto/` holds the few definitions that `envoy-types` leaves out.

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    error::Error,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use prost::Message as _;
use prost_types::{DescriptorProto, FileDescriptorSet, field_descriptor_proto::Type};

/// Roots inside the `proto` folder of `envoy-types`, in the order of look-up.
const ROOTS: [&str; 8] = [
    "data-plane-api",
    "xds",
    "protoc-gen-validate",
    "googleapis",
    "opentelemetry-proto",
    "cel-spec/proto",
    "client_model",
    "ratelimit/api",
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=proto");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let set = compile(&out.join("envoy.fds"))?;
    fs::write(out.join("schema.rs"), schema(&set))?;
    Ok(())
}

/// Runs `protoc` over the definitions; leaves the descriptor set in `to`.
fn compile(to: &Path) -> Result<FileDescriptorSet, Box<dyn Error>> {
    let own = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("proto");
    let envoy_types = envoy_types()?.join("proto");
    let mut command = Command::new(protoc_bin_vendored::protoc_bin_path()?);
    command.arg("--include_imports").arg("-o").arg(to);
    command.arg("-I").arg(&own);
    for root in ROOTS {
        command.arg("-I").arg(envoy_types.join(root));
    }
    command.arg("-I").arg(protoc_bin_vendored::include_path()?);
    for root in [own, envoy_types.join(ROOTS[0]), envoy_types.join(ROOTS[1])] {
        command.args(definitions(&root)?);
    }
    let done = command.output()?;
    if !done.status.success() {
        return Err(format!("protoc: {}", String::from_utf8_lossy(&done.stderr)).into());
    }
    Ok(FileDescriptorSet::decode(&*fs::read(to)?)?)
}

/// Folder of the sources of `envoy-types`.
fn envoy_types() -> Result<PathBuf, Box<dyn Error>> {
    let metadata = |offline: bool| -> Result<Vec<u8>, Box<dyn Error>> {
        let mut command = Command::new(env::var("CARGO")?);
        command.current_dir(env::var("CARGO_MANIFEST_DIR")?).args(["metadata", "--format-version", "1"]);
        if offline {
            command.arg("--offline");
        }
        let done = command.output()?;
        if done.status.success() {
            Ok(done.stdout)
        } else {
            Err(format!("cargo metadata: {}", String::from_utf8_lossy(&done.stderr)).into())
        }
    };
    // Cargo has what it builds; only a lock file that has to be written anew needs more.
    let answer = metadata(true).or_else(|_| metadata(false))?;
    let answer: serde_json::Value = serde_json::from_slice(&answer)?;
    let packages = answer["packages"].as_array().ok_or("cargo metadata names no packages")?;
    let package = packages.iter().find(|p| p["name"] == "envoy-types").ok_or("envoy-types is no dependency")?;
    let manifest = package["manifest_path"].as_str().ok_or("envoy-types has no manifest path")?;
    Ok(Path::new(manifest).parent().ok_or("manifest path without a folder")?.to_owned())
}

/// All `.proto` files below `root`, relative to it, sorted.
fn definitions(root: &Path) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    fn walk(dir: &Path, root: &Path, out: &mut Vec<PathBuf>) -> Result<(), Box<dyn Error>> {
        for entry in fs::read_dir(dir)? {
            let path = entry?.path();
            if path.is_dir() {
                walk(&path, root, out)?;
            } else if path.extension().is_some_and(|e| e == "proto") {
                out.push(path.strip_prefix(root)?.to_owned());
            }
        }
        Ok(())
    }
    let mut out = Vec::new();
    walk(root, root, &mut out)?;
    out.sort();
    Ok(out)
}

/// Fields of a message that are messages: number, type, and whether they are a map (then the type is the value's).
type Fields = Vec<(i32, String, bool)>;

/// The table of messages with maps or `Any` in them.
fn schema(set: &FileDescriptorSet) -> String {
    let mut messages = BTreeMap::new();
    for file in &set.file {
        let scope = file.package();
        for message in &file.message_type {
            collect(scope, message, &mut messages);
        }
    }
    // Maps to begin with, then all that leads to one or to `Any`, until nothing is added.
    let mut chosen: BTreeSet<String> = messages
        .iter()
        .filter(|(_, fields)| fields.iter().any(|(_, ty, map)| *map || ty == ANY))
        .map(|(name, _)| name.clone())
        .collect();
    loop {
        let more: Vec<String> = messages
            .iter()
            .filter(|(name, fields)| !chosen.contains(*name) && fields.iter().any(|(_, ty, _)| chosen.contains(ty)))
            .map(|(name, _)| name.clone())
            .collect();
        if more.is_empty() {
            break;
        }
        chosen.extend(more);
    }
    let index: BTreeMap<&str, usize> = chosen.iter().enumerate().map(|(i, n)| (n.as_str(), i)).collect();
    let mut out = String::from("static MESSAGES: &[(&str, &[Field])] = &[\n");
    for name in &chosen {
        let _ = write!(out, "    ({name:?}, &[");
        for (number, ty, map) in &messages[name] {
            let content = if ty == ANY {
                "Content::Any".to_owned()
            } else if let Some(i) = index.get(ty.as_str()) {
                format!("Content::Message({i})")
            } else if *map {
                "Content::Plain".to_owned()
            } else {
                continue;
            };
            let _ = write!(out, "Field {{ number: {number}, map: {map}, content: {content} }}, ");
        }
        out.push_str("]),\n");
    }
    out.push_str("];\n");
    out
}

const ANY: &str = "google.protobuf.Any";

fn collect(scope: &str, message: &DescriptorProto, out: &mut BTreeMap<String, Fields>) {
    let name = if scope.is_empty() { message.name().to_owned() } else { format!("{scope}.{}", message.name()) };
    let entries: BTreeMap<String, &DescriptorProto> = message
        .nested_type
        .iter()
        .filter(|n| n.options.as_ref().is_some_and(|o| o.map_entry()))
        .map(|n| (format!(".{name}.{}", n.name()), n))
        .collect();
    let mut fields = Fields::new();
    for field in message.field.iter().filter(|f| f.r#type() == Type::Message) {
        let (ty, map) = match entries.get(field.type_name()) {
            Some(entry) => (entry.field.iter().find(|f| f.number() == 2).map_or("", |f| f.type_name()), true),
            None => (field.type_name(), false),
        };
        fields.push((field.number(), ty.trim_start_matches('.').to_owned(), map));
    }
    fields.sort();
    for nested in &message.nested_type {
        collect(&name, nested, out);
    }
    out.insert(name, fields);
}
