//! Runs the steps of an area against a server.

use serde_json::{Value, json};
use testkit::wait::until;

use crate::answer::Answer;
use crate::area::{Area, Only, Step};
use crate::diff::matches;
use crate::http::{Reply, Request, Server, Stream};
use crate::normal::Normaliser;
use crate::vars::Vars;

/// Runs all steps of `area` in order, and returns the normalised answers, also of steps that fail.
pub fn run(area: &Area, server: &Server) -> Vec<Answer> {
    let mut run = Run {
        server,
        vars: Vars::of_area(&area.name),
        words: Normaliser::new(area.name.starts_with("apply")),
        open: None,
    };
    run.prepare(&area.name);
    area.steps.iter().map(|step| run.step(step)).collect()
}

struct Run<'a> {
    server: &'a Server,
    vars: Vars,
    words: Normaliser,
    open: Option<Stream>,
}

impl Run<'_> {
    /// Creates the area's Namespace, and waits for its default ServiceAccount.
    fn prepare(&self, area: &str) {
        let namespace =
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": format!("compat-{area}") }});
        let namespace = namespace.to_string();
        let create = Request {
            method: "POST",
            path: "/api/v1/namespaces",
            user: None,
            headers: vec![("Content-Type", "application/json")],
            body: Some(namespace.as_bytes()),
        };
        // If this fails, every step shows it.
        let _ = self.server.send(&create);
        let path = self.vars.text("${core}/serviceaccounts/default");
        let get = Request { method: "GET", path: &path, user: None, headers: vec![], body: None };
        let there = || self.server.send(&get).ok().filter(|reply| reply.status == 200);
        let _ = until("the default ServiceAccount", self.server.timeout, there);
    }

    fn step(&mut self, step: &Step) -> Answer {
        self.words.give(step.body.as_ref().unwrap_or(&Value::Null));
        let outcome = match step.request.split_once(' ').unwrap_or((&step.request, "")) {
            ("COMPACT", _) => self.server.compact().map(|()| answer(200, Value::Null)),
            ("OPEN", path) => self.watch(step, path).map(|stream| {
                let answer = answer(stream.status, Value::Null);
                self.open = Some(stream);
                answer
            }),
            ("COLLECT", _) => {
                let stream = self.open.take().ok_or_else(|| anyhow::anyhow!("no watch is open"));
                stream.map(|stream| self.events(step, &stream))
            }
            ("WATCH", path) => self.watch(step, path).map(|stream| self.events(step, &stream)),
            (method, path) => self.request(step, method, path),
        };
        let mut answer = outcome.unwrap_or_else(|error| answer(0, format!("{error:#}").into()));
        for (name, pointer) in &step.save {
            if let Some(value) = answer.body.pointer(pointer) {
                self.vars.set(name, value.clone());
            }
        }
        if let Some(only) = &step.only {
            keep_only(&mut answer.body, only);
        }
        for list in &step.unordered {
            if let Some(Value::Array(items)) = answer.body.pointer_mut(list) {
                items.sort_by_key(Value::to_string);
            }
        }
        remove("", &mut answer.body, &step.ignore);
        answer.step.clone_from(&step.step);
        answer.body = self.words.body(&answer.body);
        answer.warnings = answer.warnings.iter().map(|warning| self.words.text(warning)).collect();
        answer
    }

    fn request(&self, step: &Step, method: &str, path: &str) -> anyhow::Result<Answer> {
        let mut last = None;
        let done = until("the answer", self.server.timeout, || match self.send(step, method, path) {
            Ok(reply) => {
                let body = serde_json::from_str(&reply.body).unwrap_or(Value::String(reply.body));
                let answer =
                    Answer { content_type: reply.content_type, warnings: reply.warnings, ..answer(reply.status, body) };
                let value = answer.value();
                let holds = step.until.iter().all(|(field, wanted)| match field.as_str() {
                    "status" => *wanted == answer.status,
                    field => value["body"].pointer(field).unwrap_or(&Value::Null) == wanted,
                });
                last = Some(answer);
                holds.then(|| Ok(()))
            }
            Err(error) => Some(Err(error)),
        });
        match (done, last) {
            (Ok(Err(error)), _) => Err(error),
            // On a timeout, the last answer shows the cause.
            (_, Some(answer)) => Ok(answer),
            (_, None) => anyhow::bail!("no answer"),
        }
    }

    fn send(&self, step: &Step, method: &str, path: &str) -> anyhow::Result<Reply> {
        self.with_request(step, method, path, |request| self.server.send(request))
    }

    fn watch(&self, step: &Step, path: &str) -> anyhow::Result<Stream> {
        self.with_request(step, "GET", path, |request| self.server.watch(request))
    }

    fn events(&self, step: &Step, stream: &Stream) -> Answer {
        let events = stream.take(step.events.unwrap_or_default(), self.server.timeout);
        Answer { content_type: stream.content_type.clone(), ..answer(stream.status, events.into()) }
    }

    fn with_request<T>(&self, step: &Step, method: &str, path: &str, send: impl FnOnce(&Request<'_>) -> T) -> T {
        let path = self.vars.text(path);
        let user = step.user.as_ref().map(|user| self.vars.text(user));
        let body = match (&step.body, &step.raw) {
            (Some(body), _) => Some(self.vars.value(body).to_string()),
            (None, raw) => raw.as_ref().map(|raw| self.vars.text(raw)),
        };
        let content_type = match step.content_type.as_deref() {
            Some("json") => "application/json-patch+json",
            Some("merge") => "application/merge-patch+json",
            Some("strategic") => "application/strategic-merge-patch+json",
            Some("apply") => "application/apply-patch+yaml",
            Some(other) => other,
            None => "application/json",
        };
        let accept = match step.accept.as_deref() {
            Some("table") => "application/json;as=Table;v=v1;g=meta.k8s.io",
            Some("partial") => "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
            Some("partial-list") => "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
            Some(other) => other,
            None => "application/json",
        };
        let mut headers = vec![("Accept", accept)];
        if body.is_some() {
            headers.push(("Content-Type", content_type));
        }
        let further: Vec<_> = step.headers.iter().map(|(name, value)| (name.as_str(), self.vars.text(value))).collect();
        headers.extend(further.iter().map(|(name, value)| (*name, value.as_str())));
        send(&Request { method, path: &path, user: user.as_deref(), headers, body: body.as_deref().map(str::as_bytes) })
    }
}

fn answer(status: u16, body: Value) -> Answer {
    Answer { step: String::new(), status, content_type: String::new(), warnings: Vec::new(), body }
}

fn keep_only(body: &mut Value, only: &Only) {
    if let Some(Value::Array(items)) = body.pointer_mut(&only.list) {
        let name = |item: &Value| item.pointer(&only.key).and_then(Value::as_str).map(str::to_owned);
        items.retain(|item| name(item).is_some_and(|name| only.values.contains(&name)));
        items.sort_by_key(name);
    }
}

/// Removes the fields that the step ignores.
fn remove(path: &str, value: &mut Value, patterns: &[String]) {
    let unwanted = |path: &str| patterns.iter().any(|pattern| matches(pattern, path));
    match value {
        Value::Object(fields) => {
            fields.retain(|name, _| !unwanted(&format!("{path}/{name}")));
            fields.iter_mut().for_each(|(name, value)| remove(&format!("{path}/{name}"), value, patterns));
        }
        Value::Array(items) => {
            items.iter_mut().enumerate().for_each(|(at, item)| remove(&format!("{path}/{at}"), item, patterns));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
