use super::*;
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;
use tokio_rustls::rustls::pki_types::ServerName;

const DAY: u64 = 24 * 60 * 60;

fn spec() -> Spec {
    Spec::new("envoy-gateway-system", "cluster.local")
}

fn at(days: u64) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(1_800_000_000 + days * DAY))
}

/// One mutual TLS handshake in memory, at the real clock's time.
async fn handshake(server: &Material, client: &Material, name: &str) -> Result<(), String> {
    let (a, b) = tokio::io::duplex(16 * 1024);
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(server.server_config(&["h2"]).map_err(|e| e.to_string())?));
    let connector =
        tokio_rustls::TlsConnector::from(Arc::new(client.client_config(&["h2"]).map_err(|e| e.to_string())?));
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let (accepted, connected) = tokio::join!(acceptor.accept(a), connector.connect(name, b));
    accepted.map_err(|e| format!("server: {e}"))?;
    let mut stream = connected.map_err(|e| format!("client: {e}"))?;
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(b"h2".as_slice()));
    tokio::io::AsyncWriteExt::shutdown(&mut stream).await.ok();
    Ok(())
}

#[tokio::test]
async fn every_identity_authenticates_to_the_control_plane_under_all_its_names() {
    let set = Set::generate(&spec(), now(), &[]).unwrap();
    let server = set.get(Identity::EnvoyGateway);
    for name in [
        "envoy-gateway",
        "envoy-gateway.envoy-gateway-system",
        "envoy-gateway.envoy-gateway-system.svc",
        "envoy-gateway.envoy-gateway-system.svc.cluster.local",
    ] {
        for client in [Identity::Envoy, Identity::RateLimit] {
            handshake(server, set.get(client), name).await.unwrap();
        }
    }
    assert!(handshake(server, set.get(Identity::Envoy), "other").await.is_err());
}

#[tokio::test]
async fn strangers_are_refused_on_both_sides() {
    let ours = Set::generate(&spec(), now(), &[]).unwrap();
    let theirs = Set::generate(&spec(), now(), &[]).unwrap();
    let server = ours.get(Identity::EnvoyGateway);
    assert!(handshake(server, theirs.get(Identity::Envoy), "envoy-gateway").await.is_err());
    // Trusts our server, but shows a certificate of another CA.
    let mut spy = theirs.get(Identity::Envoy).clone();
    spy.ca = ours.get(Identity::Envoy).ca.clone();
    assert!(handshake(server, &spy, "envoy-gateway").await.unwrap_err().starts_with("server:"));
}

#[test]
fn good_files_are_kept_byte_for_byte_and_keys_are_private() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::new(dir.path().join("certs"));
    let first = store.ensure(&spec(), at(0), false).unwrap();
    assert_eq!(first.replaced.len(), 3);
    assert_eq!(first.replaced[0].fault, Fault::Missing("ca.crt".to_owned()));
    let second = store.ensure(&spec(), at(1000), false).unwrap();
    assert!(second.replaced.is_empty());
    assert_eq!(second.set, first.set);
    assert_eq!(store.load().unwrap(), first.set);
    for identity in Identity::ALL {
        let mode = std::fs::metadata(store.dir(identity).join("tls.key")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    let names: Vec<_> =
        std::fs::read_dir(store.dir(Identity::Envoy)).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names.len(), 3, "no temporary file is left: {names:?}");
    assert!(!format!("{:?}", first.set).contains("PRIVATE KEY"));
}

#[test]
fn overwrite_replaces_good_files() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::new(dir.path());
    let first = store.ensure(&spec(), at(0), false).unwrap();
    let second = store.ensure(&spec(), at(1), true).unwrap();
    assert!(second.replaced.iter().all(|r| r.fault == Fault::Overwrite));
    assert_ne!(second.set.get(Identity::Envoy).cert, first.set.get(Identity::Envoy).cert);
    assert_ne!(second.set.hmac_secret(), first.set.hmac_secret());
}

/// Each way of breaking the files is found, named, and repaired.
#[test]
fn broken_files_are_replaced_and_said_so() {
    type Break = fn(&Store, &Set);
    let table: &[(&str, Break)] = &[
        ("tls.crt is missing", |s, _| std::fs::remove_file(s.dir(Identity::Envoy).join("tls.crt")).unwrap()),
        ("tls.key cannot be parsed", |s, _| std::fs::write(s.dir(Identity::Envoy).join("tls.key"), "x").unwrap()),
        ("ca.crt cannot be parsed: no certificate", |s, _| {
            std::fs::write(s.dir(Identity::Envoy).join("ca.crt"), "").unwrap();
        }),
        ("tls.key does not belong to tls.crt", |s, set| {
            std::fs::write(s.dir(Identity::Envoy).join("tls.key"), &set.get(Identity::RateLimit).key).unwrap();
        }),
        ("ca.crt does not vouch for tls.crt", |s, _| {
            let other = Set::generate(&spec(), at(0), &[]).unwrap();
            std::fs::write(s.dir(Identity::Envoy).join("ca.crt"), &other.get(Identity::Envoy).ca).unwrap();
        }),
        ("tls.crt cannot be parsed", |s, set| {
            let half = &set.get(Identity::Envoy).cert[..200];
            std::fs::write(s.dir(Identity::Envoy).join("tls.crt"), half).unwrap();
        }),
        ("tls.crt cannot be parsed", |s, _| {
            let pem = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
            std::fs::write(s.dir(Identity::Envoy).join("tls.crt"), pem).unwrap();
        }),
        ("tls.crt cannot be parsed: invalid utf-8", |s, _| {
            std::fs::write(s.dir(Identity::Envoy).join("tls.crt"), [0xff, 0xfe]).unwrap();
        }),
    ];
    for (expected, break_it) in table {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path());
        let before = store.ensure(&spec(), at(0), false).unwrap();
        break_it(&store, &before.set);
        let after = store.ensure(&spec(), at(1), false).unwrap();
        let envoy = after.replaced.iter().find(|r| r.identity == Identity::Envoy).expect(expected);
        assert!(envoy.to_string().contains(expected), "wanted {expected:?}, got {envoy}");
        let server = after.replaced.iter().find(|r| r.identity == Identity::EnvoyGateway).unwrap();
        assert_eq!(server.fault, Fault::Together("envoy".to_owned()));
        assert_eq!(after.set.hmac_secret(), before.set.hmac_secret(), "the OIDC key outlives certificates");
        assert!(store.ensure(&spec(), at(2), false).unwrap().replaced.is_empty());
    }
}

#[test]
fn other_names_expiry_and_a_wrong_clock_are_faults() {
    let set = Set::generate(&spec(), at(0), &[]).unwrap();
    let server = set.get(Identity::EnvoyGateway);
    let other = Spec::new("elsewhere", "cluster.local");
    let fault = inspect(server, Identity::EnvoyGateway, &other, at(0)).unwrap_err();
    assert_eq!(
        fault,
        Fault::Names(vec![
            "envoy-gateway.elsewhere".to_owned(),
            "envoy-gateway.elsewhere.svc".to_owned(),
            "envoy-gateway.elsewhere.svc.cluster.local".to_owned()
        ])
    );
    let envoy = set.get(Identity::Envoy);
    let judge = |days| inspect(envoy, Identity::Envoy, &spec(), at(days));
    assert!(judge(0).is_ok());
    assert!(judge(1734).is_ok());
    assert!(matches!(judge(1736), Err(Fault::RenewalDue { .. })));
    assert!(matches!(judge(1826), Err(Fault::Expired { what: "tls.crt", .. })));
    let early = UnixTime::since_unix_epoch(Duration::from_secs(1_700_000_000));
    assert!(matches!(inspect(envoy, Identity::Envoy, &spec(), early), Err(Fault::NotYetValid { .. })));
}

#[test]
fn extra_names_and_addresses_are_carried_and_required() {
    let mut wanted = spec();
    wanted.extra_server_names = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
    let set = Set::generate(&wanted, at(0), &[]).unwrap();
    inspect(set.get(Identity::EnvoyGateway), Identity::EnvoyGateway, &wanted, at(0)).unwrap();
    let plain = Set::generate(&spec(), at(0), &[]).unwrap();
    let fault = inspect(plain.get(Identity::EnvoyGateway), Identity::EnvoyGateway, &wanted, at(0)).unwrap_err();
    assert_eq!(fault, Fault::Names(wanted.extra_server_names.clone()));
}

#[test]
fn a_name_that_no_certificate_can_carry_is_an_error() {
    let error = Set::generate(&Spec::new("böse", "cluster.local"), at(0), &[]).unwrap_err();
    assert!(matches!(error, Error::Issue(_)), "{error}");
}

/// Old and new certificates work with each other through a renewal, and the old CA leaves with the next one.
#[tokio::test]
async fn renewal_overlaps() {
    let real = now().as_secs();
    let then = |days: i64| {
        let offset = u64::try_from(i64::try_from(real).unwrap() + days * i64::try_from(DAY).unwrap()).unwrap();
        UnixTime::since_unix_epoch(Duration::from_secs(offset))
    };
    let dir = tempfile::tempdir().unwrap();
    let store = Store::new(dir.path());
    let mut spec = spec();
    spec.validity = Duration::from_secs(90 * DAY);
    let old = store.ensure(&spec, then(-61), false).unwrap();
    let new = store.ensure(&spec, then(0), false).unwrap();
    assert!(matches!(new.replaced[0].fault, Fault::RenewalDue { .. }), "{:?}", new.replaced);
    assert_eq!(new.set.get(Identity::Envoy).ca.matches("BEGIN").count(), 2);

    let (new_server, new_envoy) = (new.set.get(Identity::EnvoyGateway), new.set.get(Identity::Envoy));
    handshake(new_server, new_envoy, "envoy-gateway").await.unwrap();
    // A proxy that has read its new bundle but still shows its old certificate, and a server in the same state.
    let mixed = |identity| Material { ca: new.set.get(identity).ca.clone(), ..old.set.get(identity).clone() };
    handshake(new_server, &mixed(Identity::Envoy), "envoy-gateway").await.unwrap();
    handshake(&mixed(Identity::EnvoyGateway), new_envoy, "envoy-gateway").await.unwrap();

    // Next renewal: what nobody shows any more is no longer trusted.
    let third = store.ensure(&spec, then(61), false).unwrap();
    let bundle = &third.set.get(Identity::Envoy).ca;
    assert_eq!(bundle.matches("BEGIN").count(), 2);
    let first_ca = old.set.get(Identity::Envoy).ca.trim();
    assert!(!bundle.contains(first_ca));
}

#[test]
fn an_expired_ca_is_not_carried_on() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::new(dir.path());
    store.ensure(&spec(), at(0), false).unwrap();
    let late = store.ensure(&spec(), at(3000), false).unwrap();
    assert!(matches!(late.replaced[0].fault, Fault::Expired { .. }));
    assert_eq!(late.set.get(Identity::Envoy).ca.matches("BEGIN").count(), 1);
}

#[test]
fn reload_takes_new_files_and_keeps_the_last_good_ones() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::new(dir.path());
    store.ensure(&spec(), now(), false).unwrap();
    let reloading = Reloading::open(store.dir(Identity::EnvoyGateway), &["h2"]).unwrap();
    let first = reloading.current();
    assert!(Arc::ptr_eq(&first, &reloading.current()), "unchanged files are not parsed into a new configuration");

    std::fs::write(store.dir(Identity::EnvoyGateway).join("tls.key"), "half-writ").unwrap();
    assert!(Arc::ptr_eq(&first, &reloading.current()));
    assert!(reloading.fault().unwrap().contains("tls.key"));

    let repaired = store.ensure(&spec(), now(), false).unwrap();
    let second = reloading.current();
    assert_eq!(second.material, *repaired.set.get(Identity::EnvoyGateway));
    assert_eq!(reloading.fault(), None);
    assert!(Reloading::open(dir.path().join("nowhere"), &[]).is_err());
}

#[tokio::test(start_paused = true)]
async fn keep_renews_when_due_and_watchers_learn_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::new(dir.path());
    store.ensure(&spec(), at(0), false).unwrap();
    let reloading = Reloading::open(store.dir(Identity::Envoy), &[]).unwrap();
    let before = reloading.current();
    let began = tokio::time::Instant::now();
    let clock = move || UnixTime::since_unix_epoch(Duration::from_secs(at(0).as_secs()) + began.elapsed());
    let day = Duration::from_secs(DAY);
    let after = tokio::select! {
        () = keep(store.clone(), spec(), day, clock) => unreachable!("keep never returns"),
        loaded = reloading.changed(&before, day) => loaded,
    };
    assert_ne!(after.material.cert, before.material.cert);
    let days = began.elapsed().as_secs() / DAY;
    assert!((1735..=1737).contains(&days), "renewed 90 days before the end, not at day {days}");
}

#[test]
fn secrets_round_trip() {
    let set = Set::generate(&spec(), at(0), &[]).unwrap();
    let secrets = set.secrets();
    let names: Vec<_> = secrets.iter().map(|s| (s.name, s.kind)).collect();
    assert_eq!(
        names,
        [
            ("envoy-gateway", "kubernetes.io/tls"),
            ("envoy", "kubernetes.io/tls"),
            ("envoy-rate-limit", "kubernetes.io/tls"),
            ("envoy-oidc-hmac", "Opaque"),
        ]
    );
    for secret in &secrets[..3] {
        let data: BTreeMap<String, Vec<u8>> = secret.data.iter().map(|(k, v)| ((*k).to_owned(), v.clone())).collect();
        let identity = Identity::from_name(secret.name).unwrap();
        assert_eq!(Material::from_secret(&data).unwrap(), *set.get(identity));
    }
    assert_eq!(secrets.iter().map(|s| s.name).collect::<Vec<_>>(), SECRETS);
    assert_eq!(secrets[3].data["hmac-secret"].len(), 32);
    assert_eq!(Material::from_secret(&BTreeMap::new()), Err(Fault::Missing("ca.crt".to_owned())));
}

/// Secrets as a cluster holds them.
fn found(set: &Set) -> Found {
    let mut found = Found::default();
    for secret in set.secrets() {
        found.add_secret(secret.name, &secret.data.into_iter().map(|(k, v)| (k.to_owned(), v)).collect());
    }
    found
}

#[test]
fn secrets_that_are_good_are_kept_and_a_missing_one_renews_all_with_overlap() {
    let first = settle(Found::default(), &spec(), at(0), false).unwrap();
    assert_eq!((first.replaced.len(), first.new_hmac), (3, true));
    let again = settle(found(&first.set), &spec(), at(1), false).unwrap();
    assert!(again.replaced.is_empty() && !again.new_hmac && again.set == first.set);

    let mut part = found(&first.set);
    part.material.remove(&Identity::RateLimit);
    let next = settle(part, &spec(), at(1), false).unwrap();
    assert!(!next.new_hmac && next.set.hmac_secret() == first.set.hmac_secret());
    let faults: Vec<String> = next.replaced.iter().map(ToString::to_string).collect();
    assert_eq!(faults[2], "certificate envoy-rate-limit: envoy-rate-limit is missing");
    assert!(faults[0].contains("renewed together with"), "{faults:?}");
    // Whoever still shows an old certificate is trusted by those who have the new CAs.
    assert!(next.set.get(Identity::Envoy).ca.contains(first.set.get(Identity::Envoy).ca.trim()));

    let all = settle(found(&first.set), &spec(), at(1), true).unwrap();
    assert!(all.replaced.iter().all(|r| r.fault == Fault::Overwrite) && all.new_hmac);
    assert_ne!(all.set.hmac_secret(), first.set.hmac_secret());
}

#[test]
fn debug_of_what_was_found_shows_no_key() {
    let set = Set::generate(&spec(), at(0), &[]).unwrap();
    let text = format!("{:?}", found(&set));
    assert!(!text.contains("PRIVATE KEY") && text.contains("hmac: true"), "{text}");
}
