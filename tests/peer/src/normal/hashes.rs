//! Generated hash suffixes of JWT providers and requirements: renamed by order of first use, consistently where they
//! are defined and where they are used.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::Group;

/// New names by old ones.
#[derive(Default)]
struct Names(BTreeMap<String, String>);

/// Renames in all resources of a group. Routes use requirements, requirements use providers: that is the order.
pub(super) fn rename(group: &mut Group) {
    let mut names = Names::default();
    for ((list, _), resource) in &*group {
        if *list == "routes" {
            each_value(resource, "requirementName", &mut |v| names.add(v));
        }
    }
    let mut requirements: BTreeMap<String, Value> = BTreeMap::new();
    for resource in group.values() {
        each_field(resource, "requirementMap", &mut |v| {
            requirements.extend(v.as_object().into_iter().flatten().map(|(k, v)| (k.clone(), v.clone())));
        });
    }
    let mut in_use: Vec<&String> = requirements.keys().collect();
    in_use.sort_by_key(|k| names.0.get(*k).cloned().unwrap_or_else(|| format!("~{k}")));
    for name in in_use {
        names.add(name);
        each_value(&requirements[name], "providerName", &mut |v| names.add(v));
    }
    if names.0.is_empty() {
        return;
    }
    for resource in group.values_mut() {
        names.apply(resource);
    }
}

// === impl Names ===

impl Names {
    fn add(&mut self, name: &str) {
        let Some((base, hash)) = name.rsplit_once('_') else { return };
        if hash.len() != 16 || !hash.bytes().all(|b| b.is_ascii_hexdigit()) || self.0.contains_key(name) {
            return;
        }
        let nth = self.0.keys().filter(|k| k.rsplit_once('_').is_some_and(|(b, _)| b == base)).count();
        self.0.insert(name.to_owned(), format!("{base}#{nth}"));
    }

    fn apply(&self, value: &mut Value) {
        match value {
            Value::Object(fields) => {
                for name in ["requirementName", "providerName"] {
                    if let Some(Value::String(text)) = fields.get_mut(name)
                        && let Some(new) = self.0.get(text)
                    {
                        text.clone_from(new);
                    }
                }
                for name in ["requirementMap", "providers"] {
                    if let Some(Value::Object(map)) = fields.get_mut(name) {
                        *map =
                            std::mem::take(map).into_iter().map(|(k, v)| (self.new_name(k), v)).collect::<Map<_, _>>();
                    }
                }
                fields.values_mut().for_each(|v| self.apply(v));
            }
            Value::Array(items) => items.iter_mut().for_each(|v| self.apply(v)),
            _ => {}
        }
    }

    fn new_name(&self, name: String) -> String {
        self.0.get(&name).cloned().unwrap_or(name)
    }
}

fn each_value(value: &Value, field: &str, f: &mut impl FnMut(&str)) {
    each_field(value, field, &mut |v| v.as_str().into_iter().for_each(&mut *f));
}

/// Calls `f` with every field of that name, in the order of lists and of names.
fn each_field(value: &Value, field: &str, f: &mut dyn FnMut(&Value)) {
    match value {
        Value::Object(fields) => {
            let mut keys: Vec<_> = fields.keys().collect();
            keys.sort();
            for key in keys {
                if key == field {
                    f(&fields[key]);
                }
                each_field(&fields[key], field, f);
            }
        }
        Value::Array(items) => items.iter().for_each(|v| each_field(v, field, f)),
        _ => {}
    }
}
