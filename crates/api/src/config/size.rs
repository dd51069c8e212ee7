//! Numbers of bytes as the config file writes them: Kubernetes quantities without fractions.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A number of bytes above zero, such as `8Mi`, `4M` or `65536`.
///
/// Suffixes `Ki … Ei` are powers of 1024, `k K M … E` powers of 1000. The text is kept as it was written; comparison is
/// by value.
#[derive(Clone, Debug)]
pub struct ByteSize {
    text: String,
    bytes: u64,
}

/// A text that is no [`ByteSize`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSize {
    /// The text has another form, or the number is zero.
    #[error("invalid size {0:?}: write a whole number above zero with an optional suffix, such as \"8Mi\" or \"4M\"")]
    Syntax(String),
    /// The number does not fit 64 bits.
    #[error("invalid size {0:?}: it is more than 16Ei")]
    TooLarge(String),
}

impl ByteSize {
    /// The number of bytes.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The text as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl FromStr for ByteSize {
    type Err = InvalidSize;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let syntax = || InvalidSize::Syntax(text.to_owned());
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, suffix) = text.split_at(digits);
        if digits == 0 || number.starts_with('0') {
            return Err(syntax());
        }
        let (base, power): (u64, u32) = match suffix {
            "" => (1, 0),
            "k" | "K" => (1000, 1),
            "M" => (1000, 2),
            "G" => (1000, 3),
            "T" => (1000, 4),
            "P" => (1000, 5),
            "E" => (1000, 6),
            "Ki" => (1024, 1),
            "Mi" => (1024, 2),
            "Gi" => (1024, 3),
            "Ti" => (1024, 4),
            "Pi" => (1024, 5),
            "Ei" => (1024, 6),
            _ => return Err(syntax()),
        };
        let bytes = number
            .parse::<u64>()
            .ok()
            .and_then(|number| number.checked_mul(base.pow(power)))
            .ok_or_else(|| InvalidSize::TooLarge(text.to_owned()))?;
        Ok(Self { text: text.to_owned(), bytes })
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl PartialEq for ByteSize {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl Eq for ByteSize {}

impl Serialize for ByteSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = ByteSize;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of bytes such as 8Mi")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<ByteSize, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<ByteSize, E> {
                number.to_string().parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

impl JsonSchema for ByteSize {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        Cow::Borrowed("ByteSize")
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "x-kubernetes-int-or-string": true,
            "pattern": "^[1-9]+[0-9]*([EPTGMK]i|[EPTGMk])?$",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_suffixes() {
        for (text, bytes) in [
            ("1", 1),
            ("65536", 65536),
            ("4k", 4000),
            ("4Ki", 4096),
            ("8Mi", 8 << 20),
            ("4M", 4_000_000),
            ("15Ei", 15 << 60),
        ] {
            assert_eq!(text.parse::<ByteSize>().map(|s| s.bytes()), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn refuses_the_rest() {
        for text in ["", "0", "08", "-1", "1.5Mi", "Mi", "8mi", "8 Mi", "8MB"] {
            assert_eq!(text.parse::<ByteSize>(), Err(InvalidSize::Syntax(text.to_owned())), "{text}");
        }
        assert_eq!("16Ei".parse::<ByteSize>(), Err(InvalidSize::TooLarge("16Ei".to_owned())));
    }

    #[test]
    fn reads_a_bare_number_and_writes_a_text() {
        let size: ByteSize = serde_json::from_str("4096").unwrap();
        assert_eq!(size, "4Ki".parse().unwrap());
        assert_eq!(serde_json::to_string(&size).unwrap(), "\"4096\"");
        assert!(serde_json::from_str::<ByteSize>("-1").is_err());
    }
}
