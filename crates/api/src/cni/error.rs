//! What a runtime is told when a call fails.

use std::fmt;

use serde::Serialize;

use super::Version;

/// Why a call failed, as the CNI specification numbers it; from 100 on the numbers are ours (those of Antrea, where it has one).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u32)]
pub enum Code {
    /// The configuration asks for a version of the specification, or for a command, that its version has not.
    IncompatibleVersion = 1,
    /// A key of the configuration has a value that is not supported; the message has both.
    UnsupportedField = 2,
    /// The container is not known, and the runtime need not clean up after it.
    UnknownContainer = 3,
    /// An environment variable is missing or wrong; the message names it.
    InvalidEnvironment = 4,
    /// Reading or writing failed.
    Io = 5,
    /// Something is not what it should be at all: not JSON, or of another type.
    Decode = 6,
    /// The configuration is well-formed and wrong.
    InvalidConfig = 7,
    /// It would work later.
    TryAgainLater = 11,
    /// STATUS: no container can be attached.
    NotAvailable = 50,
    /// STATUS: no container can be attached, and those that are may not reach everything.
    LimitedConnectivity = 51,
    /// A bug.
    Internal = 100,
    /// No address could be found or freed.
    Ipam = 101,
    /// An interface, its flows or its routes could not be made or removed.
    Interface = 102,
    /// CHECK: something is not as ADD left it.
    Check = 103,
    /// The two ends of the socket do not understand each other.
    Rpc = 201,
}

impl Code {
    const ALL: [Self; 15] = [
        Self::IncompatibleVersion,
        Self::UnsupportedField,
        Self::UnknownContainer,
        Self::InvalidEnvironment,
        Self::Io,
        Self::Decode,
        Self::InvalidConfig,
        Self::TryAgainLater,
        Self::NotAvailable,
        Self::LimitedConnectivity,
        Self::Internal,
        Self::Ipam,
        Self::Interface,
        Self::Check,
        Self::Rpc,
    ];

    /// Its number in the specification.
    pub const fn number(self) -> u32 {
        self as u32
    }

    /// The code with a number; a number that no code has is [`Code::Internal`].
    pub fn of(number: u32) -> Self {
        Self::ALL.into_iter().find(|code| code.number() == number).unwrap_or(Self::Internal)
    }
}

/// What went wrong with a call: for a person (what, and what to do), and for a runtime (the code).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Error {
    /// For the runtime.
    pub code: Code,
    /// What went wrong, in a line.
    pub message: String,
    /// Why, and what to do about it; may be empty.
    pub details: String,
}

impl Error {
    /// An error without details.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: String::new() }
    }

    /// It is not over yet: the runtime should ask again, and a person can look at what `details` says.
    pub fn try_again(message: impl Into<String>, details: impl Into<String>) -> Self {
        Self::new(Code::TryAgainLater, message).with_details(details)
    }

    /// The same error, with details.
    #[must_use]
    pub fn with_details(mut self, details: impl Into<String>) -> Self {
        self.details = details.into();
        self
    }

    /// What a plugin prints.
    pub fn to_json(&self, version: Version) -> String {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Printed<'a> {
            cni_version: &'static str,
            code: u32,
            msg: &'a str,
            #[serde(skip_serializing_if = "str::is_empty")]
            details: &'a str,
        }
        let printed = Printed {
            cni_version: version.as_str(),
            code: self.code.number(),
            msg: &self.message,
            details: &self.details,
        };
        super::result::json(&printed)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match self.details.as_str() {
            "" => Ok(()),
            details => write!(f, ": {details}"),
        }
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_found_by_its_number_and_others_are_bugs() {
        for code in Code::ALL {
            assert_eq!(Code::of(code.number()), code);
        }
        assert_eq!(Code::of(8), Code::Internal);
    }

    #[test]
    fn details_are_printed_where_there_are_some() {
        let error = Error::new(Code::Io, "no");
        assert!(!error.to_json(Version::V1_0_0).contains("details"));
        assert!(error.with_details("why").to_json(Version::V1_0_0).contains(r#""details": "why""#));
    }
}
