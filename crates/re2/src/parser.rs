//! Operators: alternation, groups, repetition.

use crate::{InvalidPattern, class};

/// Largest count of a repetition, also of nested ones multiplied.
const MAX_COUNT: u32 = 1000;
/// Groups inside groups; beyond it the engine itself would run out of stack.
const MAX_DEPTH: usize = 1000;
/// Instructions that fit RE2's default budget of 8 MiB (two thirds of it, 16 bytes each).
const MAX_INSTRUCTIONS: u64 = (8 << 20) * 2 / 3 / 16;

/// The unread part of a pattern.
pub(crate) struct Cursor<'a>(&'a str);

impl<'a> Cursor<'a> {
    pub(crate) fn rest(&self) -> &'a str {
        self.0
    }

    pub(crate) fn peek(&self) -> Option<char> {
        self.0.chars().next()
    }

    pub(crate) fn second(&self) -> Option<char> {
        self.0.chars().nth(1)
    }

    pub(crate) fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.0 = &self.0[c.len_utf8()..];
        Some(c)
    }

    pub(crate) fn skip(&mut self, characters: usize) {
        for _ in 0..characters {
            self.next();
        }
    }
}

/// What has been read of a piece: its estimated instructions and the product of the counts nested in it.
#[derive(Clone, Copy)]
struct Piece {
    instructions: u64,
    counts: u32,
}

/// An open group, or the whole pattern.
#[derive(Default)]
struct Frame {
    /// All but the last piece, and finished branches.
    done: u64,
    counts: u32,
    last: Option<Piece>,
}

impl Frame {
    fn push(&mut self, piece: Piece) {
        self.settle();
        self.last = Some(piece);
    }

    fn settle(&mut self) {
        if let Some(p) = self.last.take() {
            self.done = self.done.saturating_add(p.instructions);
            self.counts = self.counts.max(p.counts);
        }
    }

    fn close(mut self) -> Piece {
        self.settle();
        Piece { instructions: self.done.saturating_add(2), counts: self.counts.max(1) }
    }
}

/// Reads the whole pattern.
pub(crate) fn parse(pattern: &str) -> Result<(), InvalidPattern> {
    let mut cursor = Cursor(pattern);
    let mut frames = vec![Frame::default()];
    // The operator just read: RE2 does not stack them.
    let mut last_operator: Option<&str> = None;
    while let Some(c) = cursor.peek() {
        let start = cursor.rest();
        let frame = frames.last_mut().expect("the outermost frame is never closed");
        let mut operator = None;
        match c {
            '(' => group(&mut cursor, &mut frames)?,
            ')' => {
                cursor.skip(1);
                if frames.len() == 1 {
                    return Err(InvalidPattern::new("unexpected )", pattern));
                }
                let piece = frames.pop().map(Frame::close).expect("there are two frames");
                frames.last_mut().expect("the outermost frame is never closed").push(piece);
            }
            '|' => {
                cursor.skip(1);
                frame.settle();
                frame.done = frame.done.saturating_add(1);
            }
            '*' | '+' | '?' => {
                cursor.skip(1);
                lazy(&mut cursor);
                let text = taken(start, &cursor);
                refuse_stacked(last_operator, text, start)?;
                repeat(frame, text, 1, None)?;
                operator = Some(text);
            }
            '{' => match counts(start) {
                Some((length, min, max)) => {
                    cursor.skip(length);
                    lazy(&mut cursor);
                    let text = taken(start, &cursor);
                    refuse_stacked(last_operator, text, start)?;
                    if max.is_some_and(|m| m < min) || min > MAX_COUNT || max.is_some_and(|m| m > MAX_COUNT) {
                        return Err(InvalidPattern::new("invalid repetition size", text));
                    }
                    repeat(frame, text, min, Some(max))?;
                    operator = Some(text);
                }
                None => {
                    cursor.skip(1);
                    frame.push(Piece { instructions: 1, counts: 1 });
                }
            },
            '[' => {
                let instructions = class::bracket(&mut cursor)?;
                frame.push(Piece { instructions, counts: 1 });
            }
            '\\' if start.starts_with("\\Q") => {
                let quoted = &start[2..];
                let (text, length) = match quoted.find("\\E") {
                    Some(end) => (&quoted[..end], end + 2),
                    None => (quoted, quoted.len()),
                };
                for _ in text.chars() {
                    frame.push(Piece { instructions: 1, counts: 1 });
                }
                cursor.skip(2 + quoted[..length].chars().count());
            }
            '\\' => {
                let instructions = class::escape(&mut cursor)?.unwrap_or(1);
                frame.push(Piece { instructions, counts: 1 });
            }
            c => {
                cursor.skip(1);
                let instructions = 1 + u64::from(c == '.');
                frame.push(Piece { instructions, counts: 1 });
            }
        }
        last_operator = operator;
    }
    if frames.len() > 1 {
        return Err(InvalidPattern::new("missing )", pattern));
    }
    let whole = frames.pop().map(Frame::close).expect("the outermost frame is never closed");
    if whole.instructions > MAX_INSTRUCTIONS {
        return Err(InvalidPattern::new("pattern too large - compile failed", ""));
    }
    Ok(())
}

/// Reads `(`, `(?flags)`, `(?flags:` or a named group.
fn group(cursor: &mut Cursor<'_>, frames: &mut Vec<Frame>) -> Result<(), InvalidPattern> {
    let start = cursor.rest();
    let open = |frames: &mut Vec<Frame>| {
        if frames.len() > MAX_DEPTH {
            return Err(InvalidPattern::new("expression nests too deeply", ""));
        }
        frames.push(Frame::default());
        Ok(())
    };
    if !start.starts_with("(?") {
        cursor.skip(1);
        return open(frames);
    }
    let name_at = if start.starts_with("(?P<") {
        Some(4)
    } else if start.starts_with("(?<") && !start.starts_with("(?<=") && !start.starts_with("(?<!") {
        Some(3)
    } else {
        None
    };
    if let Some(at) = name_at {
        let Some(end) = start[at..].find('>') else {
            return Err(InvalidPattern::new("invalid named capture group", start));
        };
        let name = &start[at..at + end];
        if name.is_empty() || !name.chars().all(|c| c.is_alphanumeric() || c == '_') {
            return Err(InvalidPattern::new("invalid named capture group", &start[..=at + end]));
        }
        cursor.skip(start[..=at + end].chars().count());
        return open(frames);
    }
    let bad = |cursor: &Cursor<'_>| InvalidPattern::new("invalid perl operator", taken(start, cursor));
    cursor.skip(2);
    let (mut negated, mut flag) = (false, false);
    loop {
        match cursor.next() {
            Some('i' | 'm' | 's' | 'U') => flag = true,
            Some('-') if !negated => {
                negated = true;
                flag = false;
            }
            Some(':' | ')') if negated && !flag => return Err(bad(cursor)),
            Some(')') => return Ok(()),
            Some(':') => return open(frames),
            None => return Err(InvalidPattern::new("missing )", start)),
            Some(_) => return Err(bad(cursor)),
        }
    }
}

fn taken<'a>(start: &'a str, cursor: &Cursor<'_>) -> &'a str {
    &start[..start.len() - cursor.rest().len()]
}

fn lazy(cursor: &mut Cursor<'_>) {
    if cursor.peek() == Some('?') {
        cursor.skip(1);
    }
}

fn refuse_stacked(last: Option<&str>, this: &str, start: &str) -> Result<(), InvalidPattern> {
    match last {
        Some(last) => Err(InvalidPattern::new("bad repetition operator", format!("{last}{}", &start[..this.len()]))),
        None => Ok(()),
    }
}

/// Reads `{n}`, `{n,}` or `{n,m}`: length in characters, least and most (`None` stands for no bound). Anything else is
/// literal text.
fn counts(text: &str) -> Option<(usize, u32, Option<u32>)> {
    let end = text.find('}')?;
    let inner = &text[1..end];
    let number = |digits: &str| -> Option<u32> {
        let fine = !digits.is_empty()
            && digits.bytes().all(|b| b.is_ascii_digit())
            && (digits.len() == 1 || !digits.starts_with('0'))
            && digits.len() < 10;
        fine.then(|| digits.parse().unwrap_or(u32::MAX))
    };
    let (min, max) = match inner.split_once(',') {
        None => number(inner).map(|n| (n, Some(n)))?,
        Some((min, "")) => (number(min)?, None),
        Some((min, max)) => (number(min)?, Some(number(max)?)),
    };
    Some((end + 1, min, max))
}

/// Applies a repetition to the last piece; `bounds` is `None` for `*`, `+` and `?`.
fn repeat(frame: &mut Frame, text: &str, min: u32, bounds: Option<Option<u32>>) -> Result<(), InvalidPattern> {
    let Some(piece) = frame.last.as_mut() else {
        return Err(InvalidPattern::new("missing argument to repetition operator", text));
    };
    let Some(max) = bounds else {
        piece.instructions = piece.instructions.saturating_add(1);
        return Ok(());
    };
    let times = max.unwrap_or(min).max(1);
    piece.counts = piece.counts.saturating_mul(times);
    if (min >= 2 || max.is_some_and(|m| m >= 2)) && piece.counts > MAX_COUNT {
        return Err(InvalidPattern::new("invalid repetition size", text));
    }
    piece.instructions = piece.instructions.saturating_add(1).saturating_mul(u64::from(times));
    Ok(())
}
