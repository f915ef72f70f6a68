//! Ids of groups, computed from what they select.

use std::fmt::Write;

use selector::Selector;
use types::ObjectName;
use types::control::GroupId;

/// The UUID namespace of Antrea's groups.
const NAMESPACE: [u8; 16] = 0xe4f2_4a48_ca1f_4d5b_819c_ea76_32b2_2115u128.to_be_bytes();

/// The id of the group of selected Pods in a namespace.
pub(crate) fn in_namespace(namespace: &str, pods: &Selector) -> GroupId {
    // Namespaces with names that Kubernetes rejects are quoted, so that no two groups have the same text.
    let is_plain = namespace.bytes().all(|c| c.is_ascii_alphanumeric() || b"-.".contains(&c));
    if is_plain {
        named(format_args!("namespace={namespace} And podSelector={pods}"))
    } else {
        named(format_args!("namespace={namespace:?} And podSelector={pods}"))
    }
}

/// The id of the group of selected Pods in selected namespaces.
pub(crate) fn in_namespaces(namespaces: &Selector, pods: &Selector) -> GroupId {
    named(format_args!("namespaceSelector={namespaces} And podSelector={pods}"))
}

/// The id of the group of one Pod.
pub(crate) fn of_pod(pod: &ObjectName) -> GroupId {
    named(format_args!("pod={pod}"))
}

/// A version 5 UUID: the first bytes of the SHA-1 of the text, with version and variant set.
fn named(text: std::fmt::Arguments<'_>) -> GroupId {
    struct Hash(sha1_smol::Sha1);
    impl Write for Hash {
        fn write_str(&mut self, text: &str) -> std::fmt::Result {
            self.0.update(text.as_bytes());
            Ok(())
        }
    }
    let mut hash = Hash(sha1_smol::Sha1::from(NAMESPACE));
    // Writing into a hash cannot fail.
    let _ = hash.write_fmt(text);
    let mut id = [0; 16];
    for (to, from) in id.iter_mut().zip(hash.0.digest().bytes()) {
        *to = from;
    }
    id[6] = id[6] & 0x0f | 0x50;
    id[8] = id[8] & 0x3f | 0x80;
    GroupId(id)
}

#[cfg(test)]
mod tests {
    use types::meta::LabelSelector;

    use super::*;

    #[test]
    fn names_are_those_of_any_other_implementation_of_uuids() {
        let web = [("app".to_owned(), "web".to_owned())].into();
        let web = Selector::new(&LabelSelector { match_labels: web, ..LabelSelector::default() }).unwrap();
        // By Python's uuid.uuid5(uuid.UUID("e4f24a48-..."), "namespace=x And podSelector=app=web"), and so on.
        assert_eq!(in_namespace("x", &web).to_string(), "fa87b857-fd7f-5408-b6f2-f591e4f91f2f");
        assert_eq!(in_namespaces(&Selector::default(), &web).to_string(), "fab99b8a-ba31-56ef-a534-5236903cdae2");
    }
}
