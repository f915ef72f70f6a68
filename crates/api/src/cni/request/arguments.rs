//! `CNI_ARGS`: the Pod, as container runtimes describe it.

use super::wrong;
use crate::cni::{Error, Invalid};

const VARIABLE: &str = "CNI_ARGS";

/// The keys of `CNI_ARGS` that have an effect.
#[derive(Default, Debug)]
pub(super) struct Arguments {
    pub(super) pod_namespace: Option<String>,
    pub(super) pod_name: Option<String>,
    pub(super) pod_uid: Option<String>,
}

impl Arguments {
    /// Parses `KEY=VALUE;KEY=VALUE`. An unknown key is an error, unless `IgnoreUnknown` is set.
    pub(super) fn read(text: &str) -> Result<Self, Error> {
        let mut arguments = Self::default();
        let mut unknown = None;
        let mut ignore_unknown = false;
        for pair in text.split(';').filter(|pair| !pair.is_empty()) {
            let Some((key, value)) = pair.split_once('=') else {
                return Err(wrong(VARIABLE, &Invalid::new(pair, "is not KEY=VALUE; pairs are separated by ';'")));
            };
            let known = || Some(value.to_owned()).filter(|value| !value.is_empty());
            match key {
                "K8S_POD_NAMESPACE" => arguments.pod_namespace = known(),
                "K8S_POD_NAME" => arguments.pod_name = known(),
                "K8S_POD_UID" => arguments.pod_uid = known(),
                // The same as CNI_CONTAINERID.
                "K8S_POD_INFRA_CONTAINER_ID" => {}
                "IgnoreUnknown" => ignore_unknown = boolean(value)?,
                _ => unknown = unknown.or(Some(key)),
            }
        }
        match unknown {
            Some(key) if !ignore_unknown => {
                let problem = "is an unknown key; set IgnoreUnknown=1 to ignore it";
                Err(wrong(VARIABLE, &Invalid::new(key, problem)))
            }
            _ => Ok(arguments),
        }
    }
}

fn boolean(value: &str) -> Result<bool, Error> {
    match value.to_ascii_lowercase().as_str() {
        "1" | "true" => Ok(true),
        "0" | "false" => Ok(false),
        _ => Err(wrong(VARIABLE, &Invalid::new(value, "is not a value of IgnoreUnknown: 1, true, 0 or false"))),
    }
}
