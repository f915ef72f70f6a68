//! "Did you mean": finds the name that a misspelt one stands for.

/// The candidate closest to `name`, if it is close enough to be the intended one.
pub(crate) fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wanted = name.to_lowercase();
    // One error in four letters, and at most three.
    let most = (wanted.chars().count() / 4).clamp(1, 3);
    let distances = candidates.into_iter().map(|candidate| (distance(&wanted, &candidate.to_lowercase()), candidate));
    distances.filter(|(distance, _)| *distance <= most).min().map(|(_, candidate)| candidate)
}

/// Levenshtein distance: letters to add, remove or change.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    // The distances between the part of `a` read so far and each prefix of `b`.
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (read, letter) in a.chars().enumerate() {
        let mut next = vec![read + 1];
        for (at, other) in b.iter().enumerate() {
            let changed = row[at] + usize::from(letter != *other);
            next.push(changed.min(row[at + 1] + 1).min(next[at] + 1));
        }
        row = next;
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelling_is_recognised_and_a_different_word_is_not() {
        let keys = ["tunnelType", "tunnelPort", "tunnelCsum", "noSNAT"];
        assert_eq!(nearest("tunnelTyp", keys), Some("tunnelType"));
        assert_eq!(nearest("tunneltype", keys), Some("tunnelType"));
        assert_eq!(nearest("tunelPrt", keys), Some("tunnelPort"));
        assert_eq!(nearest("noSnat", keys), Some("noSNAT"));
        assert_eq!(nearest("bridge", keys), None);
        assert_eq!(nearest("", keys), None);
    }

    #[test]
    fn distance_counts_letters() {
        for (a, b, expected) in
            [("", "", 0), ("abc", "", 3), ("", "abc", 3), ("abc", "abd", 1), ("abc", "xabc", 1), ("ab", "ba", 2)]
        {
            assert_eq!(distance(a, b), expected, "{a} {b}");
        }
    }
}
