//! Quantities of Kubernetes (`100m`, `512Mi`) as numbers.
//!
//! Source: the Kubernetes API reference of `Quantity`.

/// A quantity in thousandths, so that `100m` is whole; `None` where the text is no quantity. Rounds up, as Kubernetes does.
#[must_use]
pub fn milli(text: &str) -> Option<i128> {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '+' | '-'))).unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (power, binary) = match suffix {
        "" => (0, 0),
        "n" => (-9, 0),
        "u" => (-6, 0),
        "m" => (-3, 0),
        "k" => (3, 0),
        "M" => (6, 0),
        "G" => (9, 0),
        "T" => (12, 0),
        "P" => (15, 0),
        "E" => (18, 0),
        "Ki" => (0, 10),
        "Mi" => (0, 20),
        "Gi" => (0, 30),
        "Ti" => (0, 40),
        "Pi" => (0, 50),
        "Ei" => (0, 60),
        exponent => (exponent.strip_prefix(['e', 'E'])?.parse::<i32>().ok()?, 0),
    };
    let (negative, number) = match number.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, number.strip_prefix('+').unwrap_or(number)),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
    let digits = digits.checked_mul(1i128.checked_shl(binary)?)?;
    let power = power + 3 - i32::try_from(fraction.len()).ok()?;
    let scale = 10i128.checked_pow(power.unsigned_abs())?;
    let value = if power >= 0 { digits.checked_mul(scale)? } else { (digits + scale - 1) / scale };
    Some(if negative { -value } else { value })
}

/// A quantity in whole units, such as bytes; `None` where the text is no quantity or is negative.
#[must_use]
pub fn units(text: &str) -> Option<u64> {
    milli(text).filter(|m| *m >= 0).and_then(|m| u64::try_from((m + 999) / 1000).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_numbers() {
        let rows = [
            ("0", 0),
            ("1", 1_000),
            ("100m", 100),
            ("1000m", 1_000),
            ("0.1", 100),
            (".5", 500),
            ("1.5Gi", 1_610_612_736_000),
            ("512Mi", 536_870_912_000),
            ("1k", 1_000_000),
            ("1e3", 1_000_000),
            ("2E", 2_000_000_000_000_000_000_000),
            ("1u", 1),
            ("-1", -1_000),
        ];
        for (text, wanted) in rows {
            assert_eq!(milli(text), Some(wanted), "{text}");
        }
        for text in ["", "Mi", "1Zi", "one", "1e", "1.2.3"] {
            assert_eq!(milli(text), None, "{text}");
        }
        assert_eq!((units("512Mi"), units("1500m"), units("-1")), (Some(536_870_912), Some(2), None));
    }
}
