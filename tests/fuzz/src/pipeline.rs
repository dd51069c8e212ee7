//! A text through everything that comes before Envoy.

use std::collections::BTreeMap;

use admission::Admission;
use resources::{Change, Object};
use serde_json::Value;
use translator::{Config, Engine, ExtensionApis, Infrastructure};

use crate::mutate::Input;

/// What came of inputs, added up.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// Texts that are no YAML.
    pub unreadable: u64,
    /// Objects that admission refused.
    pub refused: u64,
    /// Objects that were translated.
    pub translated: u64,
    /// Resources that were encoded.
    pub encoded: u64,
    /// Resources that the encoder refused as Envoy would.
    pub not_encoded: u64,
}

/// Takes inputs through.
#[derive(Debug)]
pub struct Pipeline {
    admission: Admission,
    configs: [Config; 2],
}

// === impl Outcome ===

impl Outcome {
    /// Adds another.
    pub fn add(&mut self, other: Self) {
        self.unreadable += other.unreadable;
        self.refused += other.refused;
        self.translated += other.translated;
        self.encoded += other.encoded;
        self.not_encoded += other.not_encoded;
    }
}

// === impl Pipeline ===

impl Default for Pipeline {
    fn default() -> Self {
        Self::new()
    }
}

impl Pipeline {
    /// A pipeline as in the standalone gateway.
    #[must_use]
    pub fn new() -> Self {
        let extension_apis = ExtensionApis { backend: true, envoy_patch_policy: true, lua: true, sds_secret_ref: true };
        let host = Config {
            infrastructure: Infrastructure::Host,
            extension_apis,
            now: Some(1_800_000_000),
            ..Config::default()
        };
        let cluster = Config {
            xds_name_scheme_v2: true,
            gateway_namespaces: true,
            per_resource_system_ca_secret: true,
            ..Config::default()
        };
        Self { admission: Admission::new(), configs: [host, cluster] }
    }

    /// Takes an input through: as its text says, and as its documents are without admission (a cluster may hold what an
    /// older schema let in).
    ///
    /// `say` hears what the encoder refuses: the translator should have seen it, though no harm is done.
    ///
    /// # Panics
    /// On a finding: something panics, or the result depends on the order or on the way there.
    #[must_use]
    pub fn run(&self, number: u64, input: &Input, say: &mut dyn FnMut(String)) -> Outcome {
        let mut outcome = Outcome::default();
        let admitted = self.admitted(&input.text, number % 4 == 1, &mut outcome);
        let config = &self.configs[usize::from(number % 4 == 3)];
        translate(config, admitted.clone(), &mut outcome, &mut |text| say(format!("{text} (as admitted)")));
        let raw = input.documents.iter().filter_map(|d| Object::from_value(d.clone()).ok());
        let raw: Vec<Change> = raw.map(|(key, object)| Change::Upsert(key, object)).collect();
        translate(config, raw.clone(), &mut outcome, &mut |text| say(format!("{text} (without admission)")));
        if number.is_multiple_of(8) {
            ways(config, admitted, raw);
        }
        outcome
    }

    fn admitted(&self, text: &str, twice: bool, outcome: &mut Outcome) -> Vec<Change> {
        let Ok(documents) = provider::parse(text) else {
            outcome.unreadable += 1;
            return Vec::new();
        };
        let mut changes = Vec::new();
        for document in documents {
            // Where a field is, is asked for every refusal.
            let value = match self.admission.admit(document.value.clone()) {
                Ok(value) => value,
                Err(refused) => {
                    outcome.refused += 1;
                    assert!(!refused.errors.is_empty(), "refused without a reason");
                    for error in &refused.errors {
                        assert!(document.line_of(&error.path) >= document.line, "a line before the document");
                        assert!(!error.to_string().is_empty(), "an error without words");
                    }
                    continue;
                }
            };
            if twice {
                stored(&self.admission, &value);
            }
            if let Ok((key, object)) = Object::from_value(value) {
                changes.push(Change::Upsert(key, object));
            }
        }
        changes
    }
}

/// What was admitted is admitted again, unchanged.
fn stored(admission: &Admission, value: &Value) {
    match admission.admit(value.clone()) {
        Ok(again) => assert_eq!(&again, value, "an object that was admitted changes when it is admitted again"),
        Err(refused) => panic!("an object that was admitted is refused: {refused}\n{value}"),
    }
}

fn translate(config: &Config, mut changes: Vec<Change>, outcome: &mut Outcome, say: &mut dyn FnMut(String)) {
    outcome.translated += changes.len() as u64;
    changes.push(Change::Synced);
    let full = translator::translate(changes, config);
    let mut encoder = envoy::Encoder::new();
    for value in full.groups.values().flat_map(|g| g.resources.values()) {
        match encoder.encode(value) {
            Ok(_) => outcome.encoded += 1,
            Err(e) => {
                outcome.not_encoded += 1;
                say(e.to_string());
            }
        }
    }
    for status in full.statuses.values() {
        serde_json::to_value(&**status).expect("a status is JSON");
    }
}

/// One state after another, and back: the engine ends where a translation from scratch is, and the sum of what it told
/// is the same.
fn ways(config: &Config, first: Vec<Change>, second: Vec<Change>) {
    let wanted = translator::translate(second.iter().cloned().chain([Change::Synced]), config);
    let mut engine = Engine::new(config.clone());
    let mut told = BTreeMap::new();
    let keep = |told: &mut BTreeMap<_, _>, translation: ir::Translation| {
        for (group, changes) in translation.xds {
            for (key, value) in changes {
                match value {
                    Some(value) => told.insert((group.clone(), key), value),
                    None => told.remove(&(group.clone(), key)),
                };
            }
        }
        told.retain(|(group, _): &(ir::Name, ir::XdsKey), _| !translation.gone.contains(group));
    };
    let key = |change: &Change| match change {
        Change::Upsert(key, _) => Some(key.clone()),
        _ => None,
    };
    let gone: Vec<Change> = first.iter().filter_map(key).map(Change::Remove).collect();
    // Left out for a while, as what Envoy refuses is.
    let suspects: Vec<_> = second.iter().filter_map(key).step_by(3).collect();
    let out: Vec<Change> = suspects.iter().map(|k| Change::Exclude(k.clone(), "refused".into())).collect();
    let back: Vec<Change> = suspects.into_iter().map(Change::Readmit).collect();
    let one_by_one = second.into_iter().map(|c| vec![c]);
    for batch in [first, vec![Change::Synced], gone, out].into_iter().chain(one_by_one).chain([back]) {
        let translation = engine.apply(batch);
        keep(&mut told, translation);
    }
    assert!(*engine.state() == wanted, "the way to a state shows in it");
    let state =
        wanted.groups.iter().flat_map(|(g, r)| r.resources.iter().map(move |(k, v)| ((g.clone(), k.clone()), v)));
    let state: BTreeMap<_, _> = state.map(|(k, v)| (k, v.clone())).collect();
    assert!(told == state, "the sum of what was told is not the state");
}
