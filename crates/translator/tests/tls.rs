//! Certificates: kinds of keys, expiry, several for a listener, names that overlap, client certificates.

mod common;

use common::{config, listener, short, upsert, with_fixture};
use resources::Change;
use serde_json::{Value, json};
use translator::{Config, translate};

struct Pair {
    certificate: String,
    key: String,
}

fn pair(names: &[&str], algorithm: &'static rcgen::SignatureAlgorithm, not_after: (i32, u8, u8)) -> Pair {
    let key = rcgen::KeyPair::generate_for(algorithm).expect("a key");
    let mut params =
        rcgen::CertificateParams::new(names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>()).expect("names");
    params.not_after = rcgen::date_time_ymd(not_after.0, not_after.1, not_after.2);
    let certificate = params.self_signed(&key).expect("a certificate").pem();
    Pair { certificate, key: key.serialize_pem() }
}

const LATER: (i32, u8, u8) = (2090, 1, 1);

fn fine(names: &[&str]) -> Pair {
    pair(names, &rcgen::PKCS_ECDSA_P256_SHA256, LATER)
}

fn secret(name: &str, certificate: &str, key: &str) -> Vec<Change> {
    upsert(json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "infra"},
        "type": "kubernetes.io/tls", "stringData": {"tls.crt": certificate, "tls.key": key},
    }))
}

fn gateway(listeners: Value, tls: Option<Value>) -> Vec<Change> {
    let mut spec = json!({"gatewayClassName": "gc", "listeners": listeners});
    if let Some(tls) = tls {
        spec["tls"] = tls;
    }
    upsert(json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
        "metadata": {"name": "gw", "namespace": "infra"}, "spec": spec,
    }))
}

fn https(name: &str, port: u16, host: Option<&str>, secrets: &[&str]) -> Value {
    let refs: Vec<_> = secrets.iter().map(|s| json!({"name": s})).collect();
    let mut l = json!({"name": name, "protocol": "HTTPS", "port": port, "tls": {"certificateRefs": refs}});
    if let Some(host) = host {
        l["hostname"] = host.into();
    }
    l
}

fn full(config: &Config, parts: Vec<Vec<Change>>) -> ir::Full {
    translate(with_fixture("").into_iter().chain(parts.into_iter().flatten()), config)
}

fn chain<'f>(full: &'f ir::Full, name: &str) -> Option<&'f ir::FilterChain> {
    full.groups["infra/gw"].resources.values().find_map(|v| match v {
        ir::XdsValue::Listener(l) => l.chains.iter().find(|c| &*c.name == name),
        _ => None,
    })
}

fn alpn(full: &ir::Full, name: &str) -> Vec<String> {
    let tls = chain(full, name).and_then(|c| c.tls.as_ref()).expect("a chain with TLS");
    tls.alpn.iter().map(ToString::to_string).collect()
}

#[test]
fn keys_that_envoy_serves_are_taken_in_every_encoding() {
    for algorithm in [
        &rcgen::PKCS_ECDSA_P256_SHA256,
        &rcgen::PKCS_ECDSA_P384_SHA384,
        &rcgen::PKCS_ECDSA_P521_SHA512,
        &rcgen::PKCS_RSA_SHA256,
        &rcgen::PKCS_ED25519,
    ] {
        let p = pair(&["a.test"], algorithm, LATER);
        let full = full(
            &config(),
            vec![gateway(json!([https("l", 443, None, &["s"])]), None), secret("s", &p.certificate, &p.key)],
        );
        let conditions = short(&listener(&full, "infra", "gw", "l").conditions);
        assert!(conditions.contains(&"Programmed=True/Programmed".to_owned()), "{algorithm:?} {conditions:?}");
    }
}

#[test]
fn what_envoy_would_refuse_is_told_with_the_cause() {
    let p = fine(&["a.test"]);
    let other = fine(&["a.test"]);
    let chain = format!("{}-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", p.certificate);
    let cut = p.key.replace("-----END PRIVATE KEY-----\n", "");
    for (certificate, key, cause) in [
        (p.certificate.as_str(), other.key.as_str(), "does not belong to the certificate"),
        (p.key.as_str(), p.key.as_str(), "no PEM certificate"),
        (chain.as_str(), p.key.as_str(), "certificate 1 in tls.crt cannot be read"),
        (p.certificate.as_str(), p.certificate.as_str(), "no PEM private key"),
        (p.certificate.as_str(), cut.as_str(), "tls.key"),
        ("", p.key.as_str(), "must contain tls.crt and tls.key"),
    ] {
        let parts = vec![gateway(json!([https("l", 443, None, &["s"])]), None), secret("s", certificate, key)];
        let full = full(&config(), parts);
        let status = listener(&full, "infra", "gw", "l");
        let c = status.conditions.iter().find(|c| c.kind == "ResolvedRefs").expect("it is told");
        assert_eq!(c.reason, "InvalidCertificateRef");
        assert!(c.message.contains(cause) && c.message.contains("Secret infra/s"), "{}", c.message);
        assert!(full.groups["infra/gw"].resources.keys().all(|(k, _)| *k != ir::XdsKind::Secret));
    }
}

#[test]
fn expiry_is_judged_by_the_time_that_is_given() {
    let p = pair(&["a.test"], &rcgen::PKCS_ECDSA_P256_SHA256, (2020, 1, 1));
    let parts = || vec![gateway(json!([https("l", 443, None, &["s"])]), None), secret("s", &p.certificate, &p.key)];
    let programmed = |now: Option<i64>| {
        let full = full(&Config { now, ..config() }, parts());
        short(&listener(&full, "infra", "gw", "l").conditions).contains(&"Programmed=True/Programmed".to_owned())
    };
    assert!(programmed(None));
    assert!(programmed(Some(1_577_000_000)), "December 2019");
    assert!(!programmed(Some(1_578_000_000)), "January 2020");
}

#[test]
fn a_listener_is_served_with_those_of_its_certificates_that_are_valid() {
    let (a, b) = (fine(&["a.test"]), fine(&["b.test"]));
    let parts = vec![
        gateway(json!([https("l", 443, None, &["a", "bad", "b"])]), None),
        secret("a", &a.certificate, &a.key),
        secret("bad", &a.certificate, &b.key),
        secret("b", &b.certificate, &b.key),
    ];
    let full = full(&config(), parts);
    let conditions = short(&listener(&full, "infra", "gw", "l").conditions);
    assert!(conditions.contains(&"ResolvedRefs=False/PartiallyInvalidCertificateRef".to_owned()), "{conditions:?}");
    assert!(conditions.contains(&"Programmed=True/Programmed".to_owned()), "{conditions:?}");
    let tls = chain(&full, "infra/gw/l").and_then(|c| c.tls.as_ref()).expect("a chain with TLS");
    let names = ["infra/a", "infra/b"].map(|n| ir::CertificateRef::Secret(n.into()));
    assert_eq!(tls.certificates, names);
}

#[test]
fn overlapping_names_on_a_port_switch_http2_off_for_both() {
    let (wide, one, far) = (fine(&["*.example.test"]), fine(&["a.example.test"]), fine(&["far.test"]));
    let listeners = json!([
        https("wide", 443, Some("*.example.test"), &["wide"]),
        https("one", 443, Some("a.example.test"), &["one"]),
        https("far", 443, Some("far.test"), &["far"]),
        https("elsewhere", 8443, Some("a.example.test"), &["one"]),
    ]);
    let parts = vec![
        gateway(listeners, None),
        secret("wide", &wide.certificate, &wide.key),
        secret("one", &one.certificate, &one.key),
        secret("far", &far.certificate, &far.key),
    ];
    let full = full(&config(), parts);
    for (name, other) in [("wide", "listener one"), ("one", "listener wide")] {
        let status = listener(&full, "infra", "gw", name);
        let c = status.conditions.iter().find(|c| c.kind == "OverlappingTLSConfig").expect("it is told");
        assert_eq!(c.reason, "OverlappingCertificates");
        assert!(c.message.contains(other), "{}", c.message);
        assert_eq!(alpn(&full, &format!("infra/gw/{name}")), ["http/1.1"]);
    }
    for name in ["far", "elsewhere"] {
        assert!(listener(&full, "infra", "gw", name).conditions.iter().all(|c| c.kind != "OverlappingTLSConfig"));
        assert_eq!(alpn(&full, &format!("infra/gw/{name}")), ["h2", "http/1.1"]);
    }
}

fn map(name: &str, text: &str) -> Vec<Change> {
    upsert(json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "infra"}, "data": {"ca.crt": text},
    }))
}

#[test]
fn client_certificates_are_validated_by_port_and_each_ca_is_sent_once() {
    let (server, ca, ca2) = (fine(&["a.test"]), fine(&["ca"]), fine(&["ca2"]));
    let reference = |n: &str| json!({"group": "", "kind": "ConfigMap", "name": n});
    let tls = json!({"frontend": {
        "default": {"validation": {"caCertificateRefs": [reference("one"), reference("both")]}},
        "perPort": [
            {"port": 8443, "tls": {"validation": {"caCertificateRefs": [reference("nope")]}}},
            {"port": 9443, "tls": {"validation": {"mode": "AllowInsecureFallback", "caCertificateRefs": [reference("one")]}}},
        ],
    }});
    let listeners =
        json!([https("l", 443, None, &["s"]), https("m", 8443, None, &["s"]), https("n", 9443, None, &["s"])]);
    let parts = vec![
        gateway(listeners, Some(tls)),
        secret("s", &server.certificate, &server.key),
        map("one", &ca.certificate),
        map("both", &format!("{}{}", ca2.certificate, ca.certificate)),
    ];
    let full = full(&config(), parts);
    let tls = chain(&full, "infra/gw/l").and_then(|c| c.tls.as_ref()).expect("a chain with TLS");
    assert!(tls.require_client_certificate);
    let key = (ir::XdsKind::Secret, tls.client_ca.clone().expect("CAs"));
    let ir::XdsValue::Secret(s) = &full.groups["infra/gw"].resources[&key] else { panic!("{key:?}") };
    let ir::SecretContent::Ca { bundle, .. } = &s.content else { panic!("{s:?}") };
    let all: Vec<_> = rustls_pemfile::certs(&mut bundle.as_slice()).collect::<Result<_, _>>().expect("PEM");
    let wanted =
        [&ca, &ca2].map(|p| rustls_pemfile::certs(&mut p.certificate.as_bytes()).next().expect("one").expect("PEM"));
    assert_eq!(all, wanted, "each once, in order");
    let conditions = short(&listener(&full, "infra", "gw", "m").conditions);
    assert!(conditions.contains(&"Accepted=False/NoValidCACertificate".to_owned()), "{conditions:?}");
    assert!(chain(&full, "infra/gw/m").is_none(), "rather closed than open");
    let fallback = chain(&full, "infra/gw/n").and_then(|c| c.tls.as_ref()).expect("a chain with TLS");
    assert!(fallback.accept_untrusted && !fallback.require_client_certificate);
}
