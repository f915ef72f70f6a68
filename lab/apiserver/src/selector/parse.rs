//! Parses label selectors, with the error messages of the real server.

use super::Test;
use crate::names;

const OPERATORS: [&str; 7] = ["in", "notin", "=", "==", "!=", ">", "<"];

/// Parses requirements separated by commas.
pub(super) fn requirements(text: &str) -> Result<Vec<(String, Test)>, String> {
    let mut words = Words { words: words(text), at: 0 };
    let mut all = Vec::new();
    if words.next_is("") {
        return Ok(all);
    }
    loop {
        if !words.next_is("!") && !words.next_is_name() {
            let found = words.peek();
            return Err(if all.is_empty() {
                format!("found '{found}', expected: !, identifier, or 'end of string'")
            } else {
                format!("found '{found}', expected: identifier after ','")
            });
        }
        all.push(requirement(&mut words).map_err(|why| format!("unable to parse requirement: {why}"))?);
        match words.take() {
            "" => return Ok(all),
            "," => {}
            other => return Err(format!("found '{other}', expected: ',' or 'end of string'")),
        }
    }
}

/// The tokens of a selector: operators, parentheses, commas, and names and values.
fn words(text: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let two = rest.get(..2).filter(|two| ["==", "!="].contains(two));
        let length = match two {
            Some(_) => 2,
            None if rest.starts_with(special) => 1,
            None => rest.find(|c: char| special(c) || c.is_whitespace()).unwrap_or(rest.len()),
        };
        let (word, more) = rest.split_at(length);
        words.push(word);
        rest = more.trim_start();
    }
    words
}

fn special(c: char) -> bool {
    "=!(),><".contains(c)
}

struct Words<'a> {
    words: Vec<&'a str>,
    at: usize,
}

impl<'a> Words<'a> {
    /// The next token; empty at the end.
    fn peek(&self) -> &'a str {
        self.words.get(self.at).copied().unwrap_or_default()
    }

    fn take(&mut self) -> &'a str {
        let word = self.peek();
        self.at += 1;
        word
    }

    fn next_is(&self, word: &str) -> bool {
        self.peek() == word
    }

    fn next_is_name(&self) -> bool {
        is_name(self.peek())
    }
}

fn is_name(word: &str) -> bool {
    !word.is_empty() && !word.starts_with(special)
}

fn requirement(words: &mut Words<'_>) -> Result<(String, Test), String> {
    let absent = words.next_is("!");
    if absent {
        words.take();
    }
    let key = words.take();
    if !is_name(key) {
        return Err(format!("found '{key}', expected: identifier"));
    }
    if let Some(why) = names::qualified_name(key).first() {
        return Err(format!("<nil>: Invalid value: {key:?}: {why}"));
    }
    if absent || words.next_is("") || words.next_is(",") {
        return Ok((key.to_owned(), if absent { Test::Absent } else { Test::Exists }));
    }
    let operator = words.take();
    let test = match operator {
        "in" => Test::In(set(words)?),
        "notin" => Test::NotIn(set(words)?),
        "=" | "==" => Test::In(vec![exact(words)?]),
        "!=" => Test::NotIn(vec![exact(words)?]),
        ">" | "<" => {
            let value = exact(words)?;
            let wrong = "for 'Gt', 'Lt' operators, the value must be an integer";
            let than = value.parse().map_err(|_| format!("values[0]: Invalid value: {value:?}: {wrong}"))?;
            if operator == ">" { Test::Above(than) } else { Test::Below(than) }
        }
        other => return Err(format!("found '{other}', expected: {}", OPERATORS.join(", "))),
    };
    if let Test::In(values) | Test::NotIn(values) = &test {
        for (index, value) in values.iter().enumerate() {
            if let Some(why) = names::label_value(value).first() {
                return Err(format!("values[{index}][{key}]: Invalid value: {value:?}: {why}"));
            }
        }
    }
    Ok((key.to_owned(), test))
}

/// One value, which may be empty.
fn exact(words: &mut Words<'_>) -> Result<String, String> {
    match words.peek() {
        "" | "," => Ok(String::new()),
        word if is_name(word) => Ok(words.take().to_owned()),
        other => Err(format!("found '{other}', expected: identifier")),
    }
}

/// The values in parentheses after `in` and `notin`.
fn set(words: &mut Words<'_>) -> Result<Vec<String>, String> {
    match words.take() {
        "(" => {}
        other => return Err(format!("found '{other}' expected: '('")),
    }
    let mut values = Vec::new();
    loop {
        values.push(match words.peek() {
            "," | ")" => String::new(),
            word if is_name(word) => words.take().to_owned(),
            other => return Err(format!("found '{other}', expected: ',', ')' or identifier")),
        });
        match words.take() {
            "," => {}
            ")" => return Ok(values),
            other => return Err(format!("found '{other}', expected: ',' or ')'")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_what_was_expected() {
        for (text, message) in [
            ("app===x", "unable to parse requirement: found '=', expected: identifier"),
            ("app in x", "unable to parse requirement: found 'x' expected: '('"),
            ("app in (x", "unable to parse requirement: found '', expected: ',' or ')'"),
            ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, >, <"),
            ("a,,b", "found ',', expected: identifier after ','"),
            ("=a", "found '=', expected: !, identifier, or 'end of string'"),
            ("a=b c", "found 'c', expected: ',' or 'end of string'"),
        ] {
            assert_eq!(requirements(text).unwrap_err(), message, "{text}");
        }
    }

    #[test]
    fn blanks_are_ignored_and_values_may_be_empty() {
        let own = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        assert_eq!(requirements(" a  in ( b ,c ) "), Ok(vec![("a".into(), Test::In(own(&["b", "c"])))]));
        assert_eq!(
            requirements("a=,b!="),
            Ok(vec![("a".into(), Test::In(own(&[""]))), ("b".into(), Test::NotIn(own(&[""])))])
        );
        assert_eq!(requirements("a in (,x)"), Ok(vec![("a".into(), Test::In(own(&["", "x"])))]));
    }
}
