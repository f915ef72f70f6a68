//! Results as JSON: our own, in every version, and those of other plugins.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Attachment, Code, Dns, Error, Interface, Ip, Route, Version};

/// The result of ADD, as JSON.
pub(super) fn added(attachment: &Attachment, version: Version) -> String {
    json(&Document::of(attachment, version))
}

/// The reply to VERSION; `asked` is the version of the request, supported or not.
pub fn versions(asked: &str) -> String {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Versions<'a> {
        cni_version: &'a str,
        supported_versions: [&'static str; Version::ALL.len()],
    }
    json(&Versions { cni_version: asked, supported_versions: Version::ALL.map(Version::as_str) })
}

/// Reads the result of any plugin, in any version; `key` is where it was found.
pub(super) fn read(key: &str, value: Value) -> Result<Attachment, Error> {
    // Deserializing into the structure at once would accept a list too.
    let object: serde_json::Map<String, Value> = typed(key, value)?;
    typed::<Document>(key, Value::Object(object)).map(Document::into_attachment)
}

/// Deserializes a part of the configuration; an error names the key.
pub(super) fn typed<T: for<'de> Deserialize<'de>>(key: &str, value: Value) -> Result<T, Error> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path().to_string();
        let key = [key, path.trim_start_matches('.')].into_iter().filter(|part| !part.is_empty() && *part != ".");
        let key = key.collect::<Vec<_>>().join(".");
        let what = if key.is_empty() { String::new() } else { format!("{key}: ") };
        Error::new(Code::Decode, "cannot read the network configuration")
            .with_details(format!("{what}{}", error.into_inner()))
    })
}

/// Indented, because operators read it too.
pub(super) fn json(value: &impl Serialize) -> String {
    serde_json::to_string_pretty(value)
        .unwrap_or_else(|error| format!(r#"{{"code": 100, "msg": "cannot print: {error}"}}"#))
}

/// A result. Fields that the version does not have are left out; unknown fields of other plugins are ignored.
#[derive(Serialize, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Document {
    #[serde(skip_serializing_if = "Option::is_none")]
    cni_version: Option<String>,
    #[serde(deserialize_with = "or_nothing")]
    interfaces: Vec<InterfaceDocument>,
    #[serde(deserialize_with = "or_nothing")]
    ips: Vec<IpDocument>,
    #[serde(deserialize_with = "or_nothing", skip_serializing_if = "Vec::is_empty")]
    routes: Vec<RouteDocument>,
    #[serde(deserialize_with = "or_nothing")]
    dns: DnsDocument,
}

#[derive(Serialize, Deserialize)]
struct InterfaceDocument {
    name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    mac: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    sandbox: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mtu: Option<u32>,
}

#[derive(Serialize, Deserialize)]
struct IpDocument {
    /// `"4"` or `"6"`, before 1.0.0; on input, the address decides.
    #[serde(default, skip_deserializing, skip_serializing_if = "Option::is_none")]
    version: Option<&'static str>,
    #[serde(with = "text")]
    address: IpNet,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "gateway")]
    gateway: Option<IpAddr>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    interface: Option<u32>,
}

#[derive(Serialize, Deserialize)]
struct RouteDocument {
    #[serde(with = "text")]
    dst: IpNet,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "gateway")]
    gw: Option<IpAddr>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mtu: Option<u32>,
}

/// Name servers, as in results and configurations.
#[derive(Serialize, Deserialize, Clone, Default)]
#[serde(default)]
pub(super) struct DnsDocument {
    #[serde(deserialize_with = "or_nothing", skip_serializing_if = "Vec::is_empty")]
    nameservers: Vec<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    domain: String,
    #[serde(deserialize_with = "or_nothing", skip_serializing_if = "Vec::is_empty")]
    search: Vec<String>,
    #[serde(deserialize_with = "or_nothing", skip_serializing_if = "Vec::is_empty")]
    options: Vec<String>,
}

impl Document {
    fn of(attachment: &Attachment, version: Version) -> Self {
        let with_mtu = version >= Version::V1_1_0;
        let with_family = version < Version::V1_0_0;
        let interface = |interface: &Interface| InterfaceDocument {
            name: interface.name.clone(),
            mac: interface.mac.clone(),
            sandbox: interface.sandbox.clone(),
            mtu: interface.mtu.filter(|_| with_mtu),
        };
        let ip = |ip: &Ip| IpDocument {
            version: with_family.then_some(if ip.address.addr().is_ipv4() { "4" } else { "6" }),
            address: ip.address,
            gateway: ip.gateway,
            interface: ip.interface,
        };
        let route = |route: &Route| RouteDocument {
            dst: route.destination,
            gw: route.gateway,
            mtu: route.mtu.filter(|_| with_mtu),
        };
        Self {
            cni_version: Some(version.to_string()),
            interfaces: attachment.interfaces.iter().map(interface).collect(),
            ips: attachment.ips.iter().map(ip).collect(),
            routes: attachment.routes.iter().map(route).collect(),
            dns: DnsDocument::of(&attachment.dns),
        }
    }

    fn into_attachment(self) -> Attachment {
        let interface =
            |it: InterfaceDocument| Interface { name: it.name, mac: it.mac, sandbox: it.sandbox, mtu: it.mtu };
        let ip = |it: IpDocument| Ip { address: it.address, gateway: it.gateway, interface: it.interface };
        let route = |it: RouteDocument| Route { destination: it.dst, gateway: it.gw, mtu: it.mtu };
        Attachment {
            interfaces: self.interfaces.into_iter().map(interface).collect(),
            ips: self.ips.into_iter().map(ip).collect(),
            routes: self.routes.into_iter().map(route).collect(),
            dns: self.dns.into_dns(),
        }
    }
}

impl DnsDocument {
    fn of(dns: &Dns) -> Self {
        let Dns { nameservers, domain, search, options } = dns.clone();
        Self { nameservers, domain, search, options }
    }

    pub(super) fn into_dns(self) -> Dns {
        let Self { nameservers, domain, search, options } = self;
        Dns { nameservers, domain, search, options }
    }
}

/// Plugins in Go write `null` for an empty list.
pub(super) fn or_nothing<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// Plugins in Go write an empty string for a missing address.
fn gateway<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<IpAddr>, D::Error> {
    match Option::<String>::deserialize(deserializer)?.as_deref() {
        None | Some("") => Ok(None),
        Some(text) => {
            let bad = |_| serde::de::Error::custom(format!("`{text}` is not an IP address"));
            text.parse().map(Some).map_err(bad)
        }
    }
}

/// Serializes a network as text.
mod text {
    use ipnet::IpNet;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(net: &IpNet, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(net)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<IpNet, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bad = |_| {
            serde::de::Error::custom(format!("`{text}` is not an address with a prefix length, such as 10.0.0.4/24"))
        };
        text.parse().map_err(bad)
    }
}

#[cfg(test)]
mod tests;
