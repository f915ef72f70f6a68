//! What a runtime wants to be done with a container.

use std::fmt;

use super::Attachment;

/// The longest id of a container, and name of a network. Runtimes use 64 characters; both become parts of file names.
const LONGEST_ID: usize = 255;
/// The kernel's limit for the name of an interface.
const LONGEST_IFNAME: usize = 15;
/// The kernel's limit for a path.
const LONGEST_PATH: usize = 4095;
/// Kubernetes' limits for the name of a Pod and of a Namespace.
const LONGEST_POD: usize = 253;
const LONGEST_NAMESPACE: usize = 63;
/// A UUID has 36 characters, the hash of a static Pod 32.
const LONGEST_UID: usize = 128;
/// How much of a wrong value is shown.
const SHOWN: usize = 64;

/// A value that cannot be what it is meant to be: the value, as far as it is worth showing, and what is allowed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{value} {problem}")]
pub struct Invalid {
    value: String,
    problem: String,
}

impl Invalid {
    pub(super) fn new(value: &str, problem: impl Into<String>) -> Self {
        Self { value: shown(value), problem: problem.into() }
    }
}

/// The id that a runtime gave to a container (to a Pod's sandbox, in Kubernetes).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ContainerId(String);

/// The name of an interface in a container.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct InterfaceName(String);

/// One container in one network: a container may be attached more than once, by interfaces of different names.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AttachmentId {
    /// The container.
    pub container: ContainerId,
    /// Its interface.
    pub ifname: InterfaceName,
}

/// The Pod that a container belongs to.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Pod {
    /// Its Namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID; empty if the runtime does not tell.
    pub uid: String,
}

/// What is asked of ADD and CHECK.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Call {
    /// What is attached.
    pub id: AttachmentId,
    /// The name of the network, from the configuration.
    pub network: String,
    /// The path of the container's network namespace.
    pub netns: String,
    /// The Pod.
    pub pod: Pod,
    /// The MTU that the configuration asks for.
    pub mtu: Option<u32>,
    /// ADD: what the plugin before in the chain did, if this one is not the first; what is returned must contain it.
    pub previous: Option<Attachment>,
}

/// What is asked of DEL, which works with whatever is still there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Release {
    /// What is detached.
    pub id: AttachmentId,
    /// The path of the container's network namespace, if the runtime still has it.
    pub netns: Option<String>,
    /// The Pod, if the runtime tells.
    pub pod: Option<Pod>,
}

impl ContainerId {
    /// Checks what the specification says of ids.
    pub fn new(id: impl Into<String>) -> Result<Self, Invalid> {
        let id = id.into();
        identifier(&id)?;
        Ok(Self(id))
    }

    /// The id.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl InterfaceName {
    /// Checks what the kernel accepts.
    pub fn new(name: impl Into<String>) -> Result<Self, Invalid> {
        let name = name.into();
        let problem = match name.as_str() {
            "" => "is empty".into(),
            "." | ".." => "is not the name of an interface".into(),
            long if long.len() > LONGEST_IFNAME => too_long(long, LONGEST_IFNAME),
            text if text.contains(|c: char| matches!(c, '/' | ':') || c.is_whitespace() || c.is_control()) => {
                "has a character that the kernel does not allow: a slash, a colon, a space or a control character"
                    .into()
            }
            _ => return Ok(Self(name)),
        };
        Err(Invalid::new(&name, problem))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Pod {
    /// Checks what Kubernetes says of names.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>, uid: impl Into<String>) -> Result<Self, Invalid> {
        let pod = Self { namespace: namespace.into(), name: name.into(), uid: uid.into() };
        kubernetes_name(&pod.namespace, "a Namespace", LONGEST_NAMESPACE, "")?;
        kubernetes_name(&pod.name, "a Pod", LONGEST_POD, ".")?;
        if pod.uid.len() > LONGEST_UID {
            return Err(Invalid::new(&pod.uid, too_long(&pod.uid, LONGEST_UID)));
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

/// What the specification says of the id of a container and of the name of a network.
pub(super) fn identifier(text: &str) -> Result<(), Invalid> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    let problem = if text.is_empty() {
        "is empty".into()
    } else if text.len() > LONGEST_ID {
        too_long(text, LONGEST_ID)
    } else if !text.starts_with(|c: char| c.is_ascii_alphanumeric()) || !text.chars().all(allowed) {
        "must start with a letter or digit, and have only letters, digits, '_', '.' and '-'".into()
    } else {
        return Ok(());
    };
    Err(Invalid::new(text, problem))
}

/// The path of a network namespace.
pub(super) fn namespace_path(path: &str) -> Result<(), Invalid> {
    let problem = if path.len() > LONGEST_PATH {
        too_long(path, LONGEST_PATH)
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
        format!("is no name of {what}: it is empty")
    } else if text.len() > longest {
        too_long(text, longest)
    } else if !text.starts_with(edge) || !text.ends_with(edge) || !text.chars().all(inner) {
        format!(
            "is no name of {what}: lower-case letters, digits and '-'{} only",
            if more.is_empty() { "" } else { ", '.'" }
        )
    } else {
        return Ok(());
    };
    Err(Invalid::new(text, problem))
}

fn too_long(text: &str, longest: usize) -> String {
    format!("is too long: {} bytes, and {longest} are the limit", text.len())
}

/// A value for a message: quoted, and cut where it goes on for ever.
fn shown(value: &str) -> String {
    let cut: String = value.chars().take(SHOWN).collect();
    let more = if cut.len() < value.len() { "..." } else { "" };
    format!("`{}{more}`", cut.escape_debug())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_of_300_characters_is_refused_and_not_printed_whole() {
        let error = ContainerId::new("a".repeat(300)).unwrap_err().to_string();
        assert_eq!(error, format!("`{}...` is too long: 300 bytes, and 255 are the limit", "a".repeat(64)));
        ContainerId::new("a".repeat(255)).unwrap();
    }

    #[test]
    fn an_id_cannot_leave_a_directory_or_a_line() {
        for bad in ["", "..", "../x", "a/b", "-a", "a b", "a\n", "é"] {
            ContainerId::new(bad).unwrap_err();
        }
        for good in ["a", "0", "a_b.c-D"] {
            assert_eq!(ContainerId::new(good).unwrap().as_str(), good);
        }
        assert_eq!(ContainerId::new("a\n").unwrap_err().to_string().lines().count(), 1);
    }

    #[test]
    fn interfaces_have_names_that_the_kernel_takes() {
        for bad in ["", ".", "..", "a/b", "a:1", "a b", "a\tb", "sixteencharacter"] {
            InterfaceName::new(bad).unwrap_err();
        }
        for good in ["eth0", "fifteencharacte", "net1.100"] {
            InterfaceName::new(good).unwrap();
        }
    }

    #[test]
    fn pods_have_names_that_kubernetes_takes() {
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
        assert!(long.ends_with("is too long: 300 bytes, and 253 are the limit"), "{long}");
    }
}
