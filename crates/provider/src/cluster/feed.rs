//! One watch: lists, then follows, for ever. Also the fetch of a single object.

use std::{fmt::Debug, sync::Arc};

use futures::StreamExt;
use kube::{
    Api, Client, Resource,
    core::{ApiResource, DynamicObject, PartialObjectMeta},
    runtime::watcher::{self, watcher},
};
use resources::ObjectKey;
use serde::de::DeserializeOwned;
use tokio::{
    sync::{Semaphore, mpsc},
    time::sleep,
};

use super::{
    backoff::{Failures, after},
    decode::{self, Item, is_lazy},
    handle::{ClusterHandle, Served},
    state::{Event, Feed},
};

/// Attempts at a streaming list before lists in pages are tried.
const STREAMING_ATTEMPTS: u32 = 3;

/// The server ends each watch after so long and it is opened again: one that hangs, while the server answers everything else,
/// is found out 5 s later by its missing end. A streaming list has to be complete by then.
pub(super) const WATCH_SECONDS: u32 = 45;

/// What all tasks need.
#[derive(Clone)]
pub(super) struct Context {
    pub(super) client: Client,
    pub(super) events: mpsc::Sender<Event>,
    pub(super) handle: ClusterHandle,
    /// Wakes the discovery.
    pub(super) lost: mpsc::Sender<()>,
}

/// Watches a kind; ends only when nobody listens.
pub(super) async fn run(context: Context, feed: Feed, resource: ApiResource) {
    let kind = feed.kind;
    if is_lazy(kind) {
        let api = api::<PartialObjectMeta<DynamicObject>>(&context.client, &feed, &resource);
        follow(context, feed, &resource, api, |o| decode::meta(kind, &o.metadata)).await;
    } else {
        let api = api::<DynamicObject>(&context.client, &feed, &resource);
        let api_version = resource.api_version.clone();
        follow(context, feed, &resource, api, |o| decode::full(kind, &api_version, o)).await;
    }
}

fn api<K>(client: &Client, feed: &Feed, resource: &ApiResource) -> Api<K>
where
    K: Resource<DynamicType = ApiResource, Scope = kube::core::DynamicResourceScope>,
{
    match &feed.namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, resource),
        None => Api::all_with(client.clone(), resource),
    }
}

async fn follow<K>(context: Context, feed: Feed, resource: &ApiResource, api: Api<K>, read: impl Fn(K) -> Item)
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let Context { events, handle, lost, .. } = context;
    let served = Served { api_version: resource.api_version.as_str().into(), plural: resource.plural.as_str().into() };
    let mut streaming = true;
    let mut failures = Failures::default();
    let mut expired = 0;
    loop {
        let config = watcher::Config::default().timeout(WATCH_SECONDS);
        let config = if streaming { config.streaming_lists() } else { config };
        let mut stream = std::pin::pin!(watcher(api.clone(), config));
        // The objects of a list that is not complete yet.
        let mut staged = Vec::new();
        let mut listing = true;
        while let Some(event) = stream.next().await {
            let event = match event {
                Ok(watcher::Event::Init) => {
                    staged.clear();
                    listing = true;
                    continue;
                }
                Ok(watcher::Event::InitApply(object)) => {
                    staged.push(read(object));
                    continue;
                }
                Ok(watcher::Event::InitDone) => {
                    listing = false;
                    handle.count(feed.kind, |f| f.lists += 1);
                    let items = std::mem::take(&mut staged);
                    handle.listed(&feed, &items, &served);
                    Event::Listed(feed.clone(), items)
                }
                Ok(watcher::Event::Apply(object)) => {
                    handle.count(feed.kind, |f| f.events += 1);
                    let item = read(object);
                    handle.applied(&item, &served);
                    Event::Applied(item)
                }
                Ok(watcher::Event::Delete(object)) => {
                    handle.count(feed.kind, |f| f.events += 1);
                    let key = decode::key(feed.kind, object.meta());
                    handle.deleted(&key);
                    Event::Deleted(key)
                }
                // The server keeps no history that long: no failure, it is listed anew.
                Err(error) if code(&error) == Some(410) => {
                    tracing::debug!(kind = %feed.kind, %error, "listing anew");
                    expired += 1;
                    if expired > 1 {
                        sleep(after(expired - 1)).await;
                    }
                    break;
                }
                Err(error) => {
                    handle.count(feed.kind, |f| f.errors += 1);
                    let code = code(&error);
                    let pause = failures.one_more(code.is_some());
                    let failures = failures.all();
                    tracing::warn!(kind = %feed.kind, namespace = feed.namespace.as_deref(), %error, failures,
                        "a watch failed; what is known stays, trying again");
                    match code {
                        // Perhaps the server does not have the kind any more.
                        Some(404) => drop(lost.try_send(())),
                        Some(403) if events.send(Event::Forbidden(feed.clone())).await.is_err() => return,
                        _ => {}
                    }
                    sleep(pause).await;
                    let refused = matches!(code, Some(400 | 422));
                    if streaming && listing && (refused || failures >= STREAMING_ATTEMPTS) {
                        streaming = false;
                        break;
                    }
                    continue;
                }
            };
            failures = Failures::default();
            expired = 0;
            if events.send(event).await.is_err() {
                return;
            }
        }
    }
}

fn code(error: &watcher::Error) -> Option<u16> {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(s))
        | watcher::Error::WatchStartFailed(kube::Error::Api(s))
        | watcher::Error::WatchFailed(kube::Error::Api(s)) => Some(s.code),
        watcher::Error::WatchError(s) => Some(s.code),
        _ => None,
    }
}

/// Fetches one object until the server says what it is or that it is not there.
pub(super) async fn fetch(
    context: Context,
    resource: ApiResource,
    key: ObjectKey,
    asked: Arc<str>,
    limit: Arc<Semaphore>,
) {
    let api: Api<DynamicObject> = Api::namespaced_with(context.client, &key.namespace, &resource);
    let mut failures = Failures::default();
    let got = loop {
        // The semaphore is never closed.
        let permit = limit.acquire().await;
        let answer = api.get_opt(&key.name).await;
        drop(permit);
        match answer {
            Ok(object) => break object.map(|o| decode::full(key.kind, &resource.api_version, o)),
            Err(error) => {
                let pause = failures.one_more(matches!(error, kube::Error::Api(_)));
                let failures = failures.all();
                context.handle.count(key.kind, |f| f.fetch_errors += 1);
                tracing::warn!(%key, %error, failures, "cannot be fetched; what is known of it stays, trying again");
                sleep(pause).await;
            }
        }
    };
    context.handle.count(key.kind, |f| f.fetched += 1);
    // Nobody listens when the source has ended.
    let _ = context.events.send(Event::Fetched { key, asked, got }).await;
}
