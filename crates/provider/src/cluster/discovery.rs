//! Which kinds the server has, and in which version. What cannot be found out is "not known", never "not there".

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use futures::StreamExt;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, Error,
    core::{ApiResource, PartialObjectMeta},
    runtime::watcher,
};
use resources::Kind;
use tokio::{sync::mpsc, time::sleep};

use super::{backoff::after, feed::WATCH_SECONDS, handle::ClusterHandle};

/// Looks without any event: for servers whose definitions may not be watched, and for what an event came too early for.
const REGULAR: Duration = Duration::from_secs(30);
/// Looks after a definition changed: it is served a moment after it is stored.
const AFTER_CHANGE: [Duration; 7] = [
    Duration::from_millis(50),
    Duration::from_millis(150),
    Duration::from_millis(300),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
];

/// Kinds that the server has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) there: BTreeMap<Kind, ApiResource>,
    /// Kinds of which it is not known.
    pub(super) open: BTreeSet<Kind>,
}

/// Tells which kinds there are: once at first, then whenever that changes. `asked` wakes it.
pub(super) async fn run(
    client: Client,
    handle: ClusterHandle,
    mut asked: mpsc::Receiver<()>,
    out: mpsc::Sender<Known>,
) {
    let (changed_tx, mut changed) = mpsc::channel(1);
    let definitions = definitions(client.clone(), changed_tx);
    let rounds = async {
        let mut answers = Answers::default();
        let mut known = None;
        let mut failures = 0;
        let mut soon = AFTER_CHANGE.len();
        loop {
            answers.ask(&client).await;
            let now = answers.known();
            if known.as_ref() != Some(&now) {
                handle.figures_mut().absent =
                    Kind::ALL.iter().copied().filter(|k| !now.there.contains_key(k) && !now.open.contains(k)).collect();
                known = Some(now.clone());
                if out.send(now).await.is_err() {
                    return;
                }
            }
            let pause = if answers.failed.is_empty() {
                failures = 0;
                AFTER_CHANGE.get(soon).copied().unwrap_or(REGULAR)
            } else {
                failures += 1;
                handle.figures_mut().discovery_errors += 1;
                after(failures)
            };
            soon = soon.saturating_add(1);
            tokio::select! {
                () = sleep(pause) => {}
                Some(()) = changed.recv() => soon = 0,
                Some(()) = asked.recv() => soon = soon.min(1),
            }
        }
    };
    tokio::select! { () = rounds => {}, () = definitions => {} }
}

/// What the server answered last for each group version.
#[derive(Debug, Default)]
struct Answers {
    /// Kinds and plurals; none if the server does not have the group version.
    resources: BTreeMap<String, Vec<(String, String)>>,
    /// Those that the last round got no answer for. An older answer of theirs holds.
    failed: BTreeSet<String>,
}

impl Answers {
    /// Asks for every group version, or, after a round with failures, for those again.
    async fn ask(&mut self, client: &Client) {
        let all = Kind::ALL.iter().flat_map(|k| k.versions().iter().map(|v| group_version(*k, v)));
        let wanted = if self.failed.is_empty() { all.collect() } else { std::mem::take(&mut self.failed) };
        for group_version in wanted {
            match resources(client, &group_version).await {
                Some(resources) => drop(self.resources.insert(group_version, resources)),
                None => drop(self.failed.insert(group_version)),
            }
        }
    }

    fn known(&self) -> Known {
        let mut known = Known::default();
        for kind in Kind::ALL {
            for version in kind.versions() {
                let group_version = group_version(*kind, version);
                let Some(resources) = self.resources.get(&group_version) else {
                    // A better version than those that are there may be found yet.
                    known.open.insert(*kind);
                    continue;
                };
                if let Some((_, plural)) = resources.iter().find(|(k, _)| k == kind.as_str()) {
                    let resource = ApiResource {
                        group: kind.group().to_owned(),
                        version: (*version).to_owned(),
                        api_version: group_version,
                        kind: kind.as_str().to_owned(),
                        plural: plural.clone(),
                    };
                    known.there.insert(*kind, resource);
                    break;
                }
            }
        }
        known
    }
}

fn group_version(kind: Kind, version: &str) -> String {
    match kind.group() {
        "" => version.to_owned(),
        group => format!("{group}/{version}"),
    }
}

/// Kinds and plurals of a group version; none if the server does not have it; `None` if that is not known.
async fn resources(client: &Client, group_version: &str) -> Option<Vec<(String, String)>> {
    let answer = if group_version.contains('/') {
        client.list_api_group_resources(group_version).await
    } else {
        client.list_core_api_resources(group_version).await
    };
    match answer {
        Ok(list) => {
            let plain = list.resources.into_iter().filter(|r| !r.name.contains('/'));
            Some(plain.map(|r| (r.kind, r.name)).collect())
        }
        Err(Error::Api(status)) if status.code == 404 => Some(Vec::new()),
        Err(error) => {
            tracing::warn!(group_version, %error, "it is not known which kinds the server has; asking again");
            None
        }
    }
}

/// Wakes when a definition of one of our groups changes. Where definitions may not be watched, the regular look is left.
async fn definitions(client: Client, changed: mpsc::Sender<()>) {
    let api: Api<PartialObjectMeta<CustomResourceDefinition>> = Api::all(client);
    let groups: BTreeSet<&str> = Kind::ALL.iter().map(|k| k.group()).filter(|g| !g.is_empty()).collect();
    let mut events = std::pin::pin!(watcher(api, watcher::Config::default().timeout(WATCH_SECONDS)));
    let mut failures = 0;
    let mut listed = false;
    while let Some(event) = events.next().await {
        match event {
            Ok(watcher::Event::InitDone) => {
                // After a gap there may be news; before the first list there is none.
                if std::mem::replace(&mut listed, true) {
                    let _ = changed.try_send(());
                }
                failures = 0;
            }
            Ok(watcher::Event::Apply(d) | watcher::Event::Delete(d)) => {
                failures = 0;
                let name = d.metadata.name.unwrap_or_default();
                // A full channel already holds a wake-up.
                if name.split_once('.').is_some_and(|(_, group)| groups.contains(group)) {
                    let _ = changed.try_send(());
                }
            }
            Ok(watcher::Event::Init | watcher::Event::InitApply(_)) => {}
            Err(error) => {
                failures += 1;
                tracing::debug!(%error, failures, "definitions are not watched; looking every {} s", REGULAR.as_secs());
                sleep(after(failures)).await;
            }
        }
    }
}
