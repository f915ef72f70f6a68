//! Parses ClusterGroups and Groups, and resolves their children.

use selector::Selector;
use types::antrea::Group;
use types::control::IpBlock;
use types::{InvalidField, ObjectName};

use super::{Problems, Scope, Selected};

const EMPTY: &str = "the group selects nothing";

/// A parsed group. One that is invalid selects nothing.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct GroupReading {
    pub(crate) selected: Option<Selected>,
    pub(crate) blocks: Vec<IpBlock>,
    pub(crate) children: Vec<ObjectName>,
    pub(crate) problems: Vec<InvalidField>,
}

impl GroupReading {
    /// Parses a group; `name` is its name, without namespace for a ClusterGroup.
    pub(crate) fn new(name: &ObjectName, group: &Group) -> Self {
        let spec = &group.spec;
        let mut problems = Problems::new(kind(name), name);
        let mut reading = Self::default();
        let mut is_valid =
            problems
                .has_no_unknown(&spec.unknown, "is an unknown field; the group selects nothing", || "spec".to_owned());
        for (is_set, field) in [
            (spec.external_entity_selector.is_some(), "externalEntitySelector"),
            (spec.node_selector.is_some(), "nodeSelector"),
            (spec.service_reference.is_some(), "serviceReference"),
        ] {
            if is_set {
                problems.report(format!("spec.{field}"), format!("is not supported yet; {EMPTY}"));
                is_valid = false;
            }
        }
        let selectors = (spec.pod_selector.as_ref(), spec.namespace_selector.as_ref());
        let has_selector = selectors != (None, None);
        let contents = [has_selector, !spec.ip_blocks.is_empty(), !spec.child_groups.is_empty()];
        if contents.into_iter().filter(|is_set| *is_set).count() > 1 {
            let problem = format!("needs only one of selectors, ipBlocks and childGroups; {EMPTY}");
            problems.report("spec".to_owned(), problem);
            is_valid = false;
        }
        if is_valid {
            if has_selector {
                reading.selected = problems.selected(selectors, alone(&name.namespace), || "spec".to_owned());
            }
            for (n, block) in spec.ip_blocks.iter().enumerate() {
                let field = || format!("spec.ipBlocks[{n}]");
                if problems.has_no_unknown(&block.unknown, "is an unknown field; the block is left out", field) {
                    reading.blocks.extend(problems.block(block, field));
                }
            }
            let child = |child: &String| ObjectName { namespace: name.namespace.clone(), name: child.clone() };
            reading.children = spec.child_groups.iter().map(child).collect();
        }
        reading.problems = problems.found;
        reading
    }
}

/// The scope of a Pod selector without a namespace selector, in an object of a namespace or of the cluster.
pub(super) fn alone(namespace: &str) -> Scope {
    if namespace.is_empty() { Scope::Namespaces(Selector::default()) } else { Scope::Own }
}

/// The kind of a group with this name.
fn kind(name: &ObjectName) -> &'static str {
    if name.namespace.is_empty() { "ClusterGroup" } else { "Group" }
}

/// What a group and its children select.
#[derive(Default)]
pub(crate) struct Flattened<'a> {
    pub(crate) selected: Vec<&'a Selected>,
    pub(crate) blocks: Vec<&'a IpBlock>,
    /// The groups that the result depends on; they may be missing.
    pub(crate) groups: Vec<&'a ObjectName>,
    /// Missing groups, and children with children.
    pub(crate) problems: Vec<String>,
}

impl Flattened<'_> {
    /// The problems of the group as appliedTo of a policy in a namespace, or of the cluster if it is empty.
    pub(crate) fn problems_applied_to(&self, namespace: &str) -> Vec<String> {
        let mut problems = self.problems.clone();
        if !self.blocks.is_empty() {
            problems.push("the group has ipBlocks, which a policy cannot apply to; they are ignored".to_owned());
        }
        if self.selected_by(namespace).count() < self.selected.len() {
            let problem = "the group selects Namespaces; a policy of a namespace applies to no Pods of such a group";
            problems.push(problem.to_owned());
        }
        problems
    }

    /// The selected Pods that a policy in a namespace, or of the cluster if it is empty, can apply to.
    pub(crate) fn selected_by(&self, namespace: &str) -> impl Iterator<Item = &Selected> {
        let is_cluster = namespace.is_empty();
        self.selected.iter().copied().filter(move |it| is_cluster || it.scope == Scope::Own)
    }
}

/// Resolves a group and its children; a child has no children itself.
pub(crate) fn flatten<'a>(
    name: &'a ObjectName,
    find: impl Fn(&ObjectName) -> Option<&'a GroupReading>,
) -> Flattened<'a> {
    let mut flat = Flattened { groups: vec![name], ..Flattened::default() };
    let missing = |name| format!("{} {name} does not exist; it selects nothing until it is created", kind(name));
    let Some(group) = find(name) else {
        flat.problems.push(missing(name));
        return flat;
    };
    flat.selected.extend(&group.selected);
    flat.blocks.extend(&group.blocks);
    flat.groups.extend(&group.children);
    for child in &group.children {
        match find(child) {
            None => flat.problems.push(missing(child)),
            Some(found) if !found.children.is_empty() => flat.problems.push(format!(
                "{} {child} is a child of {name} and has childGroups itself; it selects nothing there",
                kind(child)
            )),
            Some(found) => {
                flat.selected.extend(&found.selected);
                flat.blocks.extend(&found.blocks);
            }
        }
    }
    flat
}
