//! Caches of kube-rs equal the state of the server in spite of broken connections and a compacted history.

use std::collections::BTreeMap;
use std::env;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use apiserver::{ApiServer, Local, Options};
use futures_util::{Stream, StreamExt as _};
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, Config, ResourceExt};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::proxy::Proxy;

/// Duration of the changes in seconds, for a longer run.
const SECONDS: &str = "CHURN_SECONDS";

/// Names to versions, for comparison.
type Cache = BTreeMap<String, String>;

/// One resource: the options of its watcher, and how to read the truth from the server.
struct Watched {
    api_version: &'static str,
    plural: &'static str,
    kind: &'static str,
    labels: &'static str,
    /// A field selector, and the same as a function.
    fields: (&'static str, fn(&Value) -> bool),
    streaming: bool,
    metadata_only: bool,
}

const MAPS: Watched = Watched {
    api_version: "v1",
    plural: "configmaps",
    kind: "ConfigMap",
    labels: "",
    fields: ("", |_| true),
    streaming: false,
    metadata_only: false,
};
const PODS: Watched = Watched { plural: "pods", kind: "Pod", ..MAPS };
const THINGS: Watched = Watched { api_version: "example.com/v1", plural: "things", kind: "Thing", ..MAPS };

fn on_n1(pod: &Value) -> bool {
    pod["spec"]["nodeName"] == "n1"
}

const ALL: &[Watched] = &[
    MAPS,
    Watched { labels: "odd=yes", ..MAPS },
    Watched { streaming: true, ..MAPS },
    Watched { streaming: true, labels: "odd!=yes", ..MAPS },
    Watched { metadata_only: true, ..MAPS },
    PODS,
    Watched { fields: ("spec.nodeName=n1", on_n1), ..PODS },
    Watched { fields: ("spec.nodeName=n1", on_n1), streaming: true, ..PODS },
    THINGS,
    Watched { streaming: true, labels: "odd=yes", ..THINGS },
];

/// The cache of a watcher, and how often it had to start again.
#[derive(Default)]
struct Follower {
    cache: std::sync::Mutex<Cache>,
    begun: AtomicUsize,
    failed: AtomicUsize,
}

impl Follower {
    /// Whether it had to recover: it lost connections, and had to list again.
    fn tested(&self) -> bool {
        self.begun.load(Ordering::Relaxed) > 1 && self.failed.load(Ordering::Relaxed) > 1
    }
}

impl Watched {
    /// Follows the server until the test ends.
    fn follow(&self, client: Client, follower: Arc<Follower>, tasks: &mut JoinSet<()>) {
        let (group, version) = self.api_version.split_once('/').unwrap_or(("", self.api_version));
        let kind = GroupVersionKind::gvk(group, version, self.kind);
        let resource = ApiResource::from_gvk_with_plural(&kind, self.plural);
        let mut config = watcher::Config::default().labels(self.labels).fields(self.fields.0).timeout(5).page_size(7);
        if self.streaming {
            config = config.streaming_lists();
        }
        if self.metadata_only {
            let api = Api::<PartialObjectMeta<DynamicObject>>::all_with(client, &resource);
            tasks.spawn(follow(watcher::watcher(api, config), follower));
        } else {
            let api = Api::<DynamicObject>::all_with(client, &resource);
            tasks.spawn(follow(watcher::watcher(api, config), follower));
        }
    }

    /// The expected content of the cache.
    fn truth(&self, local: &Local) -> Cache {
        let (objects, _) = local.list(self.api_version, self.plural, "", self.labels).unwrap();
        let objects = objects.iter().filter(|object| (self.fields.1)(object));
        let text = |object: &Value, key: &str| object["metadata"][key].as_str().unwrap().to_owned();
        objects.map(|object| (text(object, "name"), text(object, "resourceVersion"))).collect()
    }
}

/// Maintains a cache, as a reflector does.
async fn follow<K: ResourceExt>(events: impl Stream<Item = Result<Event<K>, watcher::Error>>, follower: Arc<Follower>) {
    let mut events = pin!(events);
    let mut coming = Cache::new();
    let entry = |object: &K| (object.name_any(), object.resource_version().unwrap_or_default());
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => {
                coming.clear();
                follower.begun.fetch_add(1, Ordering::Relaxed);
            }
            Ok(Event::InitApply(object)) => coming.extend([entry(&object)]),
            Ok(Event::InitDone) => *follower.cache.lock().unwrap() = std::mem::take(&mut coming),
            Ok(Event::Apply(object)) => follower.cache.lock().unwrap().extend([entry(&object)]),
            Ok(Event::Delete(object)) => drop(follower.cache.lock().unwrap().remove(&object.name_any())),
            Err(_) => {
                follower.failed.fetch_add(1, Ordering::Relaxed);
                let soon = Instant::now() + Duration::from_millis(20);
                sleep_until(soon).await;
            }
        }
    }
}

/// Pseudo-random numbers from a seed that a failure prints.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 32).unwrap() % sides
    }
}

/// Creates, changes or deletes an object of one of the resources.
fn change(local: &Local, dice: &mut Dice, round: u64) {
    let watched = [&MAPS, &PODS, &THINGS][dice.roll(3)];
    let (version, plural) = (watched.api_version, watched.plural);
    let name = format!("x{}", dice.roll(40));
    let odd = if dice.roll(3) == 0 { "yes" } else { "no" };
    let metadata = json!({"name": name, "labels": {"odd": odd}, "annotations": {"round": round.to_string()}});
    let mut object = json!({"apiVersion": version, "kind": watched.kind, "metadata": metadata});
    if watched.kind == "Pod" {
        object["spec"] =
            json!({"nodeName": format!("n{}", dice.roll(3)), "containers": [{"name": "c", "image": "a:1"}]});
    }
    let there = local.get(version, plural, "default", &name);
    match (there, dice.roll(4)) {
        (Ok(_), 0) => local.delete(version, plural, "default", &name, Some(0)).unwrap(),
        (Ok(mut there), _) => {
            // The Node of a Pod cannot change.
            there["metadata"]["labels"] = object["metadata"]["labels"].take();
            there["metadata"]["annotations"] = object["metadata"]["annotations"].take();
            drop(local.update(version, plural, "default", &name, "", there).unwrap());
        }
        (Err(_), _) => drop(local.create(version, plural, "default", object).unwrap()),
    }
}

fn define_things(local: &Local) {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "things.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
                 "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]},
    });
    local.create("apiextensions.k8s.io/v1", "customresourcedefinitions", "", definition).unwrap();
}

async fn client(server: &ApiServer, proxy: &Proxy) -> Client {
    let mut kubeconfig = Kubeconfig::from_yaml(&server.admin_kubeconfig().unwrap()).unwrap();
    kubeconfig.clusters[0].cluster.as_mut().unwrap().server = Some(format!("https://{}", proxy.address));
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn caches_of_kube_rs_equal_the_state_after_broken_connections_and_compaction() {
    let seconds = env::var(SECONDS).map_or(5, |seconds| seconds.parse().unwrap());
    let seed = (u64::from(std::process::id()) << 32) | 0x9e37_79b9;
    println!("seed {seed:#x}, {seconds} seconds");
    let options = Options { history: 64, bookmark_every: Duration::from_millis(200), ..Options::default() };
    let server = ApiServer::start(options).await.unwrap();
    let local = server.local();
    define_things(&local);
    let proxy = Proxy::start(server.url().strip_prefix("https://").unwrap().parse().unwrap()).await;
    let mut watchers = Vec::new();
    let mut following = JoinSet::new();
    for watched in ALL {
        let follower = Arc::new(Follower::default());
        watched.follow(client(&server, &proxy).await, follower.clone(), &mut following);
        watchers.push((watched, follower));
    }

    let mut dice = Dice(seed);
    let (mut round, mut cuts) = (0, 0);
    let (end, timeout) = (Instant::now() + Duration::from_secs(seconds), Duration::from_secs(60));
    let tested = || watchers.iter().all(|(_, follower)| follower.tested());
    while Instant::now() < end || (!tested() && Instant::now() < end + timeout) {
        round += 1;
        change(&local, &mut dice, round);
        if dice.roll(20) == 0 {
            cuts += usize::from(proxy.cut(dice.roll(1000)));
        }
        if dice.roll(100) == 0 {
            server.compact();
        }
        // Quiet and busy phases: events come one by one and many at a time.
        if dice.roll(if round / 500 % 2 == 0 { 4 } else { 200 }) == 0 {
            let soon = Instant::now() + Duration::from_millis(dice.roll(10) as u64);
            sleep_until(soon).await;
        }
    }

    let deadline = Instant::now() + timeout;
    for (watched, follower) in &watchers {
        let what = format!("{} {} {} {}", watched.plural, watched.labels, watched.fields.0, watched.streaming);
        let truth = watched.truth(&local);
        while *follower.cache.lock().unwrap() != truth {
            assert!(Instant::now() < deadline, "{what}: {:?} is not {truth:?}", follower.cache.lock().unwrap());
            let soon = Instant::now() + Duration::from_millis(20);
            sleep_until(soon).await;
        }
        let [begun, failed] = [&follower.begun, &follower.failed].map(|count| count.load(Ordering::Relaxed));
        println!("{what}: {} objects, began {begun} times, failed {failed} times", truth.len());
        assert!(follower.tested(), "{what} had no failures to recover from");
    }
    println!("{round} changes, {cuts} connections cut");
    assert!(cuts > 0);
}
