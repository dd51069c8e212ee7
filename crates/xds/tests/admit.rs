//! Streams that somebody decides about.

#![allow(clippy::unwrap_used, reason = "a test may fail so")]

mod support;

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use support::{PATIENCE, Peer, Rig, leaf};
use tonic::{Code, transport::Channel};
use xds::{Admit, Cache, Config, Denied, TypeUrl};

/// A server that admits to a group who shows its name; to `later` from the second time on.
async fn rig() -> Rig {
    let asked = Arc::new(AtomicUsize::new(0));
    let admit = Admit::new(move |applicant| {
        assert!(!applicant.certified && applicant.peer.is_some(), "{applicant:?}");
        let shown = applicant.authorization.as_deref() == Some(&*applicant.group.0);
        let first = &*applicant.group.0 == "later" && asked.fetch_add(1, Ordering::Relaxed) == 0;
        async move {
            match (shown, first) {
                (true, false) => Ok(()),
                (true, true) => Err(Denied::NotNow("in a moment".to_owned())),
                (false, _) => Err(Denied::Refused("who are you".to_owned())),
            }
        }
    });
    let rig = Rig::start_admitting(0, Cache::new(), Config::default(), None, Some(admit)).await;
    for group in ["a", "b", "later"] {
        rig.set(group, [(TypeUrl::Cluster, group, Some(leaf(group)))]);
    }
    rig
}

async fn open(channel: Channel, group: &str, shown: Option<&str>) -> Peer {
    let mut peer = match shown {
        Some(shown) => Peer::open_with(channel, group, shown).await,
        None => Peer::open(channel, group).await,
    };
    peer.ask(TypeUrl::Cluster, &[]).await;
    peer
}

#[tokio::test]
async fn who_is_not_admitted_is_told_nothing_and_counts_for_nobody() {
    let rig = rig().await;
    for shown in [None, Some("b"), Some("")] {
        let mut peer = open(rig.channel().await, "a", shown).await;
        let status = peer.next().await.unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::Unauthenticated, "who are you"));
    }
    assert!(rig.server.connections().is_empty());
    let metrics = rig.server.metrics().snapshot();
    assert_eq!((metrics.streams_denied, metrics.streams_total), (3, 3));

    let mut peer = open(rig.channel().await, "a", Some("a")).await;
    peer.accept(TypeUrl::Cluster, &["a"]).await;
    assert_eq!(rig.server.connections().len(), 1);
    // One that is admitted is not asked again.
    rig.set("a", [(TypeUrl::Cluster, "more", Some(leaf("more")))]);
    peer.accept(TypeUrl::Cluster, &["more"]).await;
}

#[tokio::test]
async fn who_cannot_be_known_now_is_told_to_try_again() {
    let rig = rig().await;
    let mut peer = open(rig.channel().await, "later", Some("later")).await;
    assert_eq!(peer.next().await.unwrap_err().code(), Code::Unavailable);
    let mut peer = open(rig.channel().await, "later", Some("later")).await;
    peer.accept(TypeUrl::Cluster, &["later"]).await;
}

/// A decision that takes its time holds up nobody else, and ends with the stream.
#[tokio::test]
async fn one_decision_does_not_wait_for_another() {
    let dropped = Arc::new(AtomicUsize::new(0));
    let counter = dropped.clone();
    let admit = Admit::new(move |applicant| {
        let guard = Dropped(counter.clone());
        async move {
            if &*applicant.group.0 == "slow" {
                std::future::pending::<()>().await;
            }
            std::mem::forget(guard);
            Ok(())
        }
    });
    let rig = Rig::start_admitting(0, Cache::new(), Config::default(), None, Some(admit)).await;
    rig.set("a", [(TypeUrl::Cluster, "a", Some(leaf("a")))]);
    let channel = rig.channel().await;
    let slow = open(channel.clone(), "slow", None).await;
    let mut quick = open(channel, "a", None).await;
    quick.accept(TypeUrl::Cluster, &["a"]).await;
    drop(slow);
    let all = async {
        while dropped.load(Ordering::Relaxed) == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, all).await.expect("the decision ends with its stream");
}

struct Dropped(Arc<AtomicUsize>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}
