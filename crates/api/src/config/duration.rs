//! Lengths of time as the config file writes them: Go's duration syntax.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;
use std::time::Duration as StdDuration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A length of time, zero or more, such as `15s`, `1m30s`, `100ms` or `1.5h`.
///
/// Units are `h`, `m`, `s`, `ms`, `us` (or `µs`) and `ns`; parts add up, a part may have a fraction, and `0` needs no
/// unit. The text is kept as it was written; comparison is by value, so `60s == 1m`.
#[derive(Clone, Debug)]
pub struct Duration {
    text: Cow<'static, str>,
    value: StdDuration,
}

/// A text that is no [`Duration`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidDuration {
    /// The text has another form.
    #[error(
        "invalid duration {0:?}: write numbers with the unit h, m, s or ms, such as \"15s\", \"1m30s\" or \"100ms\""
    )]
    Syntax(String),
    /// The text has a minus sign.
    #[error("invalid duration {0:?}: it must not be negative")]
    Negative(String),
    /// The value is longer than 2⁶³ − 1 ns (about 292 years).
    #[error("invalid duration {0:?}: it is longer than 292 years")]
    TooLong(String),
}

impl Duration {
    /// The length.
    pub const fn get(&self) -> StdDuration {
        self.value
    }

    /// The text as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// A whole number of seconds.
    pub fn from_secs(seconds: u64) -> Self {
        StdDuration::from_secs(seconds).into()
    }

    /// A whole number of milliseconds.
    pub fn from_millis(millis: u64) -> Self {
        StdDuration::from_millis(millis).into()
    }
}

const UNITS: [(&str, u64); 7] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("ms", 1_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
];

fn parse(text: &str) -> Result<StdDuration, InvalidDuration> {
    let syntax = || InvalidDuration::Syntax(text.to_owned());
    let too_long = || InvalidDuration::TooLong(text.to_owned());
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest.starts_with('-') {
        return Err(InvalidDuration::Negative(text.to_owned()));
    }
    if rest == "0" {
        return Ok(StdDuration::ZERO);
    }
    if rest.is_empty() {
        return Err(syntax());
    }
    let mut total: u128 = 0;
    while !rest.is_empty() {
        let whole = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (digits, after) = rest.split_at(whole);
        let (fraction, after) = match after.strip_prefix('.') {
            Some(tail) => tail.split_at(tail.len() - tail.trim_start_matches(|c: char| c.is_ascii_digit()).len()),
            None => ("", after),
        };
        if digits.is_empty() && fraction.is_empty() {
            return Err(syntax());
        }
        let (unit, scale) = UNITS.into_iter().find(|(unit, _)| after.starts_with(unit)).ok_or_else(syntax)?;
        rest = &after[unit.len()..];
        let scale = u128::from(scale);
        let number: u128 = if digits.is_empty() { 0 } else { digits.parse().map_err(|_| too_long())? };
        total = number.checked_mul(scale).and_then(|part| total.checked_add(part)).ok_or_else(too_long)?;
        // Fractions are cut at a nanosecond; more than 18 digits cannot change it.
        let fraction = &fraction[..fraction.len().min(18)];
        if !fraction.is_empty() {
            let parts: u128 = fraction.parse().map_err(|_| syntax())?;
            total += parts * scale / 10_u128.pow(fraction.len() as u32);
        }
    }
    let nanos = i64::try_from(total).map_err(|_| too_long())?;
    Ok(StdDuration::from_nanos(nanos.unsigned_abs()))
}

fn print(value: StdDuration) -> String {
    let mut nanos = value.as_nanos();
    if nanos == 0 {
        return "0s".to_owned();
    }
    let mut text = String::new();
    for (unit, scale) in [
        ("h", 3_600_000_000_000),
        ("m", 60_000_000_000),
        ("s", 1_000_000_000),
        ("ms", 1_000_000),
        ("us", 1_000),
        ("ns", 1),
    ] {
        let count = nanos / scale;
        nanos %= scale;
        if count > 0 {
            text.push_str(&format!("{count}{unit}"));
        }
    }
    text
}

impl FromStr for Duration {
    type Err = InvalidDuration;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self { text: Cow::Owned(text.to_owned()), value: parse(text)? })
    }
}

impl From<StdDuration> for Duration {
    fn from(value: StdDuration) -> Self {
        Self { text: Cow::Owned(print(value)), value }
    }
}

impl From<Duration> for StdDuration {
    fn from(duration: Duration) -> Self {
        duration.value
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl PartialEq for Duration {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl Eq for Duration {}

impl PartialOrd for Duration {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Duration {
    fn cmp(&self, other: &Self) -> Ordering {
        self.value.cmp(&other.value)
    }
}

impl Serialize for Duration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for Duration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for Duration {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        Cow::Borrowed("Duration")
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_go_reads() {
        for (text, nanos) in [
            ("15s", 15_000_000_000),
            ("1m30s", 90_000_000_000),
            ("100ms", 100_000_000),
            ("1.5h", 5_400_000_000_000),
            (".5s", 500_000_000),
            ("1.s", 1_000_000_000),
            ("0", 0),
            ("0s", 0),
            ("+2s", 2_000_000_000),
            ("3us", 3_000),
            ("3µs", 3_000),
            ("7ns", 7),
            ("0.3333333333333333333s", 333_333_333),
            ("2562047h47m16s854ms775us807ns", i64::MAX as u64),
        ] {
            assert_eq!(text.parse::<Duration>().map(|d| d.get()), Ok(StdDuration::from_nanos(nanos)), "{text}");
        }
    }

    #[test]
    fn refuses_the_rest_and_says_why() {
        for text in ["", "+", "15", "s", "15 s", "15S", "1d", "1h 2m", "1.2.3s", ".s", "1e3s"] {
            assert_eq!(text.parse::<Duration>(), Err(InvalidDuration::Syntax(text.to_owned())), "{text}");
        }
        assert_eq!("-1s".parse::<Duration>(), Err(InvalidDuration::Negative("-1s".to_owned())));
        for text in ["2562047h47m16s854ms775us808ns", "99999999999999999999999999999999999999999h"] {
            assert_eq!(text.parse::<Duration>(), Err(InvalidDuration::TooLong(text.to_owned())), "{text}");
        }
    }

    #[test]
    fn keeps_the_text_and_compares_the_value() {
        let minute: Duration = "60s".parse().unwrap();
        assert_eq!(minute.to_string(), "60s");
        assert_eq!(minute, "1m".parse().unwrap());
        assert!(minute < "61s".parse().unwrap());
        assert_eq!(serde_json::to_string(&minute).unwrap(), "\"60s\"");
    }

    #[test]
    fn prints_values_that_were_computed() {
        for (nanos, text) in [
            (0, "0s"),
            (15_000_000_000, "15s"),
            (90_000_000_000, "1m30s"),
            (100_000_000, "100ms"),
            (3_600_000_000_000, "1h"),
            (1_500_000, "1ms500us"),
            (1, "1ns"),
        ] {
            let printed = Duration::from(StdDuration::from_nanos(nanos));
            assert_eq!(printed.as_str(), text);
            assert_eq!(text.parse::<Duration>().unwrap(), printed);
        }
    }
}
