//! One Kubernetes Event for each transition, on the Lease object.

use crate::outcome::Transition;
use k8s_openapi::{
    api::core::v1::{Event, EventSource, ObjectReference},
    apimachinery::pkg::apis::meta::v1::{MicroTime, Time},
    jiff::Timestamp,
};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};
use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};
use tokio::task::JoinSet;

/// Events that may be on their way at once; more are dropped, as an Event is not worth memory without end.
const IN_FLIGHT: usize = 64;
/// How long one attempt to post may take.
const LIMIT: Duration = Duration::from_secs(5);
/// First and longest pause between attempts.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// Attempts before an Event is given up: a transition is often due to an API server that is away, so about half an hour.
const ATTEMPTS: u32 = 64;
/// How long the last ones are waited for at the end.
const CLOSING: Duration = Duration::from_secs(1);

/// Posts Events beside the election.
#[derive(Debug, Default)]
pub(crate) struct Events(Mutex<JoinSet<()>>);

// === impl Events ===

impl Events {
    pub(crate) fn post(&self, client: Client, namespace: &str, lease: &str, transition: &Transition) {
        let event = event(namespace, lease, transition);
        let events = Api::<Event>::namespaced(client, namespace);
        let mut tasks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        if tasks.len() >= IN_FLIGHT {
            return;
        }
        tasks.spawn(deliver(events, event));
    }

    pub(crate) async fn close(&self) {
        let mut tasks = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let all = async { while tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(CLOSING, all).await.is_err() {
            tracing::debug!("the last Events were not answered");
        }
    }
}

/// Posts one Event, again and again while there is no answer.
async fn deliver(events: Api<Event>, event: Event) {
    let mut pause = PAUSES.0;
    for _ in 0..ATTEMPTS {
        match tokio::time::timeout(LIMIT, events.create(&PostParams::default(), &event)).await {
            Ok(Ok(_)) => return,
            // It was there: an earlier attempt had been stored.
            Ok(Err(kube::Error::Api(status))) if status.code == 409 => return,
            Ok(Err(kube::Error::Api(status))) if status.code < 500 && status.code != 429 => {
                return tracing::debug!(%status, "the Event of a transition was not accepted");
            }
            Ok(Err(_)) | Err(_) => {}
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSES.1);
    }
    tracing::debug!("the Event of a transition was not answered");
}

fn event(namespace: &str, lease: &str, transition: &Transition) -> Event {
    let now = Timestamp::now();
    let verb = if transition.leads { "became leader" } else { "stopped leading" };
    Event {
        metadata: ObjectMeta {
            name: Some(format!("{lease}.{:x}", now.as_nanosecond())),
            namespace: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        },
        involved_object: ObjectReference {
            api_version: Some("coordination.k8s.io/v1".to_owned()),
            kind: Some("Lease".to_owned()),
            name: Some(lease.to_owned()),
            namespace: Some(namespace.to_owned()),
            ..ObjectReference::default()
        },
        reason: Some("LeaderElection".to_owned()),
        message: Some(format!("{} {verb} (term {}): {}", transition.identity, transition.term.0, transition.reason)),
        type_: Some("Normal".to_owned()),
        action: Some(if transition.leads { "Elected" } else { "Demoted" }.to_owned()),
        event_time: Some(MicroTime(now)),
        first_timestamp: Some(Time(now)),
        last_timestamp: Some(Time(now)),
        count: Some(1),
        reporting_component: Some("leader-election".to_owned()),
        reporting_instance: Some(transition.identity.chars().take(128).collect()),
        source: Some(EventSource { component: Some("leader-election".to_owned()), host: None }),
        ..Event::default()
    }
}
