//! The environment of a container: variables, volumes, host names.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1 as core;
use kube::api::{Api, PostParams};
use serde_json::Value;

use crate::container::Mount;
use crate::plan;

/// Directory where programs expect the ServiceAccount of their Pod.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Inputs that all containers of a Pod share.
#[derive(Clone)]
pub(crate) struct ContainerEnv {
    pub(crate) client: kube::Client,
    pub(crate) pod: core::Pod,
    /// A directory for the Pod's files, in memory.
    pub(crate) directory: PathBuf,
    pub(crate) addresses: Vec<String>,
    pub(crate) node_address: String,
    /// Host and port of the Kubernetes API.
    pub(crate) api: (String, String),
}

impl ContainerEnv {
    fn namespace(&self) -> &str {
        self.pod.metadata.namespace.as_deref().unwrap_or("default")
    }

    /// Host name of the Pod.
    pub(crate) fn hostname(&self) -> String {
        let spec = self.pod.spec.as_ref();
        let own = spec.and_then(|spec| spec.hostname.clone()).filter(|name| !name.is_empty());
        let mut name = own.or_else(|| self.pod.metadata.name.clone()).unwrap_or_default();
        name.truncate(63);
        name
    }

    /// The environment variables of a container, with references resolved.
    pub(crate) async fn env(&self, container: &core::Container) -> Result<Vec<(String, String)>> {
        let mut env = BTreeMap::from([
            ("PATH".to_owned(), "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned()),
            ("HOSTNAME".to_owned(), self.hostname()),
            ("KUBERNETES_SERVICE_HOST".to_owned(), self.api.0.clone()),
            ("KUBERNETES_SERVICE_PORT".to_owned(), self.api.1.clone()),
        ]);
        for from in container.env_from.iter().flatten() {
            let prefix = from.prefix.clone().unwrap_or_default();
            let mut add = |data: BTreeMap<String, String>| {
                env.extend(data.into_iter().map(|(key, value)| (format!("{prefix}{key}"), value)));
            };
            if let Some(map) = &from.config_map_ref {
                add(self.config_map(&map.name, map.optional).await?);
            }
            if let Some(secret) = &from.secret_ref {
                add(self.secret(&secret.name, secret.optional).await?);
            }
        }
        for variable in container.env.iter().flatten() {
            let value = match (&variable.value_from, &variable.value) {
                (Some(from), _) => self.value_from(from).await.with_context(|| format!("env {}", variable.name))?,
                (None, value) => Some(expand(value.as_deref().unwrap_or_default(), &env)),
            };
            env.extend(value.map(|value| (variable.name.clone(), value)));
        }
        Ok(env.into_iter().collect())
    }

    async fn value_from(&self, from: &core::EnvVarSource) -> Result<Option<String>> {
        if let Some(field) = &from.field_ref {
            return self.field(&field.field_path).map(Some);
        }
        let (data, key, optional) = if let Some(key) = &from.config_map_key_ref {
            (self.config_map(&key.name, key.optional).await?, &key.key, key.optional)
        } else if let Some(key) = &from.secret_key_ref {
            (self.secret(&key.name, key.optional).await?, &key.key, key.optional)
        } else {
            bail!("the lab supports fieldRef, configMapKeyRef and secretKeyRef only");
        };
        match data.get(key) {
            None if optional != Some(true) => bail!("there is no key {key}"),
            value => Ok(value.cloned()),
        }
    }

    /// A field of the Pod, as the downward API names it.
    fn field(&self, path: &str) -> Result<String> {
        match path {
            "status.podIP" => return Ok(self.addresses.first().cloned().unwrap_or_default()),
            "status.podIPs" => return Ok(self.addresses.join(",")),
            "status.hostIP" => return Ok(self.node_address.clone()),
            _ => {}
        }
        let pod = serde_json::to_value(&self.pod)?;
        let (path, key) = match path.split_once("['") {
            Some((path, key)) => (path, Some(key.trim_end_matches("']"))),
            None => (path, None),
        };
        let mut value = path.split('.').fold(&pod, |value, name| &value[name]);
        if let Some(key) = key {
            value = &value[key];
        }
        match value {
            Value::String(text) => Ok(text.clone()),
            Value::Null if key.is_some() => Ok(String::new()),
            _ => bail!("there is no field {path}"),
        }
    }

    async fn config_map(&self, name: &str, optional: Option<bool>) -> Result<BTreeMap<String, String>> {
        let api: Api<core::ConfigMap> = Api::namespaced(self.client.clone(), self.namespace());
        match api.get_opt(name).await? {
            Some(map) => Ok(map.data.unwrap_or_default()),
            None if optional == Some(true) => Ok(BTreeMap::new()),
            None => bail!("configmap \"{name}\" not found"),
        }
    }

    async fn secret(&self, name: &str, optional: Option<bool>) -> Result<BTreeMap<String, String>> {
        let api: Api<core::Secret> = Api::namespaced(self.client.clone(), self.namespace());
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        match api.get_opt(name).await? {
            Some(secret) => {
                Ok(secret.data.unwrap_or_default().into_iter().map(|(key, value)| (key, text(value.0))).collect())
            }
            None if optional == Some(true) => Ok(BTreeMap::new()),
            None => bail!("secret \"{name}\" not found"),
        }
    }

    /// All mounts of a container: volumes, host names and resolv.conf, the ServiceAccount.
    pub(crate) async fn mounts(&self, container: &core::Container) -> Result<Vec<Mount>> {
        let volumes = self.pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
        let mut mounts = self.names()?;
        for wanted in container.volume_mounts.iter().flatten() {
            let volume = volumes.iter().find(|volume| volume.name == wanted.name);
            let volume = volume.with_context(|| format!("there is no volume {}", wanted.name))?;
            let mut from = self.volume(volume).await.with_context(|| format!("volume {}", wanted.name))?;
            if let Some(below) = wanted.sub_path.as_deref().filter(|below| !below.is_empty()) {
                from = from.join(below);
                if !from.exists() {
                    fs::create_dir_all(&from)?;
                }
            }
            let read_only = wanted.read_only.unwrap_or_default();
            mounts.push(Mount { from, to: wanted.mount_path.clone(), read_only });
        }
        let wants_account = self.pod.spec.as_ref().and_then(|spec| spec.automount_service_account_token) != Some(false);
        if wants_account && !mounts.iter().any(|mount| mount.to == ACCOUNT) {
            let from = self.account(&self.directory.join("account")).await.context("the ServiceAccount of the Pod")?;
            mounts.push(Mount { from, to: ACCOUNT.to_owned(), read_only: true });
        }
        Ok(mounts)
    }

    async fn volume(&self, volume: &core::Volume) -> Result<PathBuf> {
        let directory = self.directory.join("volumes").join(&volume.name);
        if let Some(path) = &volume.host_path {
            let path = PathBuf::from(&path.path);
            if !path.exists() {
                fs::create_dir_all(&path)?;
            }
            return Ok(path);
        }
        fs::create_dir_all(&directory)?;
        if let Some(map) = &volume.config_map {
            let data = self.config_map(&map.name, map.optional).await?;
            write_files(&directory, &data, map.items.as_deref())?;
        } else if let Some(secret) = &volume.secret {
            let data = self.secret(secret.secret_name.as_deref().unwrap_or_default(), secret.optional).await?;
            write_files(&directory, &data, secret.items.as_deref())?;
        } else if let Some(projected) = &volume.projected {
            let sources = projected.sources.as_deref().unwrap_or_default();
            if !sources.iter().any(|source| source.service_account_token.is_some()) {
                bail!("the lab supports projected volumes for a ServiceAccount only");
            }
            self.account(&directory).await?;
        } else if volume.empty_dir.is_none() {
            bail!("the lab supports emptyDir, configMap, secret and hostPath volumes only");
        }
        Ok(directory)
    }

    /// `/etc/hosts` and `/etc/resolv.conf` of the Pod.
    fn names(&self) -> Result<Vec<Mount>> {
        let hostname = self.hostname();
        let spec = self.pod.spec.as_ref();
        let own = self.addresses.iter().map(|address| format!("{address} {hostname}\n")).collect::<String>();
        let aliases = spec.and_then(|spec| spec.host_aliases.as_deref()).unwrap_or_default();
        let aliases = aliases
            .iter()
            .map(|alias| format!("{} {}\n", alias.ip, alias.hostnames.as_deref().unwrap_or_default().join(" ")));
        let hosts = format!("127.0.0.1 localhost\n::1 localhost\n{own}{}", aliases.collect::<String>());
        let on_node = spec.and_then(|spec| spec.host_network).unwrap_or_default();
        let policy = spec.and_then(|spec| spec.dns_policy.as_deref()).unwrap_or("ClusterFirst");
        let mut resolver = match policy {
            "ClusterFirst" if on_node => Resolver::default(),
            "ClusterFirst" | "ClusterFirstWithHostNet" => Resolver::of_cluster(self.namespace()),
            _ => Resolver::default(),
        };
        resolver.extend(spec.and_then(|spec| spec.dns_config.as_ref()));
        let files = [("hosts", hosts), ("resolv.conf", resolver.to_text()), ("hostname", format!("{hostname}\n"))];
        let directory = self.directory.join("etc");
        fs::create_dir_all(&directory)?;
        let write = |(name, content): (&str, String)| {
            let from = directory.join(name);
            fs::write(&from, content)?;
            Ok(Mount { from, to: format!("/etc/{name}"), read_only: false })
        };
        files.into_iter().map(write).collect()
    }

    /// The files of the ServiceAccount: token, CA certificate of the API, namespace.
    async fn account(&self, directory: &Path) -> Result<PathBuf> {
        fs::create_dir_all(directory)?;
        let name = self.pod.spec.as_ref().and_then(|spec| spec.service_account_name.as_deref());
        let name = name.filter(|name| !name.is_empty()).unwrap_or("default");
        let accounts: Api<core::ServiceAccount> = Api::namespaced(self.client.clone(), self.namespace());
        // A kubelet gets tokens only for Pods of its Node, and they expire with the Pod.
        let pod = BoundObjectReference {
            api_version: Some("v1".into()),
            kind: Some("Pod".into()),
            name: self.pod.metadata.name.clone(),
            uid: self.pod.metadata.uid.clone(),
        };
        let request = TokenRequest {
            spec: Some(TokenRequestSpec {
                expiration_seconds: Some(24 * 3600),
                bound_object_ref: Some(pod),
                ..TokenRequestSpec::default()
            }),
            ..TokenRequest::default()
        };
        let token = accounts.create_token_request(name, &PostParams::default(), &request).await?;
        let authority = self.config_map("kube-root-ca.crt", None).await?.remove("ca.crt").unwrap_or_default();
        let token = token.status.and_then(|status| status.token).context("the API gave no token")?;
        let files = [("token", token.as_str()), ("ca.crt", &authority), ("namespace", self.namespace())];
        for (name, content) in files {
            fs::write(directory.join(name), content)?;
        }
        Ok(directory.to_owned())
    }
}

/// DNS configuration of a Pod.
#[derive(Default)]
struct Resolver {
    servers: Vec<String>,
    domains: Vec<String>,
    options: Vec<String>,
}

impl Resolver {
    fn of_cluster(namespace: &str) -> Self {
        let domain = plan::DOMAIN;
        Self {
            servers: vec![plan::DNS.to_string()],
            domains: vec![format!("{namespace}.svc.{domain}"), format!("svc.{domain}"), domain.to_owned()],
            options: vec!["ndots:5".to_owned()],
        }
    }

    /// Adds the `dnsConfig` of the Pod.
    fn extend(&mut self, more: Option<&core::PodDNSConfig>) {
        let Some(more) = more else { return };
        self.servers.extend(more.nameservers.iter().flatten().cloned());
        self.domains.extend(more.searches.iter().flatten().cloned());
        let option = |option: &core::PodDNSConfigOption| {
            let value = option.value.iter().map(|value| format!(":{value}")).collect::<String>();
            format!("{}{value}", option.name.as_deref().unwrap_or_default())
        };
        self.options.extend(more.options.iter().flatten().map(option));
    }

    fn to_text(&self) -> String {
        let mut text: String = self.servers.iter().map(|server| format!("nameserver {server}\n")).collect();
        for (word, list) in [("search", &self.domains), ("options", &self.options)] {
            if !list.is_empty() {
                text += &format!("{word} {}\n", list.join(" "));
            }
        }
        text
    }
}

fn write_files(directory: &Path, data: &BTreeMap<String, String>, items: Option<&[core::KeyToPath]>) -> Result<()> {
    let all = || data.keys().map(|key| (key.as_str(), key.as_str())).collect::<Vec<_>>();
    let chosen = items.map(|items| items.iter().map(|item| (item.key.as_str(), item.path.as_str())).collect());
    for (key, path) in chosen.unwrap_or_else(all) {
        let content = data.get(key).with_context(|| format!("there is no key {key}"))?;
        if Path::new(path).components().any(|part| !matches!(part, std::path::Component::Normal(_))) {
            bail!("the path {path} is outside of the volume");
        }
        let path = directory.join(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(path, content)?;
    }
    Ok(())
}

/// Replaces `$(NAME)` by the value of the variable; `$$` is a literal `$`, and unknown names are kept.
pub(crate) fn expand(text: &str, env: &BTreeMap<String, String>) -> String {
    let mut result = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        result += before;
        rest = if let Some(after) = after.strip_prefix('$') {
            result.push('$');
            after
        } else if let Some((name, behind)) = after.strip_prefix('(').and_then(|name| name.split_once(')')) {
            match env.get(name) {
                Some(value) => result += value,
                None => result += &format!("$({name})"),
            }
            behind
        } else {
            result.push('$');
            after
        };
    }
    result + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_to_variables_are_carried_out_and_others_stay() {
        let env = BTreeMap::from([("A".to_owned(), "1".to_owned())]);
        for (text, expanded) in [("$(A)-$(A)", "1-1"), ("$$(A)", "$(A)"), ("$(B) $A $", "$(B) $A $"), ("$(A", "$(A")] {
            assert_eq!(expand(text, &env), expanded);
        }
    }

    #[test]
    fn a_pod_adds_to_the_clusters_resolver() {
        let mut resolver = Resolver::of_cluster("shop");
        resolver.extend(Some(&core::PodDNSConfig {
            nameservers: Some(vec!["192.0.2.1".into()]),
            searches: Some(vec!["example.com".into()]),
            options: Some(vec![core::PodDNSConfigOption { name: Some("timeout".into()), value: Some("1".into()) }]),
        }));
        let expected = "nameserver 10.96.0.10\nnameserver 192.0.2.1\n\
            search shop.svc.cluster.local svc.cluster.local cluster.local example.com\noptions ndots:5 timeout:1\n";
        assert_eq!(resolver.to_text(), expected);
        assert_eq!(Resolver::default().to_text(), "");
    }

    #[test]
    fn a_volume_keeps_its_files_inside() {
        let scratch = testkit::Scratch::new().unwrap();
        let data = BTreeMap::from([("k".to_owned(), "v".to_owned())]);
        let item = |path: &str| [core::KeyToPath { key: "k".into(), path: path.into(), ..Default::default() }];
        write_files(scratch.path(), &data, Some(&item("a/b"))).unwrap();
        assert_eq!(fs::read_to_string(scratch.path().join("a/b")).unwrap(), "v");
        assert!(write_files(scratch.path(), &data, Some(&item("../b"))).is_err());
    }
}
