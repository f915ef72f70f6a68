//! Calls CNI plugins as a container runtime does: the chain in order for ADD, in reverse for DEL.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// Timeout of one plugin.
const PLUGIN_TIMEOUT: Duration = Duration::from_secs(120);

/// A CNI network configuration: a chain of plugins.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Conflist {
    name: String,
    version: String,
    plugins: Vec<Value>,
}

/// The network namespace to connect, and the Pod that it belongs to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Attachment {
    /// The container id, never used twice.
    pub(crate) id: String,
    pub(crate) netns: PathBuf,
    pub(crate) namespace: String,
    pub(crate) pod: String,
    pub(crate) uid: String,
    /// Host ports of the Pod, as CNI's `portMappings`.
    pub(crate) ports: Vec<Value>,
}

impl Conflist {
    /// Reads the first configuration of a directory, in the order of names.
    pub(crate) fn find(directory: &Path) -> Result<Self> {
        let mut paths: Vec<_> = fs::read_dir(directory)
            .with_context(|| format!("cannot read {}", directory.display()))?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.extension().is_some_and(|kind| kind == "conflist" || kind == "conf"))
            .collect();
        paths.sort();
        let path =
            paths.first().with_context(|| format!("there is no CNI configuration in {} yet", directory.display()))?;
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        Self::parse(&text).with_context(|| path.display().to_string())
    }

    fn parse(text: &str) -> Result<Self> {
        let value: Value = serde_json::from_str(text)?;
        let word = |key: &str| value[key].as_str().map(ToOwned::to_owned);
        let name = word("name").context("`name` is missing")?;
        let version = word("cniVersion").unwrap_or_else(|| "0.2.0".to_owned());
        let plugins = match &value["plugins"] {
            Value::Array(plugins) => plugins.clone(),
            // The file describes a single plugin.
            _ => vec![value.clone()],
        };
        if plugins.is_empty() || plugins.iter().any(|plugin| !plugin["type"].is_string()) {
            bail!("`plugins` must be a list of objects with a `type`");
        }
        Ok(Self { name, version, plugins })
    }

    /// The input of a plugin: its configuration, the name and version of the list, the previous result, and capabilities.
    fn input(&self, plugin: &Value, attachment: &Attachment, previous: Option<&Value>) -> Value {
        let mut input = plugin.clone();
        input["name"] = json!(self.name);
        input["cniVersion"] = json!(self.version);
        if let Some(capabilities) = input.as_object_mut().and_then(|input| input.remove("capabilities"))
            && capabilities["portMappings"] == true
            && !attachment.ports.is_empty()
        {
            input["runtimeConfig"] = json!({"portMappings": attachment.ports});
        }
        if let Some(previous) = previous {
            input["prevResult"] = previous.clone();
        }
        input
    }

    /// ADD: calls the plugins in order, and returns the result of the last one.
    pub(crate) async fn add(&self, attachment: &Attachment, plugins: &Path) -> Result<Value> {
        let mut result = None;
        for plugin in &self.plugins {
            let input = self.input(plugin, attachment, result.as_ref());
            let output = call("ADD", plugin, attachment, plugins, &input).await?;
            let mut answer: Value = serde_json::from_str(&output)
                .with_context(|| format!("CNI plugin {} did not print JSON: {output}", plugin["type"]))?;
            // The next plugin needs the version of `prevResult`.
            answer["cniVersion"] = json!(self.version);
            result = Some(answer);
        }
        result.context("there is no plugin")
    }

    /// DEL: calls all plugins in reverse order, and returns the first error.
    pub(crate) async fn del(&self, attachment: &Attachment, plugins: &Path, result: Option<&Value>) -> Result<()> {
        let mut outcome = Ok(());
        for plugin in self.plugins.iter().rev() {
            let input = self.input(plugin, attachment, result);
            let called = call("DEL", plugin, attachment, plugins, &input).await.map(drop);
            outcome = outcome.and(called);
        }
        outcome
    }
}

/// The addresses in a result, without their prefix lengths.
pub(crate) fn addresses(result: &Value) -> Vec<String> {
    let ips = result["ips"].as_array().map(Vec::as_slice).unwrap_or_default();
    let texts = ips.iter().filter_map(|ip| ip["address"].as_str());
    texts.map(|text| text.split('/').next().unwrap_or(text).to_owned()).collect()
}

async fn call(verb: &str, plugin: &Value, attachment: &Attachment, directory: &Path, input: &Value) -> Result<String> {
    let kind = plugin["type"].as_str().unwrap_or_default();
    let arguments = format!(
        "IgnoreUnknown=1;K8S_POD_NAMESPACE={};K8S_POD_NAME={};K8S_POD_INFRA_CONTAINER_ID={};K8S_POD_UID={}",
        attachment.namespace, attachment.pod, attachment.id, attachment.uid
    );
    let mut command = std::process::Command::new(directory.join(kind));
    command
        .env("CNI_COMMAND", verb)
        .env("CNI_CONTAINERID", &attachment.id)
        .env("CNI_NETNS", &attachment.netns)
        .env("CNI_IFNAME", "eth0")
        .env("CNI_ARGS", arguments)
        .env("CNI_PATH", directory);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    testkit::process::kill_with_parent(&mut command);
    let mut child = Command::from(command)
        .spawn()
        .with_context(|| format!("cannot run the CNI plugin {kind} in {}", directory.display()))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A plugin that does not read its input reports an error itself.
        let _ = stdin.write_all(input.to_string().as_bytes()).await;
    }
    let output = tokio::time::timeout(PLUGIN_TIMEOUT, child.wait_with_output()).await;
    let output =
        output.with_context(|| format!("CNI plugin {kind} did not answer to {verb} in {PLUGIN_TIMEOUT:?}"))??;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(said);
    }
    let answer: Value = serde_json::from_str(&said).unwrap_or_default();
    let words = ["msg", "details"].map(|key| answer[key].as_str().unwrap_or_default().to_owned());
    let words: Vec<_> = words.into_iter().filter(|word| !word.is_empty()).collect();
    if words.is_empty() {
        let all = format!("{said}{}", String::from_utf8_lossy(&output.stderr));
        bail!("CNI plugin {kind} failed at {verb} with {}: {}", output.status, all.trim());
    }
    bail!("CNI plugin {kind} failed at {verb}: {} (code {})", words.join("; "), answer["code"])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attachment() -> Attachment {
        let word = |text: &str| text.to_owned();
        let ports = vec![json!({"hostPort": 80, "containerPort": 8080, "protocol": "tcp"})];
        let netns = "/run/netns/x".into();
        Attachment { id: word("id"), netns, namespace: word("ns"), pod: word("pod"), uid: word("uid"), ports }
    }

    #[test]
    fn a_plugin_gets_name_version_previous_result_and_its_capabilities() {
        let list = r#"{"cniVersion": "0.4.0", "name": "n", "plugins": [
            {"type": "a", "mtu": 1}, {"type": "portmap", "capabilities": {"portMappings": true}}]}"#;
        let list = Conflist::parse(list).unwrap();
        let first = list.input(&list.plugins[0], &attachment(), None);
        assert_eq!(first, json!({"type": "a", "mtu": 1, "name": "n", "cniVersion": "0.4.0"}));
        let second = list.input(&list.plugins[1], &attachment(), Some(&json!({"ips": []})));
        let runtime = json!({"portMappings": attachment().ports});
        assert_eq!(
            second,
            json!({"type": "portmap", "name": "n", "cniVersion": "0.4.0", "runtimeConfig": runtime, "prevResult": {"ips": []}})
        );
    }

    #[test]
    fn an_invalid_configuration_is_an_error_with_the_field() {
        for (text, field) in
            [("{}", "`name`"), (r#"{"name": "n"}"#, "`plugins`"), (r#"{"name": "n", "plugins": []}"#, "`plugins`")]
        {
            let error = Conflist::parse(text).unwrap_err().to_string();
            assert!(error.contains(field), "{text}: {error}");
        }
        assert_eq!(Conflist::parse(r#"{"name": "n", "type": "ptp"}"#).unwrap().plugins.len(), 1);
    }

    #[test]
    fn addresses_have_no_prefix_length() {
        let result = json!({"ips": [{"address": "10.10.1.2/24"}, {"version": "6", "address": "fd00::2/64"}]});
        assert_eq!(addresses(&result), ["10.10.1.2", "fd00::2"]);
    }
}
