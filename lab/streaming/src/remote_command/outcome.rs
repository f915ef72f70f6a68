//! The end of a command, as a client expects it.

use serde_json::{Value, json};

/// How a command ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The command ran, and ended with this exit code.
    Exited(u8),
    /// The command could not be run, with the reason.
    Failed(String),
}

impl Outcome {
    /// The `Status` that the client receives in the error stream.
    pub(super) fn status(&self) -> Value {
        match self {
            Self::Exited(0) => json!({"metadata": {}, "status": "Success"}),
            Self::Exited(code) => json!({
                "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
                "message": format!("command terminated with non-zero exit code: exit status {code}"),
                "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
            }),
            Self::Failed(why) => json!({
                "metadata": {}, "status": "Failure", "reason": "InternalError", "code": 500,
                "message": format!("error executing command in container: {why}"),
            }),
        }
    }
}
