//! Parameters of a URL's query.

/// The first value of a parameter, decoded.
pub(crate) fn parameter(query: &str, name: &str) -> Option<String> {
    parameters(query, name).next()
}

/// All values of a parameter, decoded.
pub(crate) fn parameters(query: &str, name: &str) -> impl Iterator<Item = String> {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.filter(move |(key, _)| *key == name).map(|(_, value)| decode(value))
}

fn decode(value: &str) -> String {
    let bytes = value.as_bytes();
    let mut decoded = Vec::new();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let code = bytes.get(at + 1..at + 3).and_then(|digits| std::str::from_utf8(digits).ok());
        match (byte, code.and_then(|digits| u8::from_str_radix(digits, 16).ok())) {
            (b'%', Some(code)) => {
                decoded.push(code);
                at += 2;
            }
            (b'+', _) => decoded.push(b' '),
            (byte, _) => decoded.push(*byte),
        }
        at += 1;
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_found_and_decoded() {
        for (query, value) in [
            ("msg=a+b%21", Some("a b!")),
            ("x=1&msg=2", Some("2")),
            ("msg=%", Some("%")),
            ("msg=%zz", Some("%zz")),
            ("x=1", None),
        ] {
            assert_eq!(parameter(query, "msg").as_deref(), value, "{query}");
        }
        let all: Vec<_> = parameters("command=sh&tty=1&command=-c&command=exit%207", "command").collect();
        assert_eq!(all, ["sh", "-c", "exit 7"]);
    }
}
