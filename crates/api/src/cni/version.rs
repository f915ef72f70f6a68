//! Versions of the CNI specification.

use std::fmt;

/// A version of the CNI specification that is spoken here, the oldest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Version {
    /// 0.3.0: chains, and the result with interfaces.
    V0_3_0,
    /// 0.3.1: as 0.3.0, with a corrected example.
    V0_3_1,
    /// 0.4.0: CHECK.
    V0_4_0,
    /// 1.0.0: addresses no longer say their family.
    V1_0_0,
    /// 1.1.0: STATUS, GC, and MTUs in results.
    V1_1_0,
}

impl Version {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::V0_3_0, Self::V0_3_1, Self::V0_4_0, Self::V1_0_0, Self::V1_1_0];
    /// What is spoken with whoever does not say what he speaks.
    pub const NEWEST: Self = Self::V1_1_0;

    /// As configurations write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V0_3_0 => "0.3.0",
            Self::V0_3_1 => "0.3.1",
            Self::V0_4_0 => "0.4.0",
            Self::V1_0_0 => "1.0.0",
            Self::V1_1_0 => "1.1.0",
        }
    }

    /// The version that is written like this, if it is one that is spoken here.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|version| version.as_str() == text)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
