//! Clusters of the sizes of Antrea's own performance tests, as objects.

use policy::Event;
use types::ObjectName;
use types::meta::{LabelSelector, Labels};
use types::network_policy::{IngressRule, NetworkPolicy, PolicyPeer};
use types::node::Namespace;
use types::pod::{Pod, PodIp};

/// Number of Nodes with Pods.
pub const NODES: u32 = 1000;

/// A cluster of one of the sizes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scale {
    /// 25,000 Namespaces of 4 Pods and 3 policies.
    SmallNamespaces,
    /// 100 Namespaces of 1,000 Pods and 101 policies.
    LargeNamespaces,
    /// One Namespace, 10,000 Pods with the same labels, 10,000 equal policies.
    OneNamespace,
    /// One Namespace, 10,000 Pods with a label of their own, and a policy for each.
    PolicyPerPod,
    /// 1,000 Namespaces of 100 Pods and 10 policies, with peers in 10 Namespaces.
    AcrossNamespaces,
}

/// Pseudo-random numbers, the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u32) -> u32 {
        // The generator splitmix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        u32::try_from((x ^ x >> 31) % u64::from(sides)).unwrap_or_default()
    }
}

fn labels(key: &str, value: String) -> Labels {
    [(key.to_owned(), value)].into()
}

fn selector(key: &str, value: String) -> LabelSelector {
    LabelSelector { match_labels: labels(key, value), ..LabelSelector::default() }
}

fn namespace(name: &str, labels: Labels) -> Event {
    let mut namespace = Namespace::default();
    (namespace.metadata.name, namespace.metadata.labels) = (name.to_owned(), labels);
    Event::Namespace(namespace)
}

fn pod(namespace: &str, name: String, labels: Labels, dice: &mut Dice) -> Event {
    let mut pod = Pod::default();
    (pod.metadata.namespace, pod.metadata.name) = (namespace.to_owned(), name);
    pod.metadata.labels = labels;
    pod.spec.node_name = format!("Node-{}", dice.roll(NODES));
    let [a, b, c, d] = [(); 4].map(|()| dice.roll(256));
    pod.status.pod_ips = vec![PodIp { ip: format!("{a}.{b}.{c}.{d}") }];
    Event::Pod(Box::new(pod))
}

fn empty_policy(namespace: &str, name: String) -> NetworkPolicy {
    let mut policy = NetworkPolicy::default();
    policy.metadata.uid = format!("{namespace}-{name}-d9b5-4a9e-8a57-3f3f6cb2d3c1");
    (policy.metadata.namespace, policy.metadata.name) = (namespace.to_owned(), name);
    policy.spec.policy_types = vec!["Ingress".to_owned(), "Egress".to_owned()];
    policy
}

fn policy(namespace: &str, name: String, pods: LabelSelector, peer: PolicyPeer) -> Event {
    let mut policy = empty_policy(namespace, name);
    policy.spec.pod_selector = pods;
    policy.spec.ingress = vec![IngressRule { from: vec![peer], ..Default::default() }];
    Event::Policy(Box::new(policy))
}

fn pods_of(selector: LabelSelector) -> PolicyPeer {
    PolicyPeer { pod_selector: Some(selector), ..PolicyPeer::default() }
}

fn default_deny(namespace: &str) -> Event {
    Event::Policy(Box::new(empty_policy(namespace, "default-deny-all".to_owned())))
}

type Events = Box<dyn Iterator<Item = Event>>;

impl Scale {
    /// All objects: the Namespaces, then the Pods, then the policies.
    pub fn events(self) -> Events {
        let mut dice = Dice(7);
        match self {
            Self::SmallNamespaces => namespaced(25_000, 2, 2, dice),
            Self::LargeNamespaces => namespaced(100, 100, 10, dice),
            Self::OneNamespace => {
                let same = || selector("app-1", "scale-1".to_owned());
                let pods = (0..10_000)
                    .map(move |n| pod("one", format!("pod-{n}"), labels("app-1", "scale-1".to_owned()), &mut dice));
                let policies = (0..10_000).map(move |n| policy("one", format!("np-{n}"), same(), pods_of(same())));
                Box::new([namespace("one", labels("app", "one".to_owned()))].into_iter().chain(pods).chain(policies))
            }
            Self::PolicyPerPod => {
                let pods =
                    (0..10_000).map(move |n| pod("one", format!("pod-{n}"), labels("app", own_label(n)), &mut dice));
                let policies = (0..10_000).map(|n| {
                    // Of each pair, one allows the other.
                    let (own, other) = (selector("app", own_label(n)), selector("app", own_label(n ^ 1)));
                    policy("one", format!("np-{n}"), own, pods_of(other))
                });
                Box::new([namespace("one", labels("app", "one".to_owned()))].into_iter().chain(pods).chain(policies))
            }
            Self::AcrossNamespaces => {
                let company = |n: u32| format!("company-{}", n % 100);
                let namespaces = (0..1000).map(move |n| namespace(&format!("ns-{n}"), labels("company", company(n))));
                let pods = (0..100_000u32).map(move |n| {
                    let name = format!("pod-{}", n % 100);
                    pod(&format!("ns-{}", n / 100), name, labels("app", format!("scale-{}", n % 10)), &mut dice)
                });
                let policies = (0..10_000u32).map(move |n| {
                    let own = || selector("app", format!("scale-{}", n % 10));
                    let peer = PolicyPeer {
                        pod_selector: Some(own()),
                        namespace_selector: Some(selector("company", company(n / 10))),
                        ..PolicyPeer::default()
                    };
                    policy(&format!("ns-{}", n / 10), format!("np-{}", n % 10), own(), peer)
                });
                Box::new(namespaces.chain(pods).chain(policies))
            }
        }
    }

    /// The events of an additional Pod with labels that others have: it is scheduled, gets an address, and is deleted.
    pub fn new_pod(self, n: u32) -> [Event; 3] {
        let (namespace, key, value) = self.kind(n);
        let mut running = pod(&namespace, format!("new-{n}"), labels(&key, value), &mut Dice(u64::from(n) << 32));
        let mut scheduled = running.clone();
        if let (Event::Pod(scheduled), Event::Pod(running)) = (&mut scheduled, &mut running) {
            scheduled.status.pod_ips.clear();
            running.status.phase = "Running".to_owned();
        }
        [scheduled, running, Event::PodGone(ObjectName { namespace, name: format!("new-{n}") })]
    }

    /// Creation and deletion of an additional policy for existing Pods.
    pub fn new_policy(self, n: u32) -> [Event; 2] {
        let (namespace, key, value) = self.kind(n);
        let own = || selector(&key, value.clone());
        let name = format!("new-{n}");
        let gone = Event::PolicyGone(ObjectName { namespace: namespace.clone(), name: name.clone() });
        [policy(&namespace, name, own(), pods_of(own())), gone]
    }

    /// A namespace, and key and value of a label of Pods in it.
    fn kind(self, n: u32) -> (String, String, String) {
        let numbered = |namespace, kind| (format!("ns-{namespace}"), format!("app-{kind}"), format!("scale-{kind}"));
        match self {
            Self::SmallNamespaces => numbered(n % 25_000, n % 2 + 1),
            Self::LargeNamespaces => numbered(n % 100, n / 100 % 100 + 1),
            Self::OneNamespace => ("one".to_owned(), "app-1".to_owned(), "scale-1".to_owned()),
            Self::PolicyPerPod => ("one".to_owned(), "app".to_owned(), own_label(n % 10_000)),
            Self::AcrossNamespaces => (format!("ns-{}", n % 1000), "app".to_owned(), format!("scale-{}", n % 10)),
        }
    }
}

/// The label of a Pod with a label of its own.
fn own_label(n: u32) -> String {
    format!("scale-{}-{n}", Dice(u64::from(n)).roll(u32::MAX))
}

/// Namespaces with several kinds of Pods, a policy for each kind and a default-deny policy.
fn namespaced(namespaces: u32, kinds: u32, pods: u32, mut dice: Dice) -> Events {
    let name = |n: u32| format!("ns-{n}");
    let all = move || (0..namespaces).map(name);
    let label = |kind: u32| (format!("app-{kind}"), format!("scale-{kind}"));
    let of_kinds = move |namespace: String| (1..=kinds).map(move |kind| (namespace.clone(), kind));
    let pods = all().flat_map(of_kinds).flat_map(move |(namespace, kind)| {
        (0..pods).map(move |n| (namespace.clone(), kind, format!("pod-{kind}-{n}")))
    });
    let pods = pods.map(move |(namespace, kind, name)| {
        let (key, value) = label(kind);
        pod(&namespace, name, labels(&key, value), &mut dice)
    });
    let policies = all().flat_map(move |namespace| {
        let deny = default_deny(&namespace);
        let allow = of_kinds(namespace).map(move |(namespace, kind)| {
            let (key, value) = label(kind);
            let own = || selector(&key, value.clone());
            policy(&namespace, format!("np-{kind}"), own(), pods_of(own()))
        });
        [deny].into_iter().chain(allow)
    });
    let namespaces = all().map(|name| namespace(&name, labels("app", name.clone())));
    Box::new(namespaces.chain(pods).chain(policies))
}
