//! APIServices, as the aggregator reads them.

use serde::Deserialize;

use super::{Condition, Metadata, nullable};

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ApiService {
    pub(crate) metadata: Metadata,
    pub(crate) spec: ApiServiceSpec,
    pub(crate) status: ApiServiceStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ApiServiceSpec {
    #[serde(deserialize_with = "nullable")]
    pub(crate) group: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) version: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) ca_bundle: String,
    #[serde(rename = "insecureSkipTLSVerify", deserialize_with = "nullable")]
    pub(crate) insecure_skip_tls_verify: bool,
    /// The backend; `None` if the group is served locally.
    pub(crate) service: Option<ServiceReference>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ServiceReference {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ApiServiceStatus {
    #[serde(deserialize_with = "nullable")]
    pub(crate) conditions: Vec<Condition>,
}
