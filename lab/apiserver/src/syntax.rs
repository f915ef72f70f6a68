//! Errors of invalid JSON, with the messages of the real server.

/// The message for a syntax error.
pub(crate) fn syntax(body: &[u8], error: &serde_json::Error) -> String {
    if error.is_eof() {
        return "unexpected end of JSON input".to_owned();
    }
    let lines: Vec<_> = body.split(|byte| *byte == b'\n').collect();
    let line = lines.get(error.line().saturating_sub(1)).copied().unwrap_or_default();
    let column = error.column().saturating_sub(1);
    let found = char::from(line.get(column).copied().unwrap_or_default());
    let text = error.to_string();
    let place = if text.contains("expected ident") {
        let begun = line.get(..column).unwrap_or_default();
        let begun = begun.iter().rev().take_while(|byte| byte.is_ascii_lowercase()).count();
        let first = line.get(column - begun).copied().unwrap_or_default();
        let literal = match first {
            b't' => "true",
            b'f' => "false",
            _ => "null",
        };
        let expected = literal.chars().nth(begun).unwrap_or_default();
        return format!("invalid character '{found}' in literal {literal} (expecting '{expected}')");
    } else if text.contains("key must be a string") || text.contains("trailing comma") {
        "looking for beginning of object key string"
    } else if text.contains("expected `:`") {
        "after object key"
    } else if text.contains("expected `,` or `}`") {
        "after object key:value pair"
    } else if text.contains("expected `,` or `]`") {
        "after array element"
    } else if text.contains("trailing characters") {
        "after top-level value"
    } else {
        "looking for beginning of value"
    };
    format!("invalid character '{found}' {place}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_the_character_and_the_context() {
        for (body, message) in [
            ("{\"a\"", "unexpected end of JSON input"),
            ("{a: 1}", "invalid character 'a' looking for beginning of object key string"),
            ("{\"a\" 1}", "invalid character '1' after object key"),
            ("[1 2]", "invalid character '2' after array element"),
            ("{} x", "invalid character 'x' after top-level value"),
            ("nonsense", "invalid character 'o' in literal null (expecting 'u')"),
            ("{\"a\": trie}", "invalid character 'i' in literal true (expecting 'u')"),
        ] {
            let error = serde_json::from_str::<serde_json::Value>(body).unwrap_err();
            assert_eq!(syntax(body.as_bytes(), &error), message, "{body}");
        }
    }
}
