//! Text of the form `word,key=value,key=(inner)`.

/// The parts between commas that are not inside of parentheses; `None` if parentheses do not match.
pub(super) fn split(text: &str) -> Option<Vec<&str>> {
    let mut parts = vec![];
    let (mut depth, mut start) = (0usize, 0);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'(' => depth += 1,
            b')' => depth = depth.checked_sub(1)?,
            b',' if depth == 0 => {
                parts.push(text.get(start..at)?);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(text.get(start..)?);
    (depth == 0).then_some(parts)
}

/// Key and value of a part; a part without `=` is a key with an empty value.
pub(super) fn key_value(part: &str) -> (&str, &str) {
    part.split_once('=').unwrap_or((part, ""))
}

/// What is inside of the parentheses around a value.
pub(super) fn inner(value: &str) -> Option<&str> {
    value.strip_prefix('(')?.strip_suffix(')')
}

/// A number, decimal or with `0x`.
pub(super) fn number(text: &str) -> Option<u128> {
    match text.strip_prefix("0x") {
        Some(hex) => u128::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_in_parentheses_do_not_split() {
        assert_eq!(split("tcp,a=(b=1,c=(2,3)),d").unwrap(), ["tcp", "a=(b=1,c=(2,3))", "d"]);
        assert_eq!(split("a=(b"), None);
        assert_eq!(split("a)=(b"), None);
        assert_eq!(key_value("a=b=c"), ("a", "b=c"));
        assert_eq!(inner("(a=1)"), Some("a=1"));
        assert_eq!((number("0x1f"), number("31"), number("x")), (Some(31), Some(31), None));
    }
}
