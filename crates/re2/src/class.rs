//! Escapes and bracketed classes.

use crate::{InvalidPattern, names, parser::Cursor};

/// How many instructions a named class compiles to at most.
const UNICODE_CLASS_COST: u64 = 20;
const ASCII_COST: u64 = 1;
/// RE2 reads bytes.
const MAX_CHARACTER: u32 = 0xFF;

/// Reads one escape outside of a class, the backslash being next. Yields the cost of what it stands for, or `None` for
/// a zero-width assertion.
pub(crate) fn escape(cursor: &mut Cursor<'_>) -> Result<Option<u64>, InvalidPattern> {
    match cursor.second() {
        Some('A' | 'z' | 'b' | 'B') => {
            cursor.skip(2);
            Ok(None)
        }
        Some('C' | 'd' | 'D' | 's' | 'S' | 'w' | 'W') => {
            let cost = if matches!(cursor.second(), Some('D' | 'S' | 'W')) { UNICODE_CLASS_COST } else { 4 };
            cursor.skip(2);
            Ok(Some(cost))
        }
        Some('p' | 'P') => unicode(cursor).map(Some),
        _ => character(cursor).map(|_| Some(ASCII_COST)),
    }
}

/// Reads `\pN`, `\p{Name}`, `\P…` or a negation inside the braces.
fn unicode(cursor: &mut Cursor<'_>) -> Result<u64, InvalidPattern> {
    let start = cursor.rest();
    cursor.skip(2);
    let name = match cursor.next() {
        None => return Err(InvalidPattern::new("invalid character class range", start)),
        Some('{') => {
            let rest = cursor.rest();
            let Some(end) = rest.find('}') else {
                return Err(InvalidPattern::new("invalid character class range", start));
            };
            cursor.skip(rest[..=end].chars().count());
            rest[..end].trim_start_matches('^').to_owned()
        }
        Some(c) => c.to_string(),
    };
    if names::is_unicode_class(&name) {
        Ok(UNICODE_CLASS_COST)
    } else {
        let taken = &start[..start.len() - cursor.rest().len()];
        Err(InvalidPattern::new("invalid character class range", taken))
    }
}

/// Reads an escape that stands for one character, the backslash being next.
fn character(cursor: &mut Cursor<'_>) -> Result<u32, InvalidPattern> {
    let start = cursor.rest();
    let bad = |cursor: &Cursor<'_>| {
        let taken = &start[..start.len() - cursor.rest().len()];
        InvalidPattern::new("invalid escape sequence", taken)
    };
    cursor.skip(1);
    let Some(c) = cursor.next() else {
        return Err(InvalidPattern::new("trailing \\", "\\"));
    };
    match c {
        // A single digit would be a back-reference; more octal digits make a character.
        '1'..='7' if !cursor.peek().is_some_and(|d| d.is_digit(8)) => Err(bad(cursor)),
        '0'..='7' => {
            let mut value = c.to_digit(8).unwrap_or_default();
            for _ in 0..2 {
                let Some(d) = cursor.peek().and_then(|d| d.to_digit(8)) else { break };
                cursor.skip(1);
                value = value * 8 + d;
            }
            if value > MAX_CHARACTER { Err(bad(cursor)) } else { Ok(value) }
        }
        'x' => {
            let mut value: u32 = 0;
            if cursor.peek() == Some('{') {
                cursor.skip(1);
                let mut digits = 0;
                loop {
                    match cursor.next() {
                        Some('}') if digits > 0 => return Ok(value),
                        Some(d) if d.is_ascii_hexdigit() => {
                            value = value * 16 + d.to_digit(16).unwrap_or_default();
                            digits += 1;
                            if value > MAX_CHARACTER {
                                return Err(bad(cursor));
                            }
                        }
                        _ => return Err(bad(cursor)),
                    }
                }
            }
            for _ in 0..2 {
                match cursor.next().and_then(|d| d.to_digit(16)) {
                    Some(d) => value = value * 16 + d,
                    None => return Err(bad(cursor)),
                }
            }
            Ok(value)
        }
        'a' => Ok(7),
        'f' => Ok(12),
        'n' => Ok(10),
        'r' => Ok(13),
        't' => Ok(9),
        'v' => Ok(11),
        c if c.is_ascii() && !c.is_ascii_alphanumeric() => Ok(u32::from(c)),
        _ => Err(bad(cursor)),
    }
}

/// Reads a bracketed class, the bracket being next. Yields its cost.
pub(crate) fn bracket(cursor: &mut Cursor<'_>) -> Result<u64, InvalidPattern> {
    let start = cursor.rest();
    cursor.skip(1);
    let mut cost = ASCII_COST;
    if cursor.peek() == Some('^') {
        cursor.skip(1);
        cost += 13;
    }
    let mut first = true;
    loop {
        let rest = cursor.rest();
        match cursor.peek() {
            None => return Err(InvalidPattern::new("missing ]", start)),
            Some(']') if !first => {
                cursor.skip(1);
                return Ok(cost);
            }
            _ => {}
        }
        first = false;
        if rest.starts_with("[:")
            && rest.len() > 2
            && let Some(end) = rest[2..].find(":]")
        {
            let name = &rest[2..2 + end];
            let whole = &rest[..end + 4];
            if !names::is_posix_class(name.strip_prefix('^').unwrap_or(name)) {
                return Err(InvalidPattern::new("invalid character class range", whole));
            }
            cursor.skip(whole.chars().count());
            cost += 4;
            continue;
        }
        if rest.starts_with("\\p") || rest.starts_with("\\P") {
            cost += unicode(cursor)?;
            continue;
        }
        if rest.starts_with('\\') && matches!(cursor.second(), Some('d' | 'D' | 's' | 'S' | 'w' | 'W')) {
            cursor.skip(2);
            cost += 13;
            continue;
        }
        let low = member(cursor)?;
        let range = cursor.rest();
        let high = if range.starts_with('-') && range.len() > 1 && !range.starts_with("-]") {
            cursor.skip(1);
            if cursor.peek().is_none() {
                return Err(InvalidPattern::new("missing ]", start));
            }
            member(cursor)?
        } else {
            low
        };
        if high < low {
            let taken = &rest[..rest.len() - cursor.rest().len()];
            return Err(InvalidPattern::new("invalid character class range", taken));
        }
        cost += ASCII_COST;
    }
}

fn member(cursor: &mut Cursor<'_>) -> Result<u32, InvalidPattern> {
    if cursor.peek() == Some('\\') {
        return character(cursor);
    }
    Ok(cursor.next().map_or(0, u32::from))
}
