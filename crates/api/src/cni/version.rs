//! Supported versions of the CNI specification.

use std::fmt;

/// A supported version of the CNI specification, from old to new.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Version {
    /// 0.3.0: chains, and results with interfaces.
    V0_3_0,
    /// 0.3.1: as 0.3.0, with a corrected example.
    V0_3_1,
    /// 0.4.0: added the command CHECK.
    V0_4_0,
    /// 1.0.0: addresses without a family.
    V1_0_0,
    /// 1.1.0: added STATUS, GC, and MTUs in results.
    V1_1_0,
}

impl Version {
    /// All supported versions, from old to new.
    pub const ALL: [Self; 5] = [Self::V0_3_0, Self::V0_3_1, Self::V0_4_0, Self::V1_0_0, Self::V1_1_0];
    /// Version used when the runtime does not state one.
    pub const NEWEST: Self = Self::V1_1_0;

    /// The form of `cniVersion` in configurations.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V0_3_0 => "0.3.0",
            Self::V0_3_1 => "0.3.1",
            Self::V0_4_0 => "0.4.0",
            Self::V1_0_0 => "1.0.0",
            Self::V1_1_0 => "1.1.0",
        }
    }

    /// Parses the value of `cniVersion`; `None` if the version is not supported.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|version| version.as_str() == text)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
