//! Splits Rust source into comments, string literals and code, so that a rule can look at one of them.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// A doc comment: `///` or `//!`.
    Doc,
    Comment,
    /// A string literal, with its quotes.
    Literal,
    /// Everything else, character literals and white space included.
    Code,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Piece<'a> {
    pub(super) kind: Kind,
    pub(super) text: &'a str,
    /// Line of its first character, from 1.
    pub(super) line: usize,
}

/// The pieces of `source`, in order; together they are the whole text.
pub(super) fn pieces(source: &str) -> Vec<Piece<'_>> {
    let (mut pieces, mut code, mut at, mut line) = (Vec::new(), 0, 0, 1);
    while at < source.len() {
        let rest = &source[at..];
        let Some((kind, length)) = start(rest) else {
            at += code_token(rest);
            continue;
        };
        for (kind, text) in [(Kind::Code, &source[code..at]), (kind, &rest[..length])] {
            pieces.push(Piece { kind, text, line });
            line += text.matches('\n').count();
        }
        at += length;
        code = at;
    }
    pieces.push(Piece { kind: Kind::Code, text: &source[code..], line });
    pieces.retain(|piece| !piece.text.is_empty());
    pieces
}

/// Kind and length of the comment or string literal that `rest` begins with.
fn start(rest: &str) -> Option<(Kind, usize)> {
    if rest.starts_with("//") {
        let doc = (rest.starts_with("///") && !rest.starts_with("////")) || rest.starts_with("//!");
        let kind = if doc { Kind::Doc } else { Kind::Comment };
        return Some((kind, rest.find('\n').unwrap_or(rest.len())));
    }
    if rest.starts_with("/*") {
        return Some((Kind::Comment, block_comment(rest)));
    }
    let literal = rest.strip_prefix(['b', 'c']).unwrap_or(rest);
    let prefix = rest.len() - literal.len();
    let length = if let Some(raw) = literal.strip_prefix('r') {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        let body = raw[hashes..].strip_prefix('"')?;
        let end = format!("\"{}", &raw[..hashes]);
        2 + hashes + body.find(&end).map_or(body.len(), |at| at + end.len())
    } else {
        1 + quoted(literal.strip_prefix('"')?, '"')
    };
    Some((Kind::Literal, prefix + length))
}

/// Length of a comment that may have others within it.
fn block_comment(rest: &str) -> usize {
    let mut depth = 0_usize;
    for (at, _) in rest.char_indices() {
        if rest[at..].starts_with("/*") {
            depth += 1;
        } else if rest[..at].ends_with("*/") && at > 3 {
            depth -= 1;
            if depth == 0 {
                return at;
            }
        }
    }
    rest.len()
}

/// Length up to and including the closing quote.
fn quoted(body: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in body.char_indices() {
        if c == quote && !escaped {
            return at + 1;
        }
        escaped = c == '\\' && !escaped;
    }
    body.len()
}

/// Length of a word, of a character literal, or of a single character.
fn code_token(rest: &str) -> usize {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let mut chars = rest.chars();
    match (chars.next(), chars.next(), chars.next()) {
        (Some('\''), Some('\\'), _) => 1 + quoted(&rest[1..], '\''),
        (Some('\''), Some(c), Some('\'')) => 2 + c.len_utf8(),
        (Some(c), ..) if word(c) => rest.find(|c| !word(c)).unwrap_or(rest.len()),
        (first, ..) => first.map_or(1, char::len_utf8),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(source: &str, expected: &[(Kind, &str)]) {
        let pieces = pieces(source);
        assert_eq!(pieces.iter().map(|piece| (piece.kind, piece.text)).collect::<Vec<_>>(), expected);
        assert_eq!(pieces.iter().map(|piece| piece.text).collect::<String>(), source);
    }

    #[test]
    fn source_is_split_into_comments_literals_and_code() {
        use Kind::{Code, Comment, Doc, Literal};
        check(
            "a // b\n/// c\n//// d",
            &[(Code, "a "), (Comment, "// b"), (Code, "\n"), (Doc, "/// c"), (Code, "\n"), (Comment, "//// d")],
        );
        check("/* a /* b */ c */d", &[(Comment, "/* a /* b */ c */"), (Code, "d")]);
        check(r#"f("//\" b", 1)"#, &[(Code, "f("), (Literal, r#""//\" b""#), (Code, ", 1)")]);
        check(r##"r#"a " b"# bar"c""##, &[(Literal, r##"r#"a " b"#"##), (Code, " bar"), (Literal, r#""c""#)]);
        check(r#"b"x" '"' '\'' 'a str"#, &[(Literal, r#"b"x""#), (Code, r#" '"' '\'' 'a str"#)]);
        check("r#type", &[(Code, "r#type")]);
    }

    #[test]
    fn pieces_have_the_line_they_begin_at() {
        let lines: Vec<_> =
            pieces("a\n// b\n\"c\nd\"\n// e").iter().map(|piece| (piece.text.trim(), piece.line)).collect();
        assert_eq!(lines, [("a", 1), ("// b", 2), ("", 2), ("\"c\nd\"", 3), ("", 4), ("// e", 5)]);
    }
}
