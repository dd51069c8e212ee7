//! Label selectors.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// Do the labels fulfil all requirements of the selector? An empty selector selects everything; an operator that is not
/// known selects nothing.
pub fn matches(selector: &LabelSelector, labels: Option<&BTreeMap<String, String>>) -> bool {
    let value = |key: &str| labels.and_then(|l| l.get(key));
    let equal = selector.match_labels.iter().flatten().all(|(k, v)| value(k) == Some(v));
    let expressions = selector.match_expressions.iter().flatten().all(|e| {
        let values = e.values.as_deref().unwrap_or_default();
        match e.operator.as_str() {
            "In" => value(&e.key).is_some_and(|v| values.contains(v)),
            "NotIn" => value(&e.key).is_none_or(|v| !values.contains(v)),
            "Exists" => value(&e.key).is_some(),
            "DoesNotExist" => value(&e.key).is_none(),
            _ => false,
        }
    });
    equal && expressions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requirements_are_joined_by_and() {
        let labels = BTreeMap::from([("a".to_owned(), "1".to_owned()), ("b".to_owned(), "2".to_owned())]);
        let is = |selector: serde_json::Value| {
            matches(&serde_json::from_value(selector).expect("a selector"), Some(&labels))
        };
        assert!(is(serde_json::json!({})));
        assert!(is(serde_json::json!({"matchLabels": {"a": "1"}})));
        assert!(!is(serde_json::json!({"matchLabels": {"a": "1", "c": "1"}})));
        let expression = |operator: &str, key: &str, values: &[&str]| {
            is(serde_json::json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]}))
        };
        assert!(expression("In", "a", &["0", "1"]) && !expression("In", "c", &["1"]));
        assert!(
            expression("NotIn", "a", &["0"]) && expression("NotIn", "c", &["0"]) && !expression("NotIn", "a", &["1"])
        );
        assert!(expression("Exists", "a", &[]) && !expression("Exists", "c", &[]));
        assert!(expression("DoesNotExist", "c", &[]) && !expression("DoesNotExist", "a", &[]));
        assert!(!expression("Near", "a", &["1"]));
        assert!(!matches(
            &serde_json::from_value(serde_json::json!({"matchLabels": {"a": "1"}})).expect("a selector"),
            None
        ));
    }
}
