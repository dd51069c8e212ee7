//! The configuration of one node group, with a log of what changed: a stream that has seen revision N asks for what is newer and pays
//! only for that.

use std::collections::{BTreeMap, BTreeSet};

use sha2::{Digest, Sha256};

use crate::{Name, Resource, TypeUrl, resource::hex};

/// How many removed resources a group remembers. A stream that is further behind compares everything instead.
const TOMBSTONES: usize = 2_048;

/// Resources of a type are digested in this many buckets, so that a change costs one bucket and not all.
const BUCKETS: usize = 256;

/// The wanted resources of one node group.
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    complete: bool,
    revision: u64,
    floor: u64,
    kinds: [Kind; TypeUrl::COUNT],
    log: BTreeMap<u64, (TypeUrl, Name)>,
    tombstones: BTreeSet<u64>,
    /// How many wanted clusters take their endpoints under a name.
    endpoint_users: BTreeMap<Name, usize>,
}

#[derive(Debug)]
struct Kind {
    slots: BTreeMap<Name, Slot>,
    live: usize,
    /// Those that are not empty.
    buckets: BTreeMap<usize, Bucket>,
    digest: Name,
}

#[derive(Debug, Default)]
struct Bucket {
    versions: BTreeMap<Name, Name>,
    digest: [u8; 32],
}

#[derive(Debug)]
struct Slot {
    revision: u64,
    resource: Resource,
    removed: bool,
}

impl Default for Kind {
    fn default() -> Self {
        Self { slots: BTreeMap::new(), live: 0, buckets: BTreeMap::new(), digest: digest_of(std::iter::empty()) }
    }
}

impl Snapshot {
    /// Whether there has been a complete translation; until then nothing is answered.
    pub(crate) fn is_complete(&self) -> bool {
        self.complete
    }

    /// The number of the newest change.
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// A stream that has seen less than this must compare everything.
    pub(crate) fn floor(&self) -> u64 {
        self.floor
    }

    /// Applies a batch as one step and returns whether anything changed. The first batch makes the snapshot complete.
    pub(crate) fn apply(&mut self, changes: BTreeMap<(TypeUrl, Name), Option<Resource>>) -> bool {
        let mut changed = !self.complete;
        self.complete = true;
        let mut touched: BTreeSet<(TypeUrl, usize)> = BTreeSet::new();
        for ((kind, name), resource) in changes {
            if self.set(kind, &name, resource) {
                changed = true;
                touched.insert((kind, bucket_of(&name)));
            }
        }
        self.redigest(&touched);
        while self.tombstones.len() > TOMBSTONES {
            self.forget_oldest();
        }
        changed
    }

    /// Forgets everything: streams stay and are told nothing until the next complete batch.
    pub(crate) fn clear(&mut self) {
        let revision = self.revision + 1;
        *self = Self { revision, floor: revision, ..Self::default() };
    }

    fn set(&mut self, kind: TypeUrl, name: &Name, resource: Option<Resource>) -> bool {
        let slots = &mut self.kinds[kind.index()].slots;
        let before = slots.get(name);
        let live = before.filter(|slot| !slot.removed).map(|slot| slot.resource.clone());
        if live.is_none() && resource.is_none() || live.is_some() && live == resource {
            return false;
        }
        if let Some(slot) = before {
            self.log.remove(&slot.revision);
            self.tombstones.remove(&slot.revision);
        }
        self.revision += 1;
        let removed = resource.is_none();
        if kind == TypeUrl::Cluster {
            if let Some(users) = live.as_ref().and_then(|old| old.endpoints_name(name))
                && let Some(count) = self.endpoint_users.get_mut(&users)
            {
                *count -= 1;
                if *count == 0 {
                    self.endpoint_users.remove(&users);
                }
            }
            if let Some(users) = resource.as_ref().and_then(|new| new.endpoints_name(name)) {
                *self.endpoint_users.entry(users).or_default() += 1;
            }
        }
        let kept = resource.clone().or_else(|| live.clone());
        let of_kind = &mut self.kinds[kind.index()];
        of_kind.live = of_kind.live + usize::from(!removed) - usize::from(live.is_some());
        let versions = &mut of_kind.buckets.entry(bucket_of(name)).or_default().versions;
        match &resource {
            Some(new) => versions.insert(name.clone(), new.version().clone()),
            None => versions.remove(name),
        };
        if let Some(resource) = kept {
            let slot = Slot { revision: self.revision, resource, removed };
            of_kind.slots.insert(name.clone(), slot);
        }
        self.log.insert(self.revision, (kind, name.clone()));
        if removed {
            self.tombstones.insert(self.revision);
        }
        true
    }

    fn redigest(&mut self, touched: &BTreeSet<(TypeUrl, usize)>) {
        for (kind, at) in touched {
            let buckets = &mut self.kinds[kind.index()].buckets;
            let Some(bucket) = buckets.get_mut(at) else { continue };
            if bucket.versions.is_empty() {
                buckets.remove(at);
                continue;
            }
            let mut hash = Sha256::new();
            for (name, version) in &bucket.versions {
                feed(&mut hash, name, version);
            }
            bucket.digest = hash.finalize().into();
        }
        let kinds: BTreeSet<TypeUrl> = touched.iter().map(|(kind, _)| *kind).collect();
        for kind in kinds {
            let of_kind = &mut self.kinds[kind.index()];
            of_kind.digest = if of_kind.buckets.is_empty() {
                digest_of(std::iter::empty())
            } else {
                let mut hash = Sha256::new();
                for (at, bucket) in &of_kind.buckets {
                    hash.update((*at as u64).to_be_bytes());
                    hash.update(bucket.digest);
                }
                hex(&hash.finalize()[..16]).into()
            };
        }
    }

    fn forget_oldest(&mut self) {
        if let Some(revision) = self.tombstones.pop_first()
            && let Some((kind, name)) = self.log.remove(&revision)
        {
            self.kinds[kind.index()].slots.remove(&name);
            self.floor = self.floor.max(revision);
        }
    }

    /// The wanted resource of this name.
    pub(crate) fn get(&self, kind: TypeUrl, name: &str) -> Option<&Resource> {
        let slot = self.kinds[kind.index()].slots.get(name)?;
        (!slot.removed).then_some(&slot.resource)
    }

    /// The wanted resource of this name, or what it was before it was removed.
    pub(crate) fn last(&self, kind: TypeUrl, name: &str) -> Option<&Resource> {
        self.kinds[kind.index()].slots.get(name).map(|slot| &slot.resource)
    }

    /// What a proxy that asks for this name is to have: the wanted resource, or for endpoints of a wanted cluster an empty assignment.
    pub(crate) fn wanted(&self, kind: TypeUrl, name: &str) -> Option<Resource> {
        self.get(kind, name).cloned().or_else(|| {
            (kind == TypeUrl::ClusterLoadAssignment && self.endpoint_users.contains_key(name))
                .then(|| Resource::empty_assignment(name))
        })
    }

    /// All wanted resources of a type, by name.
    pub(crate) fn iter(&self, kind: TypeUrl) -> impl Iterator<Item = (&Name, &Resource)> {
        let slots = self.kinds[kind.index()].slots.iter();
        slots.filter(|(_, slot)| !slot.removed).map(|(name, slot)| (name, &slot.resource))
    }

    /// What was removed of a type and is still remembered.
    pub(crate) fn removed(&self, kind: TypeUrl) -> impl Iterator<Item = (&Name, &Resource)> {
        let slots = self.kinds[kind.index()].slots.iter();
        slots.filter(|(_, slot)| slot.removed).map(|(name, slot)| (name, &slot.resource))
    }

    /// The resources that changed after a revision, each once.
    pub(crate) fn changes_since(&self, revision: u64) -> impl Iterator<Item = &(TypeUrl, Name)> {
        self.log.range(revision + 1..).map(|(_, key)| key)
    }

    /// How many resources of a type are wanted.
    pub(crate) fn count(&self, kind: TypeUrl) -> usize {
        self.kinds[kind.index()].live
    }

    /// The digest of all wanted resources of a type: equal content, equal digest.
    pub(crate) fn digest(&self, kind: TypeUrl) -> &Name {
        &self.kinds[kind.index()].digest
    }
}

fn bucket_of(name: &str) -> usize {
    // FNV-1a: stable across processes, which the digest needs.
    let hash = name
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    (hash % BUCKETS as u64) as usize
}

fn feed(hash: &mut Sha256, name: &str, version: &str) {
    hash.update((name.len() as u64).to_be_bytes());
    hash.update(name);
    hash.update((version.len() as u64).to_be_bytes());
    hash.update(version);
}

/// The digest of a list of names and versions, in the order given.
pub(crate) fn digest_of<'a>(of: impl Iterator<Item = (&'a str, &'a str)>) -> Name {
    let mut hash = Sha256::new();
    for (name, version) in of {
        feed(&mut hash, name, version);
    }
    hex(&hash.finalize()[..16]).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Hints;

    fn batch(of: &[(&str, Option<&str>)]) -> BTreeMap<(TypeUrl, Name), Option<Resource>> {
        of.iter()
            .map(|(name, body)| {
                let resource = body.map(|body| Resource::new(body.to_owned(), Hints::Unknown));
                ((TypeUrl::RouteConfiguration, Name::from(*name)), resource)
            })
            .collect()
    }

    fn names(snapshot: &Snapshot, since: u64) -> Vec<&str> {
        snapshot.changes_since(since).map(|(_, name)| &**name).collect()
    }

    #[test]
    fn the_log_names_each_change_once_and_leaves_out_what_stayed() {
        let mut snapshot = Snapshot::default();
        assert!(snapshot.apply(batch(&[("a", Some("1")), ("b", Some("1"))])));
        let seen = snapshot.revision();
        assert!(!snapshot.apply(batch(&[("a", Some("1")), ("none", None)])));
        assert_eq!(names(&snapshot, seen), Vec::<&str>::new());
        snapshot.apply(batch(&[("a", Some("2"))]));
        snapshot.apply(batch(&[("a", Some("3")), ("b", None)]));
        assert_eq!(names(&snapshot, seen), ["a", "b"]);
        assert!(snapshot.get(TypeUrl::RouteConfiguration, "b").is_none());
    }

    #[test]
    fn digests_depend_on_content_and_not_on_history() {
        let mut one = Snapshot::default();
        one.apply(batch(&[("a", Some("1")), ("b", Some("2"))]));
        let mut two = Snapshot::default();
        two.apply(batch(&[("b", Some("1")), ("c", Some("9"))]));
        two.apply(batch(&[("b", Some("2")), ("a", Some("1")), ("c", None)]));
        let kind = TypeUrl::RouteConfiguration;
        assert_eq!(one.digest(kind), two.digest(kind));
        two.apply(batch(&[("a", Some("2")), ("b", Some("1"))]));
        assert_ne!(one.digest(kind), two.digest(kind));
    }

    #[test]
    fn old_removals_are_forgotten_and_the_floor_tells() {
        let mut snapshot = Snapshot::default();
        for at in 0..TOMBSTONES + 10 {
            let name = format!("n{at}");
            snapshot.apply(batch(&[(&name, Some("x"))]));
            snapshot.apply(batch(&[(&name, None)]));
        }
        assert_eq!(snapshot.removed(TypeUrl::RouteConfiguration).count(), TOMBSTONES);
        assert!(snapshot.floor() > 0);
        assert_eq!(snapshot.count(TypeUrl::RouteConfiguration), 0);
        let empty = Snapshot::default();
        let kind = TypeUrl::RouteConfiguration;
        assert_eq!(snapshot.digest(kind), empty.digest(kind));
    }
}
