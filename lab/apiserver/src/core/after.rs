//! Side effects of a write that are done before its response, so that the client's next request finds them done.

use serde_json::{Value, json};

use super::{Core, Write};
use crate::custom;
use crate::resources::Resource;
use crate::value::{at, set, text};

impl Core {
    /// Runs the side effects after an object was written or removed.
    pub(super) fn after(&self, resource: &Resource, object: Option<&Value>) {
        match (resource.group.as_str(), resource.kind.as_str(), object) {
            ("apiextensions.k8s.io", "CustomResourceDefinition", object) => {
                self.refresh();
                self.register();
                if let Some(definition) = object {
                    self.establish(resource, definition);
                }
            }
            ("", "Namespace", Some(namespace)) if text(namespace, "status.phase") == "Active" => {
                self.create_namespace_defaults(text(namespace, "metadata.name"));
            }
            _ => {}
        }
    }

    /// Sets the conditions of an accepted CustomResourceDefinition.
    fn establish(&self, resource: &Resource, definition: &Value) {
        if custom::status(definition) == *at(definition, "status") {
            return;
        }
        let write = Write::by("kube-apiserver").status();
        // A concurrent change of the definition runs this again.
        let _ = self.modify(resource, "", text(definition, "metadata.name"), &write, true, |old| {
            let mut new = old.clone();
            set(&mut new, "status", custom::status(old));
            Ok(new)
        });
    }

    /// Creates the default ServiceAccount and the CA ConfigMap of a namespace.
    fn create_namespace_defaults(&self, namespace: &str) {
        let (Ok(accounts), Ok(maps)) = (self.builtin("", "serviceaccounts"), self.builtin("", "configmaps")) else {
            return;
        };
        if self.get(&accounts, namespace, "default").is_err() {
            let account = json!({"metadata": {"name": "default"}});
            // It may exist already.
            let _ = self.create(&accounts, namespace, account, &Write::by("kube-controller-manager"));
        }
        if self.get(&maps, namespace, "kube-root-ca.crt").is_err() {
            let note = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as \
                the internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of \
                Kubernetes clusters.";
            let map = json!({
                "metadata": {"name": "kube-root-ca.crt", "annotations": {"kubernetes.io/description": note}},
                "data": {"ca.crt": self.ca_pem},
            });
            let _ = self.create(&maps, namespace, map, &Write::by("kube-controller-manager"));
        }
    }
}
