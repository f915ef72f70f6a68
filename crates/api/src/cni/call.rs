//! The parameters of calls: container, interface, Pod, network.

use std::fmt;

use super::Attachment;

/// Limit of container ids and network names. Runtimes use 64 characters; both become parts of file names.
const MAX_ID: usize = 255;
/// The kernel's limit for interface names.
const MAX_IFNAME: usize = 15;
/// The kernel's limit for paths.
const MAX_PATH: usize = 4095;
/// Kubernetes' limits for names of Pods and Namespaces.
const MAX_POD: usize = 253;
const MAX_NAMESPACE: usize = 63;
/// A UUID has 36 characters, the hash of a static Pod 32.
const MAX_UID: usize = 128;
/// Length at which an invalid value is cut in an error.
const MAX_QUOTED: usize = 64;

/// An invalid value: the value, cut if it is long, and what is allowed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{value} {problem}")]
pub struct Invalid {
    value: String,
    problem: String,
}

impl Invalid {
    pub(super) fn new(value: &str, problem: impl Into<String>) -> Self {
        Self { value: quoted(value), problem: problem.into() }
    }
}

/// The id of a container that the runtime assigned (in Kubernetes, of the Pod's sandbox).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ContainerId(String);

/// The name of an interface in a container.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct InterfaceName(String);

/// One interface of one container: a container may be attached more than once, by interfaces of different names.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AttachmentId {
    /// Id of the container, which `CNI_CONTAINERID` states.
    pub container: ContainerId,
    /// Interface in the container, from `CNI_IFNAME`.
    pub ifname: InterfaceName,
}

/// The Pod that a container belongs to.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Pod {
    /// Namespace of the Pod, from `K8S_POD_NAMESPACE`.
    pub namespace: String,
    /// Name of the Pod, from `K8S_POD_NAME`.
    pub name: String,
    /// UID, from `K8S_POD_UID`; empty if the runtime does not set it.
    pub uid: String,
}

/// Parameters of ADD and CHECK.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Call {
    /// The attachment to create or to check.
    pub id: AttachmentId,
    /// Name of the network, from the configuration.
    pub network: String,
    /// Path of the container's network namespace, from `CNI_NETNS`.
    pub netns: String,
    /// The Pod that the container belongs to.
    pub pod: Pod,
    /// MTU of the container's interface, if the configuration has one.
    pub mtu: Option<u32>,
    /// ADD in a chain: the result of the previous plugin, which the result of this one must contain.
    pub previous: Option<Attachment>,
}

/// Parameters of DEL, which succeeds with as much as is still there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Release {
    /// The attachment to remove.
    pub id: AttachmentId,
    /// Path of the container's network namespace, if it still exists.
    pub netns: Option<String>,
    /// The Pod, if the runtime names it.
    pub pod: Option<Pod>,
}

impl ContainerId {
    /// Validates an id by the rules of the CNI specification.
    pub fn new(id: impl Into<String>) -> Result<Self, Invalid> {
        let id = id.into();
        identifier(&id)?;
        Ok(Self(id))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl InterfaceName {
    /// Validates a name by the rules of the kernel.
    pub fn new(name: impl Into<String>) -> Result<Self, Invalid> {
        let name = name.into();
        let problem = match name.as_str() {
            "" => "is empty".into(),
            "." | ".." => "is not the name of an interface".into(),
            long if long.len() > MAX_IFNAME => too_long(long, MAX_IFNAME),
            text if text.contains(|c: char| matches!(c, '/' | ':') || c.is_whitespace() || c.is_control()) => {
                "has a character that the kernel does not allow: a slash, a colon, a space or a control character"
                    .into()
            }
            _ => return Ok(Self(name)),
        };
        Err(Invalid::new(&name, problem))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Pod {
    /// Validates namespace and name by the rules of Kubernetes.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>, uid: impl Into<String>) -> Result<Self, Invalid> {
        let pod = Self { namespace: namespace.into(), name: name.into(), uid: uid.into() };
        kubernetes_name(&pod.namespace, "a Namespace", MAX_NAMESPACE, "")?;
        kubernetes_name(&pod.name, "a Pod", MAX_POD, ".")?;
        if pod.uid.len() > MAX_UID {
            return Err(Invalid::new(&pod.uid, too_long(&pod.uid, MAX_UID)));
        }
        if pod.uid.contains(|c: char| !c.is_ascii_graphic()) {
            return Err(Invalid::new(&pod.uid, "is not a UID: it has a character that is not printable ASCII"));
        }
        Ok(pod)
    }
}

impl fmt::Display for ContainerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for InterfaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for AttachmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.container, self.ifname)
    }
}

impl fmt::Display for Pod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Validates a container id or a network name by the rules of the CNI specification.
pub(super) fn identifier(text: &str) -> Result<(), Invalid> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    let problem = if text.is_empty() {
        "is empty".into()
    } else if text.len() > MAX_ID {
        too_long(text, MAX_ID)
    } else if !text.starts_with(|c: char| c.is_ascii_alphanumeric()) || !text.chars().all(allowed) {
        "must start with a letter or digit, and have only letters, digits, '_', '.' and '-'".into()
    } else {
        return Ok(());
    };
    Err(Invalid::new(text, problem))
}

/// Validates the path of a network namespace.
pub(super) fn namespace_path(path: &str) -> Result<(), Invalid> {
    let problem = if path.len() > MAX_PATH {
        too_long(path, MAX_PATH)
    } else if !path.starts_with('/') || path.contains('\0') {
        "is not an absolute path, such as /var/run/netns/blue".into()
    } else {
        return Ok(());
    };
    Err(Invalid::new(path, problem))
}

fn kubernetes_name(text: &str, what: &str, longest: usize, more: &str) -> Result<(), Invalid> {
    let edge = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let inner = |c: char| edge(c) || c == '-' || more.contains(c);
    let problem = if text.is_empty() {
        format!("is not a valid name of {what}: it is empty")
    } else if text.len() > longest {
        too_long(text, longest)
    } else if !text.starts_with(edge) || !text.ends_with(edge) || !text.chars().all(inner) {
        format!(
            "is not a valid name of {what}: lower-case letters, digits and '-'{} only",
            if more.is_empty() { "" } else { ", '.'" }
        )
    } else {
        return Ok(());
    };
    Err(Invalid::new(text, problem))
}

fn too_long(text: &str, longest: usize) -> String {
    format!("is too long: {} bytes, at most {longest} are allowed", text.len())
}

/// Quotes a value for an error message, and cuts it if it is long.
fn quoted(value: &str) -> String {
    let cut: String = value.chars().take(MAX_QUOTED).collect();
    let more = if cut.len() < value.len() { "..." } else { "" };
    format!("`{}{more}`", cut.escape_debug())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_of_300_characters_is_rejected_and_cut_in_the_error() {
        let error = ContainerId::new("a".repeat(300)).unwrap_err().to_string();
        assert_eq!(error, format!("`{}...` is too long: 300 bytes, at most 255 are allowed", "a".repeat(64)));
        ContainerId::new("a".repeat(255)).unwrap();
    }

    #[test]
    fn an_id_cannot_contain_path_separators_or_newlines() {
        for bad in ["", "..", "../x", "a/b", "-a", "a b", "a\n", "é"] {
            ContainerId::new(bad).unwrap_err();
        }
        for good in ["a", "0", "a_b.c-D"] {
            assert_eq!(ContainerId::new(good).unwrap().as_str(), good);
        }
        assert_eq!(ContainerId::new("a\n").unwrap_err().to_string().lines().count(), 1);
    }

    #[test]
    fn interface_names_are_those_that_the_kernel_accepts() {
        for bad in ["", ".", "..", "a/b", "a:1", "a b", "a\tb", "sixteencharacter"] {
            InterfaceName::new(bad).unwrap_err();
        }
        for good in ["eth0", "fifteencharacte", "net1.100"] {
            InterfaceName::new(good).unwrap();
        }
    }

    #[test]
    fn pod_names_are_those_that_kubernetes_accepts() {
        Pod::new("kube-system", "coredns-7d8.x", "").unwrap();
        Pod::new("a", "b", "0f3c6f0e-8c7c-4f6b-9f6f-0f3c6f0e8c7c").unwrap();
        for (namespace, name, uid) in [
            ("", "b", ""),
            ("a", "", ""),
            ("a.b", "b", ""),
            ("A", "b", ""),
            ("a", "-b", ""),
            ("a", "b;c", ""),
            ("a", "b", "x\ny"),
        ] {
            Pod::new(namespace, name, uid).unwrap_err();
        }
        let long = Pod::new("a", "b".repeat(300), "").unwrap_err().to_string();
        assert!(long.ends_with("is too long: 300 bytes, at most 253 are allowed"), "{long}");
    }
}
