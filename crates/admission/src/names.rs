//! Rules for names, labels and annotations.

fn label_bytes(text: &str, upper_start: bool) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let edge = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = text.as_bytes();
    match (bytes.first(), bytes.last()) {
        (Some(first), Some(last)) => {
            (if upper_start { first.is_ascii_lowercase() } else { edge(*first) })
                && edge(*last)
                && bytes.iter().all(|b| inner(*b))
        }
        _ => false,
    }
}

/// What is wrong with a DNS-1123 label, such as the name of a Namespace.
pub(crate) fn dns1123_label(text: &str) -> Option<&'static str> {
    if text.len() > 63 {
        return Some("must be no more than 63 bytes");
    }
    (!label_bytes(text, false)).then_some(
        "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end \
         with an alphanumeric character (e.g. 'my-name', or '123-abc')",
    )
}

/// What is wrong with a DNS-1035 label, such as the name of a Service.
pub(crate) fn dns1035_label(text: &str) -> Option<&'static str> {
    if text.len() > 63 {
        return Some("must be no more than 63 bytes");
    }
    (!label_bytes(text, true)).then_some(
        "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
         character, and end with an alphanumeric character (e.g. 'my-name', or 'abc-123')",
    )
}

/// What is wrong with a DNS-1123 subdomain, the name of most objects.
pub(crate) fn dns1123_subdomain(text: &str) -> Option<&'static str> {
    if text.len() > 253 {
        return Some("must be no more than 253 bytes");
    }
    (!text.split('.').all(|part| label_bytes(part, false))).then_some(
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start \
         and end with an alphanumeric character (e.g. 'example.com')",
    )
}

/// A host name in any case.
pub(crate) fn is_hostname(text: &str) -> bool {
    text.len() <= 253 && dns1123_subdomain(&text.to_ascii_lowercase()).is_none()
}

fn name_part(text: &str) -> bool {
    let edge = |b: &u8| b.is_ascii_alphanumeric();
    let bytes = text.as_bytes();
    bytes.len() <= 63
        && bytes.first().is_some_and(edge)
        && bytes.last().is_some_and(edge)
        && bytes.iter().all(|b| edge(b) || matches!(b, b'-' | b'_' | b'.'))
}

/// What is wrong with the key of a label or annotation: an optional domain, a slash and a short name.
pub(crate) fn qualified_name(text: &str) -> Option<&'static str> {
    let (prefix, name) = match text.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, text),
    };
    if prefix.is_some_and(|prefix| dns1123_subdomain(prefix).is_some()) {
        return Some("prefix part must be a lowercase RFC 1123 subdomain, such as 'example.com'");
    }
    (!name_part(name)).then_some(
        "name part must consist of at most 63 alphanumeric characters, '-', '_' or '.', and must start and end with \
         an alphanumeric character (e.g. 'MyName', or 'my.name', or '123-abc')",
    )
}

/// What is wrong with the value of a label.
pub(crate) fn label_value(text: &str) -> Option<&'static str> {
    (!text.is_empty() && !name_part(text)).then_some(
        "a valid label must be an empty string or consist of at most 63 alphanumeric characters, '-', '_' or '.', and \
         must start and end with an alphanumeric character (e.g. 'MyValue', or 'my_value', or '12345')",
    )
}

/// What is wrong with the name of a Service port.
pub(crate) fn port_name(text: &str) -> Option<&'static str> {
    dns1123_label(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_accept_and_refuse() {
        for good in ["a", "a-b", "1a", "a.b-c.d"] {
            assert_eq!(dns1123_subdomain(good), None, "{good}");
        }
        for bad in ["", "A", "-a", "a-", "a..b", "a_b", ".a"] {
            assert!(dns1123_subdomain(bad).is_some(), "{bad}");
        }
        assert!(dns1123_label("a.b").is_some() && dns1123_label("1a").is_none());
        assert!(dns1035_label("1a").is_some() && dns1035_label("a1").is_none());
        assert!(dns1123_label(&"a".repeat(64)).is_some() && dns1123_subdomain(&"a".repeat(64)).is_none());
        for good in ["a", "A_b.c", "example.com/a", "kubernetes.io/metadata.name"] {
            assert_eq!(qualified_name(good), None, "{good}");
        }
        for bad in ["", "/a", "a/", "A.com/a", "a/b/c", "-a"] {
            assert!(qualified_name(bad).is_some(), "{bad}");
        }
        assert!(label_value("").is_none() && label_value("a b").is_some());
    }
}
