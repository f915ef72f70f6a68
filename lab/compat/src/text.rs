//! Finds values that differ between runs, such as uids and times, by their form.

/// The alphabet of generated names in Kubernetes: letters and digits that cannot form words.
const GENERATED: &str = "bcdfghjklmnpqrstvwxz2456789";

/// Replaces parts of `text`. `find` gets the text before and after a position at the start of a word, and returns the
/// length of the part and its replacement.
pub(crate) fn replace(text: &str, mut find: impl FnMut(&str, &str) -> Option<(usize, String)>) -> String {
    let mut done = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let at_word = !done.chars().next_back().is_some_and(|before| before.is_ascii_alphanumeric());
        match find(&done, rest).filter(|_| at_word) {
            Some((length, word)) => {
                done += &word;
                rest = &rest[length..];
            }
            None => {
                done.push(first);
                rest = &rest[first.len_utf8()..];
            }
        }
    }
    done
}

/// The length of the uid that `text` starts with.
pub(crate) fn uid(text: &str) -> Option<usize> {
    shape(text, "hhhhhhhh-hhhh-hhhh-hhhh-hhhhhhhhhhhh")
}

/// The length of the time that `text` starts with, and whether it has fractions of a second.
pub(crate) fn time(text: &str) -> Option<(usize, bool)> {
    let seconds = "dddd-dd-ddTdd:dd:dd";
    let micro = shape(text, &format!("{seconds}.ddddddZ")).map(|length| (length, true));
    micro.or_else(|| shape(text, &format!("{seconds}Z")).map(|length| (length, false)))
}

/// The length of the IPv4 address that `text` starts with.
pub(crate) fn ipv4(text: &str) -> Option<usize> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let address = text[..end].trim_end_matches('.');
    address.parse::<std::net::Ipv4Addr>().ok().map(|_| address.len())
}

/// The length of the age that `text` starts with, such as `5s` or `2m10s`.
pub(crate) fn age(text: &str) -> Option<usize> {
    let mut end = 0;
    loop {
        let digits = text[end..].bytes().take_while(u8::is_ascii_digit).count();
        let unit = text[end + digits..].chars().next().filter(|unit| "smhdy".contains(*unit));
        if digits == 0 || unit.is_none() {
            break;
        }
        end += digits + 1;
    }
    let whole = !text[end..].starts_with(|c: char| c.is_ascii_alphanumeric());
    (end > 0 && whole).then_some(end)
}

/// The length of the run of `from..=to` letters of generated names that `text` starts with and that ends there.
pub(crate) fn generated(text: &str, from: usize, to: usize) -> Option<usize> {
    let length = text.chars().take_while(|c| GENERATED.contains(*c)).count();
    let whole = !text[length..].starts_with(|c: char| c.is_ascii_alphanumeric());
    ((from..=to).contains(&length) && whole).then_some(length)
}

/// The length of the number that `text` starts with.
pub(crate) fn number(text: &str) -> Option<usize> {
    let length = text.bytes().take_while(u8::is_ascii_digit).count();
    (length > 0).then_some(length)
}

/// Replaces the number after each `before`.
pub(crate) fn replace_number_after(text: &str, before: &str, word: &str) -> String {
    let mut parts = text.split(before);
    let mut done = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let length = number(part).unwrap_or(0);
        done += before;
        done += if length > 0 { word } else { "" };
        done += &part[length..];
    }
    done
}

/// Matches a pattern in which `h` is a hexadecimal digit, `d` a decimal one, and any other character stands for itself.
fn shape(text: &str, shape: &str) -> Option<usize> {
    let fits = |(c, s): (u8, u8)| match s {
        b'h' => c.is_ascii_hexdigit() && !c.is_ascii_uppercase(),
        b'd' => c.is_ascii_digit(),
        _ => c == s,
    };
    let bytes = text.as_bytes();
    (bytes.len() >= shape.len() && bytes.iter().copied().zip(shape.bytes()).all(fits)).then_some(shape.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uids_times_addresses_and_ages_are_recognised() {
        assert_eq!(uid("0b6a5f0e-1c2d-4e3f-8a9b-0c1d2e3f4a5b!"), Some(36));
        assert_eq!(uid("0b6a5f0e-1c2d-4e3f-8a9b"), None);
        assert_eq!(time("2026-01-02T03:04:05Z"), Some((20, false)));
        assert_eq!(time("2026-01-02T03:04:05.123456Z"), Some((27, true)));
        assert_eq!((ipv4("10.0.0.1."), ipv4("10.0.0")), (Some(8), None));
        assert_eq!((age("2m10s "), age("5sx"), age("12")), (Some(5), None, None));
        assert_eq!((generated("x4kz9", 5, 5), generated("nginx", 5, 5)), (Some(5), None));
        assert_eq!(replace_number_after("rv: 12 (34)", "rv: ", "N"), "rv: N (34)");
    }

    #[test]
    fn only_whole_words_are_replaced() {
        let out = replace("a5s 5s", |_, text| age(text).map(|length| (length, "AGE".into())));
        assert_eq!(out, "a5s AGE");
    }
}
