//! A fake API server that answers as it is told, and tokens that are signed as a real one signs them.

use std::{
    convert::Infallible,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use aws_lc_rs::{
    rand::SystemRandom,
    rsa::{KeyPair as RsaKeyPair, KeySize},
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair, RSA_PKCS1_SHA256},
};
use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use http::{Request, Response};
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::{Value, json};

use super::*;

const AUDIENCE: &str = "envoy-gateway.system.svc.cluster.local";
const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";
static NOW: AtomicU64 = AtomicU64::new(1_000_000);

fn clock() -> u64 {
    NOW.load(Ordering::Relaxed)
}

fn encode(bytes: impl AsRef<[u8]>) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

/// What signs tokens.
enum Signer {
    Ec(EcdsaKeyPair),
    Rsa(Box<RsaKeyPair>),
}

impl Signer {
    fn ec() -> Self {
        Self::Ec(EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap())
    }

    fn rsa() -> Self {
        Self::Rsa(Box::new(RsaKeyPair::generate(KeySize::Rsa2048).unwrap()))
    }

    fn jwk(&self, kid: &str) -> Value {
        match self {
            Self::Ec(pair) => {
                let point = pair.public_key().as_ref();
                let (x, y) = (encode(&point[1..33]), encode(&point[33..]));
                json!({"kty": "EC", "crv": "P-256", "kid": kid, "use": "sig", "alg": "ES256", "x": x, "y": y})
            }
            Self::Rsa(pair) => {
                let public = pair.public_key();
                let n = public.modulus().big_endian_without_leading_zero().to_vec();
                let e = public.exponent().big_endian_without_leading_zero().to_vec();
                json!({"kty": "RSA", "kid": kid, "use": "sig", "alg": "RS256", "n": encode(n), "e": encode(e)})
            }
        }
    }

    fn sign(&self, kid: &str, claims: &Value) -> String {
        let alg = if matches!(self, Self::Ec(_)) { "ES256" } else { "RS256" };
        let head = json!({"alg": alg, "kid": kid});
        let signed = format!("{}.{}", encode(head.to_string()), encode(claims.to_string()));
        let random = SystemRandom::new();
        let signature = match self {
            Self::Ec(pair) => pair.sign(&random, signed.as_bytes()).unwrap().as_ref().to_vec(),
            Self::Rsa(pair) => {
                let mut out = vec![0; pair.public_modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &random, signed.as_bytes(), &mut out).unwrap();
                out
            }
        };
        format!("{signed}.{}", encode(signature))
    }
}

/// How the fake answers a review.
#[derive(Clone)]
enum Mood {
    Yes,
    No(&'static str),
    /// As a server that is overloaded, or behind a load balancer without servers.
    Broken,
    Silent,
}

struct Fake {
    mood: Mutex<Mood>,
    jwks: Mutex<Vec<Value>>,
    reviews: AtomicU64,
}

impl Fake {
    fn set(&self, mood: Mood) {
        *self.mood.lock().unwrap() = mood;
    }

    fn reviews(&self) -> u64 {
        self.reviews.load(Ordering::Relaxed)
    }

    async fn answer(self: Arc<Self>, request: Request<Body>) -> Response<Body> {
        let mood = self.mood.lock().unwrap().clone();
        let path = request.uri().path().to_owned();
        let reply = |code: u16, body: &Value| {
            Response::builder().status(code).body(Body::from(body.to_string().into_bytes())).unwrap()
        };
        match mood {
            Mood::Broken => {
                let status =
                    json!({"kind": "Status", "status": "Failure", "code": 503, "message": "away", "reason": "x"});
                return reply(503, &status);
            }
            Mood::Silent => return std::future::pending().await,
            Mood::Yes | Mood::No(_) => {}
        }
        match &*path {
            "/.well-known/openid-configuration" => reply(200, &json!({"issuer": ISSUER})),
            "/openid/v1/jwks" => reply(200, &json!({"keys": *self.jwks.lock().unwrap()})),
            "/apis/authentication.k8s.io/v1/tokenreviews" => {
                self.reviews.fetch_add(1, Ordering::Relaxed);
                let body = request.into_body().collect().await.unwrap().to_bytes();
                let mut review: Value = serde_json::from_slice(&body).unwrap();
                let payload = review["spec"]["token"].as_str().unwrap().split('.').nth(1).unwrap().to_owned();
                let claims: Value = serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(payload).unwrap()).unwrap();
                review["status"] = match mood {
                    Mood::No(error) => json!({"authenticated": false, "error": error, "user": {}}),
                    _ => json!({
                        "authenticated": true,
                        "audiences": review["spec"]["audiences"],
                        "user": {"username": claims["sub"], "groups": ["system:serviceaccounts"], "extra": {
                            "authentication.kubernetes.io/pod-name": [claims["kubernetes.io"]["pod"]["name"]],
                        }},
                    }),
                };
                reply(201, &review)
            }
            other => panic!("{other} is asked for"),
        }
    }
}

fn fake(keys: &[Value]) -> (Arc<Fake>, Reviewer) {
    let fake =
        Arc::new(Fake { mood: Mutex::new(Mood::Yes), jwks: Mutex::new(keys.to_vec()), reviews: AtomicU64::new(0) });
    let served = fake.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let fake = served.clone();
        async move { Ok::<_, Infallible>(fake.answer(request).await) }
    });
    (fake, Reviewer::new(kube::Client::new(service, "default"), AUDIENCE, clock))
}

fn account() -> Account {
    Account { namespace: "shop".into(), name: "front".into() }
}

fn claims() -> Value {
    json!({
        "iss": ISSUER,
        "sub": "system:serviceaccount:shop:front",
        "aud": [AUDIENCE],
        "exp": clock() + 3600,
        "nbf": clock(),
        "kubernetes.io": {"namespace": "shop", "pod": {"name": "front-1", "uid": "u"}},
    })
}

async fn check(reviewer: &Reviewer, token: &str) -> Result<Basis, Refused> {
    reviewer.check(token, Claim { account: &account(), pod: "front-1" }).await
}

/// Reads the keys once, as the task that follows them does.
async fn read(reviewer: &Reviewer) {
    let mut known = reviewer.keys();
    tokio::select! {
        () = reviewer.follow_keys() => {}
        _ = known.wait_for(Option::is_some) => {}
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_server_said_is_not_asked_again_for_a_minute() {
    let signer = Signer::ec();
    let (fake, reviewer) = fake(&[]);
    let token = signer.sign("a", &claims());
    assert_eq!(check(&reviewer, &token).await, Ok(Basis::Review));
    assert_eq!(check(&reviewer, &format!("Bearer {token}\n")).await, Ok(Basis::Former));
    assert_eq!(fake.reviews(), 1);
    tokio::time::advance(FRESH).await;
    assert_eq!(check(&reviewer, &token).await, Ok(Basis::Review));
    assert_eq!(fake.reviews(), 2);
    // A pod that was deleted meanwhile: the yes of before is forgotten.
    tokio::time::advance(FRESH).await;
    fake.set(Mood::No("service account token has been invalidated"));
    let said = Refused::Rejected("service account token has been invalidated".into());
    assert_eq!(check(&reviewer, &token).await, Err(said));
    fake.set(Mood::Broken);
    assert!(check(&reviewer, &token).await.unwrap_err().is_passing());
}

#[tokio::test(start_paused = true)]
async fn a_token_that_could_not_be_good_costs_the_server_nothing() {
    let signer = Signer::ec();
    let (fake, reviewer) = fake(&[signer.jwk("a")]);
    read(&reviewer).await;
    let with = |field: &str, value: Value| {
        let mut claims = claims();
        claims[field] = value;
        signer.sign("a", &claims)
    };
    let refused = async |token: String| check(&reviewer, &token).await.unwrap_err();
    assert!(matches!(refused(with("aud", json!(["https://kubernetes.default.svc"]))).await, Refused::Audience(_)));
    assert!(matches!(refused(with("aud", json!("other"))).await, Refused::Audience(_)));
    assert_eq!(refused(with("exp", json!(clock()))).await, Refused::Time);
    assert_eq!(refused(with("nbf", json!(clock() + 10_000))).await, Refused::Time);
    let of_another = with("sub", json!("system:serviceaccount:other:front"));
    assert!(matches!(refused(of_another).await, Refused::Account { .. }));
    let bound = json!({"namespace": "shop", "pod": {"name": "front-2"}});
    assert!(matches!(refused(with("kubernetes.io", bound)).await, Refused::Pod { .. }));
    assert!(matches!(refused(with("kubernetes.io", json!({}))).await, Refused::Pod { found: None, .. }));
    for token in ["", "a.b", "a.b.c", &"x".repeat(100_000)] {
        assert_eq!(refused(token.to_owned()).await, Refused::Malformed);
    }
    assert_eq!(fake.reviews(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_says_yes_to_something_else_says_no() {
    let (_, reviewer) = fake(&[]);
    let token = Signer::ec().sign("a", &claims());
    let token = claims::read(&token).unwrap();
    let judge = |status: Value| reviewer.judge_for_test(&serde_json::from_value(status).unwrap(), &token);
    let user = json!({"username": "system:serviceaccount:shop:front"});
    assert!(judge(json!({"authenticated": true, "audiences": [AUDIENCE], "user": user})));
    assert!(!judge(json!({"authenticated": true, "user": user})), "audiences were not heeded");
    assert!(!judge(json!({"authenticated": true, "audiences": ["other"], "user": user})));
    assert!(!judge(json!({"authenticated": true, "audiences": [AUDIENCE], "user": {"username": "root"}})));
    assert!(!judge(json!({"audiences": [AUDIENCE], "user": user})));
}

#[tokio::test(start_paused = true)]
async fn while_the_server_is_away_its_keys_and_its_former_words_hold_until_the_token_ends() {
    for signer in [Signer::ec(), Signer::rsa()] {
        let (fake, reviewer) = fake(&[json!({"kty": "other"}), signer.jwk("b"), signer.jwk("a")]);
        read(&reviewer).await;
        let seen = signer.sign("a", &claims());
        assert_eq!(check(&reviewer, &seen).await, Ok(Basis::Review));
        tokio::time::advance(FRESH).await;

        fake.set(Mood::Broken);
        assert_eq!(check(&reviewer, &seen).await, Ok(Basis::Former));
        let mut other = claims();
        other["jti"] = "another".into();
        let new = signer.sign("a", &other);
        assert_eq!(check(&reviewer, &new).await, Ok(Basis::Keys));
        // Forged, by a key that nobody published, in the name of one that is; changed; of another issuer; unsigned.
        assert_eq!(check(&reviewer, &Signer::ec().sign("a", &other)).await, Err(Refused::Signature));
        let (front, signature) = new.rsplit_once('.').unwrap();
        other["jti"] = "changed".into();
        let payload = encode(other.to_string());
        let changed = format!("{}.{payload}.{signature}", front.split('.').next().unwrap());
        assert_eq!(check(&reviewer, &changed).await, Err(Refused::Signature));
        let unsigned = format!("{}.{payload}.", encode(json!({"alg": "none"}).to_string()));
        assert_eq!(check(&reviewer, &unsigned).await, Err(Refused::Signature));
        other["iss"] = "https://another".into();
        assert_eq!(check(&reviewer, &signer.sign("a", &other)).await, Err(Refused::Signature));

        // The end of a token is the end of all that was said of it.
        let short = json!(clock() + 30);
        let mut brief = claims();
        brief["exp"] = short;
        fake.set(Mood::Yes);
        tokio::time::advance(PAUSE).await;
        let brief = signer.sign("a", &brief);
        assert_eq!(check(&reviewer, &brief).await, Ok(Basis::Review));
        NOW.fetch_add(31, Ordering::Relaxed);
        fake.set(Mood::Broken);
        assert_eq!(check(&reviewer, &brief).await, Err(Refused::Time));
    }
}

#[tokio::test(start_paused = true)]
async fn without_an_answer_and_without_keys_nobody_is_admitted() {
    let signer = Signer::ec();
    let (fake, reviewer) = fake(&[signer.jwk("a")]);
    let token = signer.sign("a", &claims());
    for mood in [Mood::Broken, Mood::Silent] {
        fake.set(mood);
        tokio::time::advance(PAUSE).await;
        let refused = check(&reviewer, &token).await.unwrap_err();
        assert!(matches!(&refused, Refused::Unverifiable(_)) && refused.is_passing(), "{refused}");
    }
    // Others do not wait for the silent server one after another.
    let from = tokio::time::Instant::now();
    assert!(check(&reviewer, &token).await.is_err());
    assert!(from.elapsed().is_zero());
    // Keys of before serve a process that has just started.
    let (_, other) = self::fake(&[signer.jwk("a")]);
    read(&other).await;
    let kept = serde_json::to_string(&*other.keys().borrow()).unwrap();
    reviewer.recall(serde_json::from_str(&kept).unwrap());
    assert_eq!(check(&reviewer, &token).await, Ok(Basis::Keys));
    // It is asked again when it may have come back.
    fake.set(Mood::Yes);
    tokio::time::advance(PAUSE).await;
    assert_eq!(check(&reviewer, &token).await, Ok(Basis::Review));
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_not_known_has_the_keys_read_again() {
    let (old, new) = (Signer::ec(), Signer::ec());
    let (fake, reviewer) = fake(&[old.jwk("old")]);
    let mut known = reviewer.keys();
    let followed = reviewer.clone();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(async move { followed.follow_keys().await });
    known.wait_for(Option::is_some).await.unwrap();
    *fake.jwks.lock().unwrap() = vec![new.jwk("new")];
    known.mark_unchanged();
    assert_eq!(check(&reviewer, &new.sign("new", &claims())).await, Ok(Basis::Review));
    let from = tokio::time::Instant::now();
    known.changed().await.unwrap();
    assert!(from.elapsed().as_secs() <= 10, "{:?}", from.elapsed());
}
