//! The demo, with its matrix of connections as its policies allow them.

use crate::agent::network;
use crate::lab::output;

/// Sources by the beginning of their names, and what they reach: DNS, two back ends, the database, three front ends; the
/// Services kubernetes, antrea, kube-dns, backend and frontend; the NodePort of the front ends, and a server outside.
///
/// `?` is a connection whose outcome depends on the endpoint or on the Node: a Pod reaches itself through a Service, and the
/// host reaches its own Pods.
const EXPECTED: [(&str, &str); 6] = [
    ("kube-system/dns", "✓---✓✓✓✓✓✓-✓✓✓"),
    ("shop/backend", "✓--✓✓✓✓✓✓✓?✓✓✓"),
    ("shop/database", "✓--✓✓✓✓✓✓✓-✓✓✓"),
    ("shop/frontend", "✓✓✓-✓✓✓✓✓✓✓✓✓✓"),
    ("node/node-1", "✓???✓✓✓✓✓✓?✓✓✓"),
    ("outside/client", "------------✓✓"),
];

#[test]
#[ignore = "part of `make test-kernel`"]
fn the_demo_prints_the_matrix_that_its_policies_allow() {
    let (lab, _) = network("demo", 3, &[]);
    let text = output(&lab.run::<&str>("demo", [])).unwrap();
    println!("{text}");
    let mut sources = 0;
    for line in text.lines().filter(|line| line.contains("  ")) {
        let Some((_, expected)) = EXPECTED.iter().find(|(name, _)| line.starts_with(name)) else { continue };
        let Some((name, cells)) = line.split_once("  ") else { continue };
        let seen: Vec<char> = cells.chars().filter(|sign| !sign.is_whitespace()).collect();
        let agrees = |(seen, expected): (&char, char)| *seen == expected || *seen == '·' || expected == '?';
        assert_eq!(seen.len(), expected.chars().count(), "{line}");
        assert!(seen.iter().zip(expected.chars()).all(agrees), "{name}: expected {expected}\n{text}");
        sources += 1;
    }
    assert_eq!(sources, 9, "{text}");
}
