//! Asks the API server, remembers its answers, and does without it for a while.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use aws_lc_rs::digest;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus};
use kube::{Api, Client, api::PostParams};
use tokio::{
    sync::{Notify, Semaphore, watch},
    time::{Instant, sleep, timeout},
};
use tracing::{info, warn};

use crate::{
    Account,
    claims::{self, Token},
    keys::PublishedKeys,
};

/// For how long a yes of the API server is not asked for again.
pub const FRESH: Duration = Duration::from_secs(60);
/// For how long the API server is not asked after it did not answer.
pub const PAUSE: Duration = Duration::from_secs(5);
/// Longest wait for its answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// Reviews on their way at once.
const AT_ONCE: usize = 16;
/// Answers that are remembered; when there are more, those that expire first are forgotten.
const MOST: usize = 10_000;
/// How far the clocks of this machine and the API server's may be apart, in seconds: for the beginning of a token only.
const SKEW: u64 = 60;
/// How often the published keys are looked at, and how soon again after a failure.
const KEYS: (Duration, Duration) = (Duration::from_secs(300), Duration::from_secs(10));
/// Where the issuer says who it is, and where its keys are. The API server serves both whatever its issuer's address is.
const ISSUER: &str = "/.well-known/openid-configuration";
const JWKS: &str = "/openid/v1/jwks";
/// Where a review tells the pod that a token is bound to.
const POD: &str = "authentication.kubernetes.io/pod-name";

/// Who somebody says they are.
#[derive(Clone, Copy, Debug)]
pub struct Claim<'a> {
    /// The account under which the proxies of the fleet run.
    pub account: &'a Account,
    /// Name of the pod: the proxy's node ID.
    pub pod: &'a str,
}

/// Who vouched for a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// The API server, now.
    Review,
    /// The API server, before; it was not asked again, or did not answer.
    Former,
    /// The published keys; the API server did not answer.
    Keys,
}

/// Why a token is not good.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It is no service account's token.
    #[error("it is no token of a service account")]
    Malformed,
    /// It is for others.
    #[error("the token is for another audience than {0}")]
    Audience(String),
    /// Its time is over, or has not begun.
    #[error("the token has expired or is not valid yet")]
    Time,
    /// It is of another account than that of the fleet.
    #[error("the token is of {found}, and the proxies of this fleet run as {wanted}")]
    Account {
        /// Whose it is.
        found: String,
        /// Whose it should be.
        wanted: String,
    },
    /// It is of another pod than the one that asks, or of none.
    #[error("the token is bound to pod {found:?}, and the proxy calls itself {wanted}")]
    Pod {
        /// The token's pod.
        found: Option<String>,
        /// The proxy's name.
        wanted: String,
    },
    /// The API server says no.
    #[error("the API server does not accept the token: {0}")]
    Rejected(String),
    /// No key that is published signed it.
    #[error("no published key signed the token, and the API server does not answer")]
    Signature,
    /// Nobody can say now.
    #[error("the token cannot be verified now: the API server does not answer ({0}), and its keys are not known")]
    Unverifiable(String),
}

/// Judges tokens. Cloning shares.
#[derive(Clone)]
pub struct Reviewer(Arc<Shared>);

struct Shared {
    client: Client,
    audience: String,
    clock: fn() -> u64,
    keys: watch::Sender<Option<PublishedKeys>>,
    /// A key was used that is not known.
    stale: Notify,
    slots: Semaphore,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    /// Tokens that the API server said yes to, by their digest.
    good: BTreeMap<[u8; 32], Good>,
    /// When the API server last did not answer, and what happened.
    away: Option<(Instant, String)>,
}

struct Good {
    /// End of the token, in seconds since the epoch.
    until: u64,
    asked: Instant,
}

enum Answer {
    Yes,
    No(String),
    None(String),
}

// === impl Refused ===

impl Refused {
    /// It may be good: trying again is right, with the same token.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::Unverifiable(_) | Self::Signature)
    }
}

// === impl Reviewer ===

impl Reviewer {
    /// Reviews through this client, which needs the right to create TokenReviews and nothing else; `audience` is what tokens for the
    /// control plane are made for, `clock` tells seconds since the epoch.
    #[must_use]
    pub fn new(client: Client, audience: impl Into<String>, clock: fn() -> u64) -> Self {
        Self(Arc::new(Shared {
            client,
            audience: audience.into(),
            clock,
            keys: watch::Sender::new(None),
            stale: Notify::new(),
            slots: Semaphore::new(AT_ONCE),
            table: Mutex::default(),
        }))
    }

    /// Starts with keys that were published before, until [`Self::follow_keys`] has read them.
    pub fn recall(&self, keys: PublishedKeys) {
        self.0.keys.send_if_modified(|known| {
            let new = known.is_none();
            known.get_or_insert(keys);
            new
        });
    }

    /// The published keys as they are known.
    #[must_use]
    pub fn keys(&self) -> watch::Receiver<Option<PublishedKeys>> {
        self.0.keys.subscribe()
    }

    /// Reads the published keys again and again. Those that are known stay while they cannot be read.
    pub async fn follow_keys(&self) {
        let mut fault = String::new();
        loop {
            let read =
                timeout(PATIENCE, self.read_keys()).await.unwrap_or_else(|_| Err("no answer in time".to_owned()));
            let wait = match read {
                Ok(keys) => {
                    fault.clear();
                    let changed = self.0.keys.send_if_modified(|known| {
                        let changed = known.as_ref() != Some(&keys);
                        *known = Some(keys);
                        changed
                    });
                    if changed {
                        info!("the API server's keys for service account tokens are known");
                    }
                    KEYS.0
                }
                Err(error) => {
                    if fault != error {
                        warn!(
                            error,
                            "the API server's keys for service account tokens cannot be read; those that are known stay"
                        );
                        fault = error;
                    }
                    KEYS.1
                }
            };
            tokio::select! {
                () = sleep(wait) => {}
                () = async {
                    self.0.stale.notified().await;
                    sleep(KEYS.1).await;
                } => {}
            }
        }
    }

    async fn read_keys(&self) -> Result<PublishedKeys, String> {
        let get = async |path: &str| {
            let request = http::Request::get(path).body(Vec::new()).map_err(|e| e.to_string())?;
            self.0.client.request_text(request).await.map_err(|e| e.to_string())
        };
        PublishedKeys::parse(&get(ISSUER).await?, &get(JWKS).await?).map_err(|e| e.to_string())
    }

    /// Whether the token, with or without the word `Bearer`, is good for that claim, and who vouches for it.
    ///
    /// # Errors
    /// [`Refused`] says why not.
    pub async fn check(&self, token: &str, claim: Claim<'_>) -> Result<Basis, Refused> {
        let text = token.trim();
        let text = text.strip_prefix("Bearer ").unwrap_or(text);
        let token = claims::read(text).ok_or(Refused::Malformed)?;
        self.plausible(&token, claim)?;
        let key = digest_of(text);
        if let Some(basis) = self.known(&key, FRESH) {
            return Ok(basis);
        }
        let fault = match self.ask(text, &token).await {
            Answer::Yes => {
                self.remember(key, &token);
                return Ok(Basis::Review);
            }
            Answer::No(why) => {
                self.table().good.remove(&key);
                return Err(Refused::Rejected(why));
            }
            Answer::None(fault) => fault,
        };
        if let Some(basis) = self.known(&key, Duration::MAX) {
            return Ok(basis);
        }
        let vouched = self.0.keys.borrow().as_ref().map(|keys| keys.vouch_for(&token));
        match vouched {
            Some(true) => Ok(Basis::Keys),
            Some(false) => Err(Refused::Signature),
            None => Err(Refused::Unverifiable(fault)),
        }
    }

    /// What can be said without asking.
    fn plausible(&self, token: &Token<'_>, claim: Claim<'_>) -> Result<(), Refused> {
        let (claims, now) = (&token.claims, (self.0.clock)());
        if !claims.aud.has(&self.0.audience) {
            return Err(Refused::Audience(self.0.audience.clone()));
        }
        if claims.exp <= now || claims.nbf.is_some_and(|from| from > now.saturating_add(SKEW)) {
            return Err(Refused::Time);
        }
        let wanted = claim.account.user();
        if claims.sub != wanted {
            return Err(Refused::Account { found: claims.sub.clone(), wanted });
        }
        let found = claims.bound.pod.as_ref().map(|pod| pod.name.clone());
        if found.as_deref() != Some(claim.pod) {
            return Err(Refused::Pod { found, wanted: claim.pod.to_owned() });
        }
        Ok(())
    }

    fn known(&self, key: &[u8; 32], young: Duration) -> Option<Basis> {
        let table = self.table();
        let good = table.good.get(key)?;
        (good.until > (self.0.clock)() && good.asked.elapsed() < young).then_some(Basis::Former)
    }

    fn remember(&self, key: [u8; 32], token: &Token<'_>) {
        if self.0.keys.borrow().as_ref().is_some_and(|keys| !keys.knows(token)) {
            self.0.stale.notify_one();
        }
        let now = (self.0.clock)();
        let mut table = self.table();
        if table.good.len() >= MOST {
            table.good.retain(|_, good| good.until > now);
            let first = table.good.iter().min_by_key(|(_, good)| good.until).map(|(key, _)| *key);
            if let (true, Some(first)) = (table.good.len() >= MOST, first) {
                table.good.remove(&first);
            }
        }
        table.good.insert(key, Good { until: token.claims.exp, asked: Instant::now() });
    }

    async fn ask(&self, text: &str, token: &Token<'_>) -> Answer {
        let Ok(_slot) = self.0.slots.acquire().await else { return Answer::None("it is not asked".to_owned()) };
        if let Some((at, why)) = &self.table().away
            && at.elapsed() < PAUSE
        {
            return Answer::None(why.clone());
        }
        let review = TokenReview {
            spec: TokenReviewSpec { token: Some(text.to_owned()), audiences: Some(vec![self.0.audience.clone()]) },
            ..TokenReview::default()
        };
        let api: Api<TokenReview> = Api::all(self.0.client.clone());
        let answer = match timeout(PATIENCE, api.create(&PostParams::default(), &review)).await {
            Ok(Ok(answer)) => Ok(answer.status.unwrap_or_default()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("no answer within {PATIENCE:?}")),
        };
        let mut table = self.table();
        match answer {
            Ok(status) => {
                if table.away.take().is_some() {
                    info!("the API server reviews tokens again");
                }
                drop(table);
                self.judge(&status, token)
            }
            Err(fault) => {
                if table.away.is_none() {
                    warn!(
                        fault,
                        "the API server does not review tokens: proxies are admitted by its published keys, and refused \
                         where these are not known; those that are connected stay"
                    );
                }
                table.away = Some((Instant::now(), fault.clone()));
                Answer::None(fault)
            }
        }
    }

    fn judge(&self, status: &TokenReviewStatus, token: &Token<'_>) -> Answer {
        if status.authenticated != Some(true) {
            let why = status.error.clone().filter(|e| !e.is_empty());
            return Answer::No(why.unwrap_or_else(|| "it is not authentic".to_owned()));
        }
        // A server that knows no audiences would not list them; tokens for others must not do.
        if !status.audiences.iter().flatten().any(|a| *a == self.0.audience) {
            return Answer::No("it is for another audience".to_owned());
        }
        let user = status.user.clone().unwrap_or_default();
        let pod = user.extra.as_ref().and_then(|e| e.get(POD)).and_then(|p| p.first());
        let claimed = token.claims.bound.pod.as_ref().map(|p| &p.name);
        if user.username.as_deref() != Some(&token.claims.sub) || pod.is_some() && pod != claimed {
            return Answer::No(format!("it is of {:?}", user.username.unwrap_or_default()));
        }
        Answer::Yes
    }

    #[cfg(test)]
    pub(crate) fn judge_for_test(&self, status: &TokenReviewStatus, token: &Token<'_>) -> bool {
        matches!(self.judge(status, token), Answer::Yes)
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Reviewer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reviewer").field("audience", &self.0.audience).finish_non_exhaustive()
    }
}

fn digest_of(token: &str) -> [u8; 32] {
    let mut out = [0; 32];
    out.copy_from_slice(digest::digest(&digest::SHA256, token.as_bytes()).as_ref());
    out
}
