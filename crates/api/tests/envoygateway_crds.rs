//! The files in `deploy/crds` are those that the types generate.

#[path = "../examples/crds.rs"]
mod crds;

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

#[test]
fn files_are_up_to_date() {
    let committed: BTreeMap<String, String> = std::fs::read_dir(crds::folder())
        .expect("the folder is there")
        .map(|entry| entry.expect("the folder can be read"))
        .map(|entry| (entry.file_name().into_string().unwrap(), std::fs::read_to_string(entry.path()).unwrap()))
        .collect();
    let generated: BTreeMap<String, String> = crds::files().into_iter().collect();
    assert_eq!(committed.keys().collect::<Vec<_>>(), generated.keys().collect::<Vec<_>>());
    for (name, text) in generated {
        assert!(committed[&name] == text, "{name} differs from the types: cargo run -p api --example crds");
    }
}

#[test]
fn files_say_what_the_definitions_say() {
    let definitions = api::envoygateway::definitions();
    let files = crds::files();
    assert_eq!(files.len(), 8);
    for ((name, text), definition) in files.into_iter().zip(definitions) {
        let read: CustomResourceDefinition = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(read, definition, "{name}");
    }
}
