//! The API without HTTP: the verbs on the store.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use serde_json::Value;

use crate::allocate::Allocator;
use crate::auth::Signer;
use crate::failure::{Failure, Of};
use crate::objects::Kind;
use crate::resources::{QUESTIONS, ROWS, Resource};
use crate::store::{Store, Stored};

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

/// What to do with unknown and duplicate fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Strictness {
    Ignore,
    Warn,
    Strict,
}

/// Options of a write, and the writer.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    /// Name of the field manager.
    pub(crate) manager: String,
    pub(crate) dry_run: bool,
    pub(crate) strictness: Strictness,
    /// Whether an apply takes over fields of other managers.
    pub(crate) force: bool,
    /// `status`, or empty for the whole object.
    pub(crate) subresource: String,
    /// Messages about fields that the body has more than once.
    pub(crate) duplicates: Vec<String>,
}

impl Write {
    /// A write by a component of the server itself.
    pub(crate) fn by(manager: &str) -> Self {
        Self {
            manager: manager.to_owned(),
            dry_run: false,
            strictness: Strictness::Ignore,
            force: false,
            subresource: String::new(),
            duplicates: Vec::new(),
        }
    }

    pub(crate) fn status(mut self) -> Self {
        self.subresource = "status".to_owned();
        self
    }
}

/// The result of a write.
#[derive(Debug)]
pub(crate) struct Written {
    pub(crate) object: Value,
    /// The stored bytes, if the response is exactly those.
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

    /// Prepends warnings from the decoding of the body.
    fn warned(mut self, first: Vec<String>) -> Self {
        self.warnings.splice(0..0, first);
        self
    }
}

/// All resources by group, version and plural name.
#[derive(Default)]
pub(crate) struct Registry {
    pub(crate) resources: BTreeMap<(String, String, String), Arc<Resource>>,
}

impl Registry {
    pub(crate) fn get(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.resources.get(&(group.to_owned(), version.to_owned(), plural.to_owned()))
    }

    /// Whether a resource is served in the group.
    pub(crate) fn has_group(&self, group: &str) -> bool {
        self.resources.keys().any(|(of, ..)| of == group) || QUESTIONS.iter().any(|(of, ..)| *of == group)
    }

    /// The resource of a kind.
    pub(crate) fn of_kind(&self, api_version: &str, kind: &str) -> Option<&Arc<Resource>> {
        self.resources.values().find(|resource| resource.kind == kind && resource.api_version() == api_version)
    }
}

/// The API without its HTTP side.
pub(crate) struct Core {
    pub(crate) store: Store,
    pub(crate) allocator: Allocator,
    pub(crate) signer: Signer,
    pub(crate) ca_pem: String,
    registry: RwLock<Arc<Registry>>,
}

impl Core {
    pub(crate) fn new(store: Store, allocator: Allocator, signer: Signer, ca_pem: String) -> Self {
        let core = Self { store, allocator, signer, ca_pem, registry: RwLock::default() };
        core.refresh();
        core
    }

    pub(crate) fn registry(&self) -> Arc<Registry> {
        self.registry.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the CustomResourceDefinitions again.
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

    /// A built-in resource by group and plural name.
    pub(crate) fn builtin(&self, group: &str, plural: &str) -> Result<Arc<Resource>, Failure> {
        self.registry().get(group, "v1", plural).cloned().ok_or_else(Failure::no_such_path)
    }

    pub(crate) fn get(&self, resource: &Resource, namespace: &str, name: &str) -> Result<Stored, Failure> {
        let stored = self.store.get(&resource.group_resource, &resource.key(namespace, name));
        stored.ok_or_else(|| Failure::not_found(resource.id(), name))
    }

    /// An object of a built-in resource.
    pub(crate) fn find(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Value> {
        let resource = self.builtin(group, plural).ok()?;
        self.get(&resource, namespace, name).ok().map(|stored| stored.value())
    }

    /// An object of a built-in kind.
    pub(crate) fn read<T: Kind>(&self, namespace: &str, name: &str) -> Option<T> {
        let resource = self.builtin(T::GROUP, T::PLURAL).ok()?;
        self.get(&resource, namespace, name).ok()?.read()
    }

    /// All objects of a built-in kind.
    pub(crate) fn read_all<T: Kind>(&self) -> Vec<T> {
        let page = self.store.list(&crate::resources::group_resource(T::GROUP, T::PLURAL), "", "", None);
        page.map(|page| page.objects.iter().filter_map(|(_, stored)| stored.read()).collect()).unwrap_or_default()
    }

    /// All objects of a built-in resource, in one namespace or in all.
    pub(crate) fn all(&self, group: &str, plural: &str, namespace: &str) -> Vec<Value> {
        let prefix = if namespace.is_empty() { String::new() } else { format!("{namespace}/") };
        let page = self.store.list(&crate::resources::group_resource(group, plural), &prefix, "", None);
        page.map(|page| page.objects.iter().map(|(_, stored)| stored.value()).collect()).unwrap_or_default()
    }

    /// Objects can be created in a namespace only while it exists and is not being terminated.
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
