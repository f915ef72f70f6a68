//! Shared parts of the parsers of ovs-ofctl's syntax: the error, splitting into items, numbers.

use thiserror::Error;

/// A syntax error: the piece of text, and the problem.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("`{piece}`: {problem}")]
pub struct ParseError {
    /// The smallest piece of the input that shows the problem.
    pub piece: String,
    /// The problem with the piece.
    pub problem: String,
}

/// Result of a parser.
pub type Parsed<T> = Result<T, ParseError>;

/// An error about `piece`.
pub(crate) fn wrong<T>(piece: &str, problem: impl Into<String>) -> Parsed<T> {
    // A piece may be a whole flow; the beginning of it is enough to find it.
    let piece = match piece.char_indices().nth(120) {
        Some((end, _)) => format!("{}...", piece.get(..end).unwrap_or_default()),
        None => piece.to_owned(),
    };
    Err(ParseError { piece, problem: problem.into() })
}

/// How an item's value was attached to its key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Value<'a> {
    /// A bare `key`, without value.
    None,
    /// The value of `key=value` or `key:value`.
    Text(&'a str),
    /// The value of `key(value)`, parentheses excluded.
    Paren(&'a str),
}

/// One item of a comma-separated list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Item<'a> {
    /// The whole item, for errors.
    pub(crate) whole: &'a str,
    /// The text before `=`, `:` or `(`.
    pub(crate) key: &'a str,
    /// The text after the separator, if any.
    pub(crate) value: Value<'a>,
}

impl<'a> Item<'a> {
    /// The value, which must be there.
    pub(crate) fn text(&self) -> Parsed<&'a str> {
        match self.value {
            Value::Text(v) | Value::Paren(v) => Ok(v),
            Value::None => wrong(self.whole, "needs a value"),
        }
    }

    /// The value as a number of at most `max`.
    pub(crate) fn number(&self, max: u64) -> Parsed<u64> {
        let text = self.text()?;
        match number(text) {
            Some(n) if n <= u128::from(max) => Ok(u64::try_from(n).unwrap_or(max)),
            _ => wrong(self.whole, format!("needs a number from 0 to {max}")),
        }
    }

    /// The value as a number of at most `max`.
    pub(crate) fn int_up_to(&self, max: u32) -> Parsed<u32> {
        Ok(u32::try_from(self.number(u64::from(max))?).unwrap_or(max))
    }

    /// The value as a number that fits the type.
    pub(crate) fn int<T: TryFrom<u64> + Max>(&self) -> Parsed<T> {
        let n = self.number(T::MAX)?;
        T::try_from(n).or_else(|_| wrong(self.whole, "number out of range"))
    }
}

/// The largest number a type holds.
pub(crate) trait Max {
    /// The largest value of the type.
    const MAX: u64;
}
impl Max for u8 {
    const MAX: u64 = u8::MAX as u64;
}
impl Max for u16 {
    const MAX: u64 = u16::MAX as u64;
}
impl Max for u32 {
    const MAX: u64 = u32::MAX as u64;
}
impl Max for u64 {
    const MAX: u64 = u64::MAX;
}

/// Splits `a,b=1,c(d,e=2) f:3` into items: commas and white space separate, parentheses keep together.
pub(crate) fn items(text: &str) -> Items<'_> {
    Items { rest: text }
}

/// Iterator returned by [`items`].
pub(crate) struct Items<'a> {
    rest: &'a str,
}

impl<'a> Items<'a> {
    /// Everything that has not been split yet.
    pub(crate) fn rest(&self) -> &'a str {
        self.rest
    }
}

fn is_separator(c: char) -> bool {
    c == ',' || c.is_ascii_whitespace()
}

impl<'a> Iterator for Items<'a> {
    type Item = Parsed<Item<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        let text = self.rest.trim_start_matches(is_separator);
        if text.is_empty() {
            self.rest = text;
            return None;
        }
        let key_end = text.find(|c| is_separator(c) || matches!(c, '=' | ':' | '(')).unwrap_or(text.len());
        let (key, after) = text.split_at(key_end);
        let (value, end) = match after.chars().next() {
            Some('(') => {
                let Some(close) = closing(after) else {
                    self.rest = "";
                    return Some(wrong(text, "parenthesis is never closed"));
                };
                (Value::Paren(after.get(1..close).unwrap_or_default()), key_end + close + 1)
            }
            Some('=' | ':') => {
                let after = after.get(1..).unwrap_or_default();
                let len = value_len(after);
                (Value::Text(after.get(..len).unwrap_or_default()), key_end + 1 + len)
            }
            _ => (Value::None, key_end),
        };
        let (whole, rest) = text.split_at(end);
        self.rest = rest;
        if key.is_empty() {
            return Some(wrong(whole, "needs a name before the value"));
        }
        Some(Ok(Item { whole, key, value }))
    }
}

/// Offset of the parenthesis that closes the one `text` starts with.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0usize;
    for (i, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return Some(i);
                }
            }
            _ => {}
        }
    }
    None
}

/// Length of a value: up to the next separator that is not inside parentheses.
fn value_len(text: &str) -> usize {
    let mut depth = 0usize;
    for (i, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            c if depth == 0 && is_separator(c) => return i,
            _ => {}
        }
    }
    text.len()
}

/// A decimal or `0x` number.
pub(crate) fn number(text: &str) -> Option<u128> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) if !hex.starts_with('+') => u128::from_str_radix(hex, 16).ok(),
        None if !text.starts_with('+') => text.parse().ok(),
        _ => None,
    }
}

/// Bytes as ovs-ofctl writes them: `01.ab.03`.
pub(crate) fn dotted_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(".")
}

/// Reads bytes as ovs-ofctl writes them.
pub(crate) fn parse_dotted_hex(text: &str) -> Parsed<Vec<u8>> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let digits: String = text.chars().filter(|c| *c != '.').collect();
    if !digits.len().is_multiple_of(2) || !digits.is_ascii() {
        return wrong(text, "needs pairs of hexadecimal digits, as in 01.ab");
    }
    let pair = |i: usize| digits.get(i..i + 2).and_then(|d| u8::from_str_radix(d, 16).ok());
    (0..digits.len())
        .step_by(2)
        .map(|i| pair(i).map_or_else(|| wrong(text, "needs pairs of hexadecimal digits, as in 01.ab"), Ok))
        .collect()
}

/// Bytes that a test spells out.
#[cfg(test)]
pub(crate) fn hex(digits: &str) -> Vec<u8> {
    parse_dotted_hex(digits).unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_split_at_separators_outside_parentheses() {
        let got: Vec<_> = items("a, b=1,ct(commit,nat(dst=1.2.3.4:80)) x:1->y[0..3]")
            .map(|i| i.map(|i| (i.key, i.value)))
            .collect::<Result<_, _>>()
            .unwrap();
        assert_eq!(
            got,
            [
                ("a", Value::None),
                ("b", Value::Text("1")),
                ("ct", Value::Paren("commit,nat(dst=1.2.3.4:80)")),
                ("x", Value::Text("1->y[0..3]")),
            ]
        );
    }

    #[test]
    fn an_open_parenthesis_is_an_error_that_shows_it() {
        let error = items("ct(commit").next().unwrap().unwrap_err();
        assert_eq!(error.to_string(), "`ct(commit`: parenthesis is never closed");
    }
}
