//! Formats of strings and numbers that an API server checks.

use std::net::{Ipv4Addr, Ipv6Addr};

use base64::Engine as _;

/// Whether `text` has `format`; formats unknown to the API server are not checked.
pub(crate) fn text_has(format: &str, text: &str) -> bool {
    match format {
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => cidr(text),
        "byte" => base64::engine::general_purpose::STANDARD.decode(text.replace(['\n', '\r'], "")).is_ok(),
        "date" => date(text).is_some_and(|rest| rest.is_empty()),
        "date-time" => date_time(text),
        "hostname" => crate::names::is_hostname(text),
        "uri" => text.split_once(':').is_some_and(|(scheme, _)| !scheme.is_empty()) || text.starts_with('/'),
        "duration" => go_duration(text),
        "uuid" => uuid(text),
        _ => true,
    }
}

/// Range of a number format; `None` for formats without one.
pub(crate) fn number_range(format: &str) -> Option<(f64, f64)> {
    match format {
        "int32" => Some((f64::from(i32::MIN), f64::from(i32::MAX))),
        "int64" => Some((i64::MIN as f64, i64::MAX as f64)),
        _ => None,
    }
}

fn cidr(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else { return false };
    let Ok(length) = length.parse::<u8>() else { return false };
    address.parse::<Ipv4Addr>().is_ok() && length <= 32 || address.parse::<Ipv6Addr>().is_ok() && length <= 128
}

fn digits(text: &str, count: usize) -> Option<(u32, &str)> {
    let (head, rest) = text.split_at_checked(count)?;
    if !head.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    Some((head.parse().ok()?, rest))
}

fn number(text: &str, low: u32, high: u32) -> Option<&str> {
    let (number, rest) = digits(text, 2)?;
    (low..=high).contains(&number).then_some(rest)
}

/// Reads a date and returns what follows it.
fn date(text: &str) -> Option<&str> {
    let (year, rest) = digits(text, 4)?;
    let (month, rest) = digits(rest.strip_prefix('-')?, 2)?;
    let (day, rest) = digits(rest.strip_prefix('-')?, 2)?;
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 => 28 + u32::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    (1..=days).contains(&day).then_some(rest)
}

fn date_time(text: &str) -> bool {
    let parse = || -> Option<()> {
        let rest = date(text)?.strip_prefix(['T', 't'])?;
        let rest = number(rest, 0, 23)?.strip_prefix(':')?;
        let rest = number(rest, 0, 59)?.strip_prefix(':')?;
        let mut rest = number(rest, 0, 60)?;
        if let Some(fraction) = rest.strip_prefix('.') {
            let after = fraction.trim_start_matches(|c: char| c.is_ascii_digit());
            if after.len() == fraction.len() {
                return None;
            }
            rest = after;
        }
        if matches!(rest, "Z" | "z") {
            return Some(());
        }
        let rest = number(rest.strip_prefix(['+', '-'])?, 0, 23)?.strip_prefix(':')?;
        number(rest, 0, 59)?.is_empty().then_some(())
    };
    parse().is_some()
}

/// A duration as Go writes it: numbers with units, such as `1h30m` or `-1.5s`, or `0`.
fn go_duration(text: &str) -> bool {
    let mut rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    if rest == "0" {
        return true;
    }
    if rest.is_empty() {
        return false;
    }
    while !rest.is_empty() {
        let number = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').len();
        let (value, after) = rest.split_at(number);
        if value.is_empty() || value == "." || value.matches('.').count() > 1 {
            return false;
        }
        let Some(unit) = ["ns", "us", "µs", "ms", "s", "m", "h"].iter().find(|unit| after.starts_with(**unit)) else {
            return false;
        };
        rest = &after[unit.len()..];
    }
    true
}

fn uuid(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    parts.iter().map(|part| part.len()).eq([8, 4, 4, 4, 12])
        && parts.iter().all(|part| part.bytes().all(|b| b.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_accept_and_refuse() {
        for (format, good, bad) in [
            ("ipv4", "10.0.0.1", "10.0.0.256"),
            ("ipv6", "2001:db8::1", "10.0.0.1"),
            ("cidr", "10.0.0.0/8", "10.0.0.0"),
            ("cidr", "2001:db8::/32", "10.0.0.0/33"),
            ("byte", "aGVsbG8=", "hell o"),
            ("date", "2024-02-29", "2023-02-29"),
            ("date-time", "2024-02-29T23:59:60.5+01:00", "2024-02-29 23:59:00Z"),
            ("date-time", "1970-01-01T00:00:00Z", "1970-13-01T00:00:00Z"),
            ("duration", "1h30m", "1d"),
            ("duration", "-1.5s", "s"),
            ("hostname", "a.example", "-a"),
            ("uuid", "8d1f9d2e-0c2b-4d57-8a30-2f1c8f0a5b11", "8d1f9d2e"),
        ] {
            assert!(text_has(format, good), "{format} {good}");
            assert!(!text_has(format, bad), "{format} {bad}");
        }
        assert!(text_has("of-later", "anything"));
    }
}
