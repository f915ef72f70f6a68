//! Query parameters of a request.

use crate::failure::Failure;

/// Names and values, decoded.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn parse(text: &str) -> Self {
        let pair = |pair: &str| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(key), decode(value))
        };
        Self(text.split('&').filter(|pair| !pair.is_empty()).map(pair).collect())
    }

    /// The first value, or an empty string.
    pub(crate) fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str()).unwrap_or_default()
    }

    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn flag(&self, name: &str) -> bool {
        self.0.iter().any(|(key, value)| key == name && !matches!(value.as_str(), "false" | "0"))
    }

    pub(crate) fn number(&self, name: &str) -> Result<Option<i64>, Failure> {
        match self.get(name) {
            "" => Ok(None),
            text => text
                .parse()
                .map(Some)
                .map_err(|_| Failure::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax"))),
        }
    }
}

/// Decodes percent encoding; a plus is a space.
pub(crate) fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        let hex = |digits: &[u8]| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok();
        match (first, after) {
            (b'%', [a, b, more @ ..]) => match hex(&[*a, *b]) {
                Some(byte) => {
                    bytes.push(byte);
                    rest = more;
                }
                None => bytes.push(b'%'),
            },
            (b'+', _) => bytes.push(b' '),
            _ => bytes.push(*first),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded() {
        let query = Query::parse("labelSelector=a%3Db%2Cc&watch&limit=5&x=a+b%");
        assert_eq!(query.get("labelSelector"), "a=b,c");
        assert!(query.flag("watch") && !query.flag("other"));
        assert_eq!(query.number("limit"), Ok(Some(5)));
        assert_eq!(query.get("x"), "a b%");
    }
}
