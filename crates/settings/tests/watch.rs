//! Hot reload over real files.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::Path;
use std::time::Duration;

use settings::{Reload, Watch};

const HEAD: &str = "apiVersion: gateway.envoyproxy.io/v1alpha1\nkind: EnvoyGateway\n";

fn write(path: &Path, body: &str) {
    std::fs::write(path, format!("{HEAD}{body}")).unwrap();
}

fn start(path: &Path) -> Watch {
    let current = settings::load(Some(path), std::iter::empty()).unwrap();
    settings::watch(path, [], current).unwrap()
}

/// The next change, within a time that only a watch which sees nothing exceeds: its rescan comes later.
async fn next(watch: &mut Watch) -> Reload {
    tokio::time::timeout(Duration::from_secs(8), watch.next()).await.expect("the change is seen at once")
}

async fn port(watch: &mut Watch) -> u16 {
    match next(watch).await {
        Reload::Changed(loaded) => loaded.config.admin.address.port,
        Reload::Refused(error) => panic!("{error}"),
    }
}

#[tokio::test]
async fn valid_changes_come_and_invalid_ones_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("eg.yaml");
    write(&file, "");
    let mut watch = start(&file);

    write(&file, "admin: { address: { port: 1 } }\n");
    assert_eq!(port(&mut watch).await, 1);

    write(&file, "admin: { address: { port: none } }\n");
    match next(&mut watch).await {
        Reload::Refused(error) => assert_eq!(error.problems()[0].field, "admin.address.port"),
        Reload::Changed(loaded) => panic!("{loaded:?}"),
    }

    // Back to what is in use: nothing to do. Then a real change, by rename as editors do.
    write(&file, "# only a comment\nadmin: { address: { port: 1 } }\n");
    let fresh = folder.path().join("fresh");
    write(&fresh, "admin: { address: { port: 2 } }\n");
    std::fs::rename(&fresh, &file).unwrap();
    assert_eq!(port(&mut watch).await, 2);

    std::fs::remove_file(&file).unwrap();
    assert!(matches!(next(&mut watch).await, Reload::Refused(settings::SettingsError::Read { .. })));
    write(&file, "admin: { address: { port: 3 } }\n");
    assert_eq!(watch.changed().await.config.admin.address.port, 3);
}

#[tokio::test]
async fn a_change_before_the_watch_is_not_lost() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("eg.yaml");
    write(&file, "");
    let current = settings::load(Some(&file), std::iter::empty()).unwrap();
    write(&file, "admin: { address: { port: 7 } }\n");
    let mut watch = settings::watch(&file, [], current).unwrap();
    assert_eq!(port(&mut watch).await, 7);
}

#[tokio::test]
async fn a_config_map_is_replaced_as_a_whole() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for (version, body) in
        [("v1", ""), ("v2", "admin: { address: { port: 2 } }\n"), ("v3", "admin: { address: { port: 3 } }\n")]
    {
        std::fs::create_dir(at(version)).unwrap();
        write(&at(version).join("eg.yaml"), body);
    }
    std::os::unix::fs::symlink("v1", at("..data")).unwrap();
    std::os::unix::fs::symlink("..data/eg.yaml", at("eg.yaml")).unwrap();
    let mut watch = start(&at("eg.yaml"));
    for (version, expected) in [("v2", 2), ("v3", 3)] {
        std::os::unix::fs::symlink(version, at("..next")).unwrap();
        std::fs::rename(at("..next"), at("..data")).unwrap();
        assert_eq!(port(&mut watch).await, expected);
    }
}

#[tokio::test]
async fn variables_stay_on_top() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("eg.yaml");
    write(&file, "");
    let env = [("ENVOY_GATEWAY__ADMIN__ADDRESS__HOST".to_owned(), "::1".to_owned())];
    let current = settings::load(Some(&file), env.clone().into_iter()).unwrap();
    let mut watch = settings::watch(&file, env, current).unwrap();
    write(&file, "admin: { address: { host: 0.0.0.0, port: 9 } }\n");
    let loaded = tokio::time::timeout(Duration::from_secs(8), watch.changed()).await.unwrap();
    assert_eq!((loaded.config.admin.address.host.as_str(), loaded.config.admin.address.port), ("::1", 9));
}
