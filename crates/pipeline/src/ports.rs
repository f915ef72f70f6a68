//! Ranges of ports as values with masks.

/// The fewest (value, mask) pairs that cover `first..=last` and nothing else.
pub(crate) fn masks(first: u16, last: u16) -> Vec<(u16, u16)> {
    let (mut at, end) = (u32::from(first), u32::from(last) + 1);
    let mut pairs = Vec::new();
    while at < end {
        // The largest aligned block that starts here and ends within the range.
        let aligned = if at == 0 { 16 } else { at.trailing_zeros().min(16) };
        let fitting = (end - at).ilog2();
        let size = 1u32 << aligned.min(fitting);
        let value = u16::try_from(at).unwrap_or(u16::MAX);
        pairs.push((value, u16::try_from(0x1_0000 - size).unwrap_or(0)));
        at += size;
    }
    pairs
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::masks;

    #[test]
    fn examples_of_ranges() {
        assert_eq!(masks(80, 80), [(80, 0xffff)]);
        assert_eq!(masks(0, 65535), [(0, 0)]);
        assert_eq!(masks(8080, 8083), [(8080, 0xfffc)]);
        assert_eq!(masks(1, 6), [(1, 0xffff), (2, 0xfffe), (4, 0xfffe), (6, 0xffff)]);
    }

    proptest! {
        #[test]
        fn exactly_the_range_is_covered(a: u16, b: u16, probe: u16) {
            let (first, last) = (a.min(b), a.max(b));
            let pairs = masks(first, last);
            let covering = |port: u16| pairs.iter().filter(|(value, mask)| port & mask == *value).count();
            for port in [probe, first, last, first.wrapping_sub(1), last.wrapping_add(1)] {
                prop_assert_eq!(covering(port), usize::from((first..=last).contains(&port)));
            }
            prop_assert!(pairs.len() <= 30);
        }
    }
}
