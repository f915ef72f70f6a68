//! The API without HTTP: what each verb does to the store.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use serde_json::Value;

use crate::allocate::Allocator;
use crate::auth::Signer;
use crate::failure::{Failure, Of};
use crate::resources::{QUESTIONS, ROWS, Resource};
use crate::store::{Shelves, Stored};

mod after;
mod body;
mod create;
mod delete;
mod list;
mod patch;
mod registered;
mod update;
pub(crate) use create::NOT_READY;
pub(crate) use delete::DeleteOptions;
use list::not_a_number;
pub(crate) use list::{ListOptions, Listed, revision};
pub(crate) use patch::PatchKind;
pub(crate) use registered::available;

/// What to do about fields that a type does not have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Strictness {
    Ignore,
    Warn,
    Strict,
}

/// As whom to write, and how.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    /// The field manager.
    pub(crate) manager: String,
    pub(crate) dry_run: bool,
    pub(crate) strictness: Strictness,
    /// Takes fields over from others, in an apply.
    pub(crate) force: bool,
    /// `status`, or nothing.
    pub(crate) subresource: String,
    /// What is said of fields that the client gave more than once.
    pub(crate) twice: Vec<String>,
}

impl Write {
    /// A write of a part of the server itself.
    pub(crate) fn by(manager: &str) -> Self {
        Self {
            manager: manager.to_owned(),
            dry_run: false,
            strictness: Strictness::Ignore,
            force: false,
            subresource: String::new(),
            twice: Vec::new(),
        }
    }

    pub(crate) fn status(mut self) -> Self {
        self.subresource = "status".to_owned();
        self
    }
}

/// What came of a write.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) object: Value,
    /// The object as it is kept now, if it is answered like that.
    pub(crate) kept: Option<Bytes>,
    pub(crate) created: bool,
    pub(crate) warnings: Vec<String>,
}

impl Written {
    fn new(resource: &Resource, object: Value, created: bool) -> Self {
        Self { warnings: (resource.rules.warnings)(&object), object, kept: None, created }
    }

    fn kept(mut self, resource: &Resource, stored: Stored) -> Self {
        self.kept = resource.as_kept().then_some(stored.bytes);
        self
    }

    /// With what was noticed before the object was looked at as a whole.
    fn warned(mut self, first: Vec<String>) -> Self {
        self.warnings.splice(0..0, first);
        self
    }
}

/// All resources there are, by group, version and plural name.
#[derive(Default)]
pub(crate) struct Registry {
    pub(crate) resources: BTreeMap<(String, String, String), Arc<Resource>>,
}

impl Registry {
    pub(crate) fn get(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.resources.get(&(group.to_owned(), version.to_owned(), plural.to_owned()))
    }

    /// Whether anything is served in a group.
    pub(crate) fn has_group(&self, group: &str) -> bool {
        self.resources.keys().any(|(of, ..)| of == group) || QUESTIONS.iter().any(|(of, ..)| *of == group)
    }

    /// The resource of a kind of object.
    pub(crate) fn of_kind(&self, api_version: &str, kind: &str) -> Option<&Arc<Resource>> {
        self.resources.values().find(|resource| resource.kind == kind && resource.api_version() == api_version)
    }
}

/// The server behind its rim.
pub(crate) struct Core {
    pub(crate) store: Shelves,
    pub(crate) allocator: Allocator,
    pub(crate) signer: Signer,
    pub(crate) ca_pem: String,
    registry: RwLock<Arc<Registry>>,
}

impl Core {
    pub(crate) fn new(store: Shelves, allocator: Allocator, signer: Signer, ca_pem: String) -> Self {
        let core = Self { store, allocator, signer, ca_pem, registry: RwLock::default() };
        core.refresh();
        core
    }

    pub(crate) fn registry(&self) -> Arc<Registry> {
        self.registry.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the definitions of custom resources again.
    pub(crate) fn refresh(&self) {
        let builtin = ROWS.iter().map(Resource::of);
        let definitions = self.store.list("apiextensions.k8s.io/customresourcedefinitions", "", "", None);
        let definitions = definitions.map(|page| page.objects).unwrap_or_default();
        let custom = definitions.iter().flat_map(|(_, definition)| crate::custom::resources(&definition.value()));
        let row = |resource: Resource| {
            ((resource.group.clone(), resource.version.clone(), resource.plural.clone()), Arc::new(resource))
        };
        let resources = custom.chain(builtin).map(row).collect();
        *self.registry.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(Registry { resources });
    }

    /// A resource of the built-in table.
    pub(crate) fn builtin(&self, group: &str, plural: &str) -> Result<Arc<Resource>, Failure> {
        self.registry().get(group, "v1", plural).cloned().ok_or_else(Failure::no_such_path)
    }

    pub(crate) fn get(&self, resource: &Resource, namespace: &str, name: &str) -> Result<Stored, Failure> {
        let stored = self.store.get(&resource.shelf, &resource.key(namespace, name));
        stored.ok_or_else(|| Failure::not_found(resource.id(), name))
    }

    /// An object of a built-in resource, if there is one.
    pub(crate) fn find(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Value> {
        let resource = self.builtin(group, plural).ok()?;
        self.get(&resource, namespace, name).ok().map(|stored| stored.value())
    }

    /// All objects of a built-in resource, in one namespace or in all.
    pub(crate) fn all(&self, group: &str, plural: &str, namespace: &str) -> Vec<Value> {
        let prefix = if namespace.is_empty() { String::new() } else { format!("{namespace}/") };
        let page = self.store.list(&crate::resources::shelf(group, plural), &prefix, "", None);
        page.map(|page| page.objects.iter().map(|(_, stored)| stored.value()).collect()).unwrap_or_default()
    }

    /// Things can be made in a namespace only while it is there to stay.
    fn check_namespace(&self, resource: &Resource, namespace: &str, name: &str) -> Result<(), Failure> {
        if !resource.namespaced {
            return Ok(());
        }
        let found = self.store.get("/namespaces", namespace);
        let found = found.ok_or_else(|| Failure::not_found(Of { group: "", resource: "namespaces" }, namespace))?;
        if crate::value::text(&found.value(), "status.phase") == "Terminating" {
            let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
            let failure = Failure::forbidden(resource.id(), name, &why);
            let message = format!("namespace {namespace} is being terminated");
            return Err(failure.with_cause("NamespaceTerminating", &message, "metadata.namespace"));
        }
        Ok(())
    }
}
