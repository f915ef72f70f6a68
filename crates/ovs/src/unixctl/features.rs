//! Features of a datapath, as ovs-vswitchd detected them when it opened the datapath.

/// What a datapath can do, of that which flows depend on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DatapathFeatures {
    /// Whether SNAT to the all-zero address changes a source port only if its connection would collide with another.
    pub all_zero_snat: bool,
}

impl DatapathFeatures {
    /// Reads the output of `dpif/show-dp-features`; a feature that is not listed is older or newer than ovs-vswitchd.
    pub(super) fn parse(text: &str) -> Self {
        let has =
            |name: &str| text.lines().filter_map(|line| line.split_once(": ")).any(|feature| feature == (name, "Yes"));
        Self { all_zero_snat: has("Conntrack all-zero IP SNAT") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_feature_is_there_if_it_is_listed_with_yes() {
        let all_zero_snat = |text| DatapathFeatures::parse(text).all_zero_snat;
        assert!(all_zero_snat("Ct zone: Yes\nConntrack all-zero IP SNAT: Yes\nMPLS Label add: Yes\n"));
        assert!(!all_zero_snat("Ct zone: Yes\nConntrack all-zero IP SNAT: No\n"));
        assert!(!all_zero_snat("Ct zone: Yes\n"));
    }
}
