//! Errors of CNI calls.

use std::fmt;

use serde::Serialize;

use super::Version;

/// Error codes of the CNI specification; those from 100 on are not in it, and equal Antrea's where Antrea has one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u32)]
pub enum Code {
    /// The version in the configuration is not supported, or does not have the command.
    IncompatibleVersion = 1,
    /// A key of the configuration has an unsupported value; the message has both.
    UnsupportedField = 2,
    /// The container is unknown, and the runtime need not clean up after it.
    UnknownContainer = 3,
    /// An environment variable is missing or invalid; the message names it.
    InvalidEnvironment = 4,
    /// A read or write failed.
    Io = 5,
    /// Input is not JSON, or has a key of another type.
    Decode = 6,
    /// The configuration has an invalid value.
    InvalidConfig = 7,
    /// Transient: the runtime should retry later.
    TryAgainLater = 11,
    /// STATUS: no container can be attached.
    NotAvailable = 50,
    /// STATUS: no container can be attached, and attached ones may have lost connectivity.
    LimitedConnectivity = 51,
    /// A bug in antrea-agent or antrea-cni.
    Internal = 100,
    /// An address could not be allocated or released.
    Ipam = 101,
    /// An interface, its flows or its routes could not be created or removed.
    Interface = 102,
    /// CHECK: the attachment differs from the result of ADD.
    Check = 103,
    /// Plugin and agent do not understand each other, perhaps because their versions differ.
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

    /// The number in the JSON error.
    pub const fn number(self) -> u32 {
        self as u32
    }

    /// The code with a number; [`Code::Internal`] for an unknown number.
    pub fn of(number: u32) -> Self {
        Self::ALL.into_iter().find(|code| code.number() == number).unwrap_or(Self::Internal)
    }
}

/// A failed call: a code for the runtime, and a message and details for an operator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Error {
    /// Code for the runtime.
    pub code: Code,
    /// The failure, in one line.
    pub message: String,
    /// Cause and fix; may be empty.
    pub details: String,
}

impl Error {
    /// Creates an error without details.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: String::new() }
    }

    /// Creates a transient error: the runtime should retry; `details` say where to look.
    pub fn try_again(message: impl Into<String>, details: impl Into<String>) -> Self {
        Self::new(Code::TryAgainLater, message).with_details(details)
    }

    /// Adds details to the error.
    #[must_use]
    pub fn with_details(mut self, details: impl Into<String>) -> Self {
        self.details = details.into();
        self
    }

    /// The JSON that a plugin prints.
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
    fn every_code_is_found_by_its_number_and_unknown_numbers_are_internal() {
        for code in Code::ALL {
            assert_eq!(Code::of(code.number()), code);
        }
        assert_eq!(Code::of(8), Code::Internal);
    }

    #[test]
    fn details_are_printed_if_there_are_any() {
        let error = Error::new(Code::Io, "no");
        assert!(!error.to_json(Version::V1_0_0).contains("details"));
        assert!(error.with_details("why").to_json(Version::V1_0_0).contains(r#""details": "why""#));
    }
}
