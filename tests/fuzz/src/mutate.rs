//! Inputs that are almost right.

use rand::{Rng, SeedableRng, rngs::StdRng, seq::IndexedRandom};
use serde_json::{Map, Value, json};

use crate::seeds::Seed;

/// Objects of one input at most: enough for references to lead somewhere, few enough to be quick.
const OBJECTS: usize = 9;

/// An input.
#[derive(Clone, Debug)]
pub struct Input {
    /// The text of a file.
    pub text: String,
    /// The documents that it was made from; not what it says when its bytes were changed.
    pub documents: Vec<Value>,
}

/// Makes inputs: the same for the same seed and number.
#[derive(Debug)]
pub struct Mutator {
    seeds: Vec<Seed>,
    /// Parts of all seeds that have been seen in one place and may be tried in another.
    parts: Vec<Value>,
    seed: u64,
}

/// Texts that someone may have thought of.
const TEXTS: &[&str] = &[
    "",
    " ",
    "*",
    "*.",
    "*.*",
    "*.example.com",
    ".",
    "..",
    "/",
    "//",
    "/../..",
    "/%",
    "/%2F%00",
    "-",
    "a..b",
    "a.",
    ":",
    "::",
    "::1",
    "0.0.0.0",
    "127.0.0.1",
    "999.1.1.1",
    "1.2.3.4/33",
    "1e999",
    "NaN",
    "null",
    "true",
    "~",
    "%",
    "%%",
    "%REQ(",
    "%REQ(a)%",
    "%START_TIME(%",
    "${x}",
    "\u{0}",
    "\u{feff}x",
    "ü",
    "日本語",
    "👩‍👩‍👧‍👦",
    "İ",
    "\u{202e}abc",
    "a\nb",
    "a\r\nb: c",
    "\t",
    "\"",
    "\\",
    "\\1",
    "\\Q",
    "(",
    "(((((((((((((((((((((((((((((",
    "[",
    "[^]",
    "[z-a]",
    "(a{1000}){1000}",
    "(?i)x",
    "(?=x)",
    "(?P<n>x)",
    "x{2,1}",
    "x{99999}",
    "\\p{Greek}",
    "\\x{110000}",
    ".*",
    "^$",
    "a|",
    "||",
    "(a|b)*c+?",
    "5",
    "0s",
    "-1s",
    "1h1h",
    "99999999999h",
    "1d",
    "500ms",
    ".5s",
    "10Gi",
    "1e3",
    "100m",
    "-----BEGIN CERTIFICATE-----",
    "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    "aGVsbG8=",
    "====",
    "v1",
    "gateway.networking.k8s.io/v1",
    "Service",
    "Gateway",
    "HTTPRoute",
    "default",
    "kube-system",
    "HTTP",
    "HTTPS",
    "TLS",
    "TCP",
    "UDP",
    "Terminate",
    "Passthrough",
    "Exact",
    "PathPrefix",
    "RegularExpression",
    "Same",
    "All",
    "Selector",
    "None",
    "ReplaceFullPath",
    "ReplacePrefixMatch",
    "2024-01-01T00:00:00Z",
    "9999999-01-01T00:00:00Z",
    "Host",
    ":path",
    "x-a",
    "content-length",
    "transfer-encoding",
];

// === impl Mutator ===

impl Mutator {
    /// Begins with these.
    #[must_use]
    pub fn new(seeds: Vec<Seed>, seed: u64) -> Self {
        let mut parts = Vec::new();
        for value in seeds.iter().flatten() {
            collect(value, &mut parts);
        }
        Self { seeds, parts, seed }
    }

    /// Number of seeds.
    #[must_use]
    pub fn seeds(&self) -> usize {
        self.seeds.len()
    }

    /// The input of that number.
    ///
    /// # Panics
    /// When there are no seeds.
    #[must_use]
    pub fn input(&self, number: u64) -> Input {
        let mut rng = StdRng::seed_from_u64(self.seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let seed = self.seeds.choose(&mut rng).expect("invariant: there are seeds");
        let mut documents = pick(seed, &mut rng);
        for _ in 0..rng.random_range(1..=6) {
            self.change(&mut documents, &mut rng);
        }
        let mut text = render(&documents, &mut rng);
        if rng.random_ratio(1, 5) {
            text = noise(&text, &mut rng);
        }
        Input { text, documents }
    }

    fn change(&self, documents: &mut Vec<Value>, rng: &mut StdRng) {
        if documents.is_empty() {
            return;
        }
        let at = rng.random_range(0..documents.len());
        match rng.random_range(0..20) {
            0 => {
                documents.swap_remove(at);
            }
            1 => {
                // The same object again, perhaps under another name or with another age.
                let mut copy = documents[at].clone();
                if let Some(metadata) = copy.get_mut("metadata").and_then(Value::as_object_mut) {
                    match rng.random_range(0..4) {
                        0 => metadata.insert("name".to_owned(), "copy".into()),
                        1 => metadata.insert("namespace".to_owned(), "elsewhere".into()),
                        2 => metadata.insert("creationTimestamp".to_owned(), "2020-01-01T00:00:00Z".into()),
                        _ => None,
                    };
                }
                documents.push(copy);
            }
            2 => {
                let other = self.seeds.choose(rng).and_then(|s| s.choose(rng)).cloned();
                documents.extend(other);
            }
            3 => documents[at] = json!({"apiVersion": "v1", "kind": "List", "items": [documents[at].clone()]}),
            _ => self.within(&mut documents[at], rng),
        }
    }

    /// Changes something somewhere in a document.
    fn within(&self, document: &mut Value, rng: &mut StdRng) {
        // Half of the changes are made in the spec, where most is to be found.
        let from = if rng.random() && document.get("spec").is_some() { &mut document["spec"] } else { document };
        let mut count = 0;
        walk(from, &mut |_| count += 1);
        let target = rng.random_range(0..count.max(1));
        let mut seen = 0;
        walk(from, &mut |value| {
            if seen == target {
                self.node(value, rng);
            }
            seen += 1;
        });
    }

    fn node(&self, value: &mut Value, rng: &mut StdRng) {
        match value {
            Value::Object(fields) if rng.random_ratio(2, 3) => self.fields(fields, rng),
            Value::Array(items) if rng.random_ratio(2, 3) => self.items(items, rng),
            _ => *value = self.other(value, rng),
        }
    }

    fn fields(&self, fields: &mut Map<String, Value>, rng: &mut StdRng) {
        let keys: Vec<String> = fields.keys().cloned().collect();
        let key = keys.choose(rng).cloned();
        match (rng.random_range(0..6), key) {
            (0 | 1, Some(key)) => {
                fields.remove(&key);
            }
            (2, Some(key)) => {
                let other = keys.choose(rng).cloned().unwrap_or_default();
                let (a, b) = (fields.get(&key).cloned(), fields.get(&other).cloned());
                fields.extend(b.map(|b| (key, b)));
                fields.extend(a.map(|a| (other, a)));
            }
            (3, Some(key)) => {
                if let Some(value) = fields.remove(&key) {
                    fields.insert(format!("{key}s"), value);
                }
            }
            (4, Some(key)) => {
                fields.insert(key, self.part(rng));
            }
            _ => {
                let name = TEXTS.choose(rng).copied().unwrap_or_default();
                fields.insert(name.to_owned(), self.part(rng));
            }
        }
    }

    fn items(&self, items: &mut Vec<Value>, rng: &mut StdRng) {
        let at = if items.is_empty() { 0 } else { rng.random_range(0..items.len()) };
        match rng.random_range(0..6) {
            0 if !items.is_empty() => {
                items.remove(at);
            }
            1 if !items.is_empty() => items.insert(at, items[at].clone()),
            2 => items.clear(),
            3 => items.reverse(),
            4 if !items.is_empty() => {
                let many = rng.random_range(2..80);
                items.extend(std::iter::repeat_n(items[at].clone(), many));
            }
            _ => items.push(self.part(rng)),
        }
    }

    /// Something else in its place: of the same kind mostly.
    fn other(&self, value: &Value, rng: &mut StdRng) -> Value {
        match value {
            Value::String(text) if rng.random_ratio(4, 5) => string(text, rng).into(),
            Value::Number(_) if rng.random_ratio(4, 5) => number(rng),
            Value::Bool(b) if rng.random_ratio(4, 5) => (!b).into(),
            _ => match rng.random_range(0..8) {
                0 => Value::Null,
                1 => json!([]),
                2 => json!({}),
                3 => number(rng),
                4 => string("", rng).into(),
                5 => deep(rng.random_range(1..200), rng.random()),
                _ => self.part(rng),
            },
        }
    }

    fn part(&self, rng: &mut StdRng) -> Value {
        self.parts.choose(rng).cloned().unwrap_or_default()
    }
}

/// All objects, or some of many.
fn pick(seed: &Seed, rng: &mut StdRng) -> Vec<Value> {
    if seed.len() <= OBJECTS {
        return seed.clone();
    }
    let mut keep: Vec<usize> = rand::seq::index::sample(rng, seed.len(), OBJECTS).into_vec();
    // Without the class and its Gateways nothing would be served.
    let roots = seed.iter().enumerate().filter(|(_, v)| v["kind"] == "GatewayClass" || v["kind"] == "Gateway");
    keep.extend(roots.map(|(i, _)| i));
    keep.sort_unstable();
    keep.dedup();
    keep.into_iter().map(|i| seed[i].clone()).collect()
}

fn collect(value: &Value, out: &mut Vec<Value>) {
    match value {
        Value::Object(fields) => fields.values().for_each(|v| collect(v, out)),
        Value::Array(items) => items.iter().for_each(|v| collect(v, out)),
        _ => {}
    }
    // Large parts would make every input the same.
    if value.to_string().len() < 400 {
        out.push(value.clone());
    }
}

fn walk(value: &mut Value, visit: &mut impl FnMut(&mut Value)) {
    match value {
        Value::Object(fields) => fields.values_mut().for_each(|v| walk(v, visit)),
        Value::Array(items) => items.iter_mut().for_each(|v| walk(v, visit)),
        _ => {}
    }
    visit(value);
}

fn string(text: &str, rng: &mut StdRng) -> String {
    let known = TEXTS.choose(rng).copied().unwrap_or_default();
    match rng.random_range(0..9) {
        0 => text.to_uppercase(),
        1 => format!("{text}{known}"),
        2 => format!("{known}{text}"),
        3 => text.repeat(rng.random_range(2..50)),
        4 => "x".repeat(rng.random_range(1..70_000)),
        5 => text.chars().rev().collect(),
        6 => (0..rng.random_range(0..40)).map(|_| rng.random::<char>()).collect(),
        _ => known.to_owned(),
    }
}

fn number(rng: &mut StdRng) -> Value {
    let all = [
        json!(0),
        json!(-1),
        json!(1),
        json!(65_535),
        json!(65_536),
        json!(i32::MAX),
        json!(i32::MIN),
        json!(u32::MAX),
        json!(i64::MAX),
        json!(i64::MIN),
        json!(u64::MAX),
        json!(0.5),
        json!(1e308),
        json!(-1e-308),
        json!(1e19),
    ];
    match rng.random_range(0..3) {
        0 => json!(rng.random::<i64>()),
        1 => json!(rng.random_range(0..100_000)),
        _ => all.choose(rng).cloned().unwrap_or_default(),
    }
}

fn deep(levels: usize, list: bool) -> Value {
    (0..levels).fold(Value::Null, |v, _| if list { json!([v]) } else { json!({"a": v}) })
}

/// As a text, in one of the ways in which the same can be written.
fn render(documents: &[Value], rng: &mut StdRng) -> String {
    let style = rng.random_range(0..4);
    let mut out = String::new();
    for document in documents {
        match style {
            0 => out.push_str(&document.to_string()),
            1 => out.push_str(&serde_json::to_string_pretty(document).unwrap_or_default()),
            _ => out.push_str(&serde_saphyr::to_string(document).unwrap_or_default()),
        }
        out.push_str(if style == 3 { "\r\n--- # next\r\n" } else { "\n---\n" });
    }
    out
}

/// Changes bytes, as a half-written or a damaged file would have it.
fn noise(text: &str, rng: &mut StdRng) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..rng.random_range(1..8) {
        if bytes.is_empty() {
            break;
        }
        let at = rng.random_range(0..bytes.len());
        match rng.random_range(0..8) {
            0 => bytes[at] = rng.random(),
            1 => bytes.insert(at, rng.random()),
            2 => {
                bytes.remove(at);
            }
            3 => bytes.truncate(at),
            4 => {
                let end = (at + rng.random_range(1..60)).min(bytes.len());
                let piece = bytes[at..end].to_vec();
                bytes.splice(at..at, piece);
            }
            5 => {
                let end = (at + rng.random_range(1..60)).min(bytes.len());
                bytes.drain(at..end);
            }
            6 => {
                const SIGNS: &[u8] = b"{}[]:,-\n \t\"'|>&*!%@#?";
                bytes[at] = *SIGNS.choose(rng).unwrap_or(&b' ');
            }
            _ => {
                const PIECES: &[&str] = &[
                    "&a ",
                    "*a",
                    "<<: *a\n",
                    "\n---\n",
                    "!!binary ",
                    "? ",
                    "|\n  ",
                    "- - - ",
                    "[[[[",
                    "{a: {a: ",
                    "\u{0}",
                    "\u{fffd}",
                ];
                let piece = PIECES.choose(rng).copied().unwrap_or_default();
                bytes.splice(at..at, piece.bytes());
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mutator() -> Mutator {
        Mutator::new(vec![vec![json!({"kind": "A", "spec": {"list": [1, 2], "text": "x"}}), json!({"kind": "B"})]], 7)
    }

    #[test]
    fn the_same_number_gives_the_same_input_and_others_give_others() {
        let texts: Vec<String> = (0..200).map(|i| mutator().input(i).text).collect();
        let again: Vec<String> = (0..200).map(|i| mutator().input(i).text).collect();
        assert_eq!(texts, again);
        let different: std::collections::BTreeSet<_> = texts.iter().collect();
        assert!(different.len() > 150, "{}", different.len());
    }

    #[test]
    fn some_inputs_are_no_yaml_and_most_are() {
        let bad = (0..500).filter(|i| provider::parse(&mutator().input(*i).text).is_err()).count();
        assert!(bad > 10 && bad < 250, "{bad}");
    }
}
