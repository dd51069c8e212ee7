//! The verdict on one case.

use std::{
    collections::BTreeSet,
    panic::{AssertUnwindSafe, catch_unwind},
};

use admission::Admission;
use anyhow::Result;
use egctl::offline::{self, Objects};
use serde_json::Value;

use crate::{
    case::{Case, Judged},
    diff, infra, normal,
    status::{self, Statuses},
};

/// What counts, in the order in which it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Groups, types and names.
    Names,
    /// Content of all resources.
    Xds,
    /// Conditions and reasons.
    Status,
    /// An object is refused with its field named.
    Refused,
    /// Kubernetes objects of the fleets.
    Infra,
}

/// The verdict on a case.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// Levels that the case is judged on.
    pub judged: BTreeSet<Level>,
    /// Levels that it passes.
    pub passed: BTreeSet<Level>,
    /// Messages of conditions are equal too; does not count.
    pub same_messages: bool,
    /// The first differences.
    pub differences: Vec<String>,
    /// What was left aside, such as kinds that nobody reads.
    pub notes: Vec<String>,
}

/// Judges cases.
#[derive(Debug, Default)]
pub struct Judge {
    admission: Admission,
    limit: usize,
    messages: bool,
}

/// What the gateway makes of a case.
struct Ours {
    xds: Value,
    statuses: Vec<Value>,
    /// Kubernetes objects of all fleets.
    fleets: Vec<Value>,
    /// Resources that Envoy would refuse.
    errors: Vec<String>,
}

// === impl Level ===

impl Level {
    /// All levels.
    pub const ALL: [Self; 5] = [Self::Names, Self::Xds, Self::Status, Self::Refused, Self::Infra];
    /// Levels of every case; of fleets there are few, which are told apart.
    pub const COMMON: [Self; 4] = [Self::Names, Self::Xds, Self::Status, Self::Refused];

    /// Name, as in the names of the ratchet's files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Names => "names",
            Self::Xds => "xds",
            Self::Status => "status",
            Self::Refused => "refused",
            Self::Infra => "infra",
        }
    }
}

// === impl Judge ===

impl Judge {
    /// Tells up to `limit` differences of each level of a case; those of messages only with `messages`.
    #[must_use]
    pub fn new(limit: usize, messages: bool) -> Self {
        Self { admission: Admission::new(), limit, messages }
    }

    /// Judges a case. Whatever goes wrong, a panic too, counts as not equal.
    #[must_use]
    pub fn judge(&self, case: &Case) -> Verdict {
        let mut verdict = Verdict::default();
        verdict.judged.extend(match case.judged {
            Judged::Fully => &[Level::Names, Level::Xds, Level::Status][..],
            Judged::ByStatus => &[Level::Status],
            Judged::ByRefusal => &[Level::Refused],
        });
        if case.judged == Judged::Fully && case.folder.join("infra.yaml").is_file() {
            verdict.judged.insert(Level::Infra);
        }
        let outcome = catch_unwind(AssertUnwindSafe(|| self.compare(case, &mut verdict)));
        match outcome {
            Ok(Ok(())) => {}
            Ok(Err(e)) => verdict.differences.push(format!("{e:#}")),
            Err(panic) => {
                verdict.passed.clear();
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("?");
                verdict.differences.push(format!("panic: {text}"));
            }
        }
        verdict
    }

    fn compare(&self, case: &Case, verdict: &mut Verdict) -> Result<()> {
        let mut documents = case.documents("in.yaml")?;
        // Some recorded EndpointSlices have no name, which an API server would have made up.
        for (i, document) in documents.iter_mut().enumerate() {
            if document["kind"] == "EndpointSlice" && document["metadata"]["name"].is_null() {
                document["metadata"]["name"] = format!("unnamed-{i}").into();
            }
        }
        let with_generation: BTreeSet<String> =
            documents.iter().filter(|d| d.pointer("/metadata/generation").is_some()).map(status::key).collect();
        infra::identify(&mut documents);
        let objects = offline::objects(documents, &self.admission);
        if case.judged == Judged::ByRefusal {
            refusal(&objects, verdict);
            return Ok(());
        }
        verdict.notes.extend(objects.ignored.iter().cloned());
        verdict.differences.extend(objects.refused.iter().map(|r| format!("refused: {}", r.message)));
        let ours = translate(case, objects)?;
        verdict.differences.extend(ours.errors.iter().map(|e| format!("left out: {e}")));
        if case.judged == Judged::Fully {
            self.xds(case, &ours.xds, verdict)?;
        }
        if verdict.judged.contains(&Level::Infra) {
            let mut differences = infra::compare(&case.documents("infra.yaml")?, &ours.fleets, self.limit)?;
            if differences.is_empty() {
                verdict.passed.insert(Level::Infra);
            }
            differences.iter_mut().for_each(|d| d.insert_str(0, "infra "));
            verdict.differences.extend(differences);
        }
        let has_generation = |key: &str| with_generation.contains(key);
        let want = status::level(&case.documents("status.yaml")?, &has_generation);
        let got = status::level(&ours.statuses, &has_generation);
        self.statuses(&want, &got, verdict);
        Ok(())
    }

    fn xds(&self, case: &Case, ours: &Value, verdict: &mut Verdict) -> Result<()> {
        let want = case.xds()?;
        let empty = serde_json::Map::new();
        let got = ours.as_object().unwrap_or(&empty);
        let (mut names, mut equal) = (true, true);
        let mut differences = Vec::new();
        for group in want.keys().chain(got.keys()).collect::<BTreeSet<_>>() {
            let (Some(want), Some(got)) = (want.get(group), got.get(group)) else {
                let what = if got.contains_key(group) { "unexpected" } else { "missing" };
                differences.push(format!("{group}: {what} group"));
                names = false;
                continue;
            };
            let want = normal::group(want).map_err(|e| anyhow::anyhow!("recorded {group}: {e}"))?;
            let got = normal::group(got).map_err(|e| anyhow::anyhow!("ours {group}: {e}"))?;
            for key in want.keys().chain(got.keys()).collect::<BTreeSet<_>>() {
                let at = format!("{group}: {}[{}]", key.0, key.1);
                match (want.get(key), got.get(key)) {
                    (Some(a), Some(b)) if a == b => {}
                    (Some(a), Some(b)) => {
                        equal = false;
                        differences.extend(diff::paths(a, b, self.limit).into_iter().map(|d| format!("{at}{d}")));
                    }
                    (a, _) => {
                        let what = if a.is_some() { "missing" } else { "unexpected" };
                        differences.insert(0, format!("{at}: {what}"));
                        names = false;
                    }
                }
            }
        }
        if names {
            verdict.passed.insert(Level::Names);
            if equal {
                verdict.passed.insert(Level::Xds);
            }
        }
        differences.truncate(self.limit);
        verdict.differences.extend(differences);
        Ok(())
    }

    fn statuses(&self, want: &Statuses, got: &Statuses, verdict: &mut Verdict) {
        let (want_counted, got_counted) = (status::without_messages(want), status::without_messages(got));
        if want_counted == got_counted {
            verdict.passed.insert(Level::Status);
            verdict.same_messages = want == got;
        }
        let whole = |s: &Statuses| Value::Object(s.iter().map(|(k, v)| (k.clone(), v.clone())).collect());
        let mut told = diff::paths(&want_counted, &got_counted, self.limit);
        if told.is_empty() && self.messages {
            told = diff::paths(&whole(want), &whole(got), self.limit);
            told.iter_mut().for_each(|d| d.insert_str(0, "(message) "));
        }
        verdict.differences.extend(told.into_iter().map(|d| format!("status {d}")));
    }
}

/// At least one object is refused, and every refusal names a field.
fn refusal(objects: &Objects, verdict: &mut Verdict) {
    verdict.notes.extend(objects.refused.iter().map(|r| r.message.clone()));
    if objects.refused.is_empty() {
        verdict.differences.push("no object is refused".to_owned());
    } else if objects.refused.iter().any(|r| r.fields.iter().any(String::is_empty) || r.fields.is_empty()) {
        verdict.differences.push("a refusal names no field".to_owned());
    } else {
        verdict.passed.insert(Level::Refused);
    }
}

fn translate(case: &Case, objects: Objects) -> Result<Ours> {
    let config = match case.text("config.yaml")? {
        Some(text) => settings::parse(&text, "config.yaml", std::iter::empty())?.config,
        None => {
            settings::parse(
                "apiVersion: gateway.envoyproxy.io/v1alpha1\nkind: EnvoyGateway\n",
                "defaults",
                std::iter::empty(),
            )?
            .config
        }
    };
    let full = translator::translate(objects.changes, &translator::Config::from(&config));
    let (xds, errors) = offline::xds(&full)?;
    Ok(Ours {
        xds,
        statuses: offline::statuses(&full),
        fleets: infra::render(&full, &config)?,
        errors: errors.iter().map(ToString::to_string).collect(),
    })
}
