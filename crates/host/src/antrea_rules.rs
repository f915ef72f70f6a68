//! The iptables rules that Antrea leaves on a Node: found by the names of their chains, and removed.
//!
//! They would translate addresses that our nftables rules translate, by sets of Nodes and NodePorts that no agent updates any more.

use std::io;
use std::process::Output;

use crate::error::Error;
use crate::program::{self, message};

/// All chains of Antrea begin with it.
const PREFIX: &str = "ANTREA-";
/// The variants of iptables; a Node may have rules of several.
const VARIANTS: [Variant; 4] = [
    Variant { program: "iptables-nft", tables: None },
    Variant { program: "ip6tables-nft", tables: None },
    Variant { program: "iptables-legacy", tables: Some("/proc/net/ip_tables_names") },
    Variant { program: "ip6tables-legacy", tables: Some("/proc/net/ip6_tables_names") },
];

struct Variant {
    program: &'static str,
    /// File that is empty while the kernel has no such rules. The program would load modules of the kernel to find out.
    tables: Option<&'static str>,
}

/// What removing the rules of Antrea takes, by the output of `iptables-save`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Removal {
    /// Chains to remove, each as `table/chain`.
    chains: Vec<String>,
    /// Chains that stay: the Node drops forwarded packets that no rule accepts, and these accept those of Pods.
    kept: Vec<String>,
    /// Input of `iptables-restore --noflush`.
    script: String,
}

/// The chains of Antrea that were removed, and those that were kept.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Removed {
    /// Removed chains as `program table/chain`.
    pub chains: Vec<String>,
    /// Chains that stay, because the Node drops forwarded packets that no rule accepts.
    pub kept: Vec<String>,
}

/// Removes the rules of Antrea in the namespace of the calling thread. Variants of iptables that are not installed are skipped.
pub fn remove() -> Result<Removed, Error> {
    let mut all = Removed::default();
    for Variant { program, tables } in VARIANTS {
        if tables.is_some_and(|path| std::fs::read_to_string(path).unwrap_or_default().is_empty()) {
            continue;
        }
        let doing = format!("cannot list the rules of Antrea with {program}");
        let Some(saved) = run(&format!("{program}-save"), &[], "").map_err(Error::io(doing))? else { continue };
        let removal = Removal::of(&String::from_utf8_lossy(&saved.stdout));
        let named = |chains: Vec<String>| chains.into_iter().map(|chain| format!("{program} {chain}"));
        if !removal.script.is_empty() {
            let doing = format!("cannot remove the rules of Antrea with {program}");
            let done = run(&format!("{program}-restore"), &["--noflush"], &removal.script);
            if let Some(output) = done.map_err(Error::io(doing.clone()))?.filter(|output| !output.status.success()) {
                return Err(Error::Iptables { doing, said: message(&output) });
            }
        }
        all.chains.extend(named(removal.chains));
        all.kept.extend(named(removal.kept));
    }
    Ok(all)
}

impl Removal {
    fn of(saved: &str) -> Self {
        let mut removal = Self::default();
        for table in saved.split("\n*").map(|text| text.strip_prefix('*').unwrap_or(text)) {
            removal.add_table(table);
        }
        removal
    }

    /// A table: its name, a line `:CHAIN POLICY [0:0]` for each chain, and its rules.
    fn add_table(&mut self, text: &str) {
        let mut lines = text.lines().skip_while(|line| line.starts_with('#') || line.is_empty());
        let Some(name) = lines.next().map(|name| name.trim_start_matches('*')) else { return };
        let is_ours = |chain: &str| chain.starts_with(PREFIX);
        let (mut chains, mut jumps) = (Vec::new(), Vec::new());
        let mut drops = false;
        for line in lines {
            if let Some(chain) = line.strip_prefix(':') {
                let mut words = chain.split(' ');
                let (chain, policy) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
                drops |= name == "filter" && chain == "FORWARD" && policy == "DROP";
                chains.extend(is_ours(chain).then_some(chain));
            } else if let Some(rule) = line.strip_prefix("-A ") {
                let target = rule.split(" -j ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap_or_default();
                let from = rule.split(' ').next().unwrap_or_default();
                jumps.extend((is_ours(target) && !is_ours(from)).then_some(rule));
            }
        }
        let named = chains.iter().map(|chain| format!("{name}/{chain}"));
        if drops {
            self.kept.extend(named);
        } else if !chains.is_empty() {
            self.chains.extend(named);
            let jumps = jumps.into_iter().map(|rule| format!("-D {rule}\n"));
            // A chain can be deleted when no other refers to it.
            let flushed = chains.iter().map(|chain| format!("-F {chain}\n"));
            let deleted = chains.iter().map(|chain| format!("-X {chain}\n"));
            let lines: String = jumps.chain(flushed).chain(deleted).collect();
            self.script.push_str(&format!("*{name}\n{lines}COMMIT\n"));
        }
    }
}

/// Runs a program with this input; `None` if it is not installed.
fn run(program: &str, arguments: &[&str], input: &str) -> io::Result<Option<Output>> {
    match program::run(program, arguments, input) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        done => done.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAVED: &str = r#"# Generated by iptables-nft-save v1.8.9
*nat
:PREROUTING ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
:ANTREA-POSTROUTING - [0:0]
:CNI-HOSTPORT-DNAT - [0:0]
-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT
-A POSTROUTING -m comment --comment "Antrea: jump to Antrea postrouting rules" -j ANTREA-POSTROUTING
-A ANTREA-POSTROUTING -s 10.10.1.0/24 ! -o antrea-gw0 -j MASQUERADE
COMMIT
# Completed
*filter
:FORWARD ACCEPT [0:0]
:ANTREA-FORWARD - [0:0]
-A FORWARD -j ANTREA-FORWARD
-A ANTREA-FORWARD -i antrea-gw0 -j ACCEPT
COMMIT
"#;

    #[test]
    fn chains_of_antrea_are_removed_with_the_jumps_to_them() {
        let removal = Removal::of(SAVED);
        assert_eq!(removal.chains, ["nat/ANTREA-POSTROUTING", "filter/ANTREA-FORWARD"]);
        assert_eq!(
            removal.script,
            "*nat\n-D POSTROUTING -m comment --comment \"Antrea: jump to Antrea postrouting rules\" -j ANTREA-POSTROUTING\n\
             -F ANTREA-POSTROUTING\n-X ANTREA-POSTROUTING\nCOMMIT\n\
             *filter\n-D FORWARD -j ANTREA-FORWARD\n-F ANTREA-FORWARD\n-X ANTREA-FORWARD\nCOMMIT\n"
        );
    }

    #[test]
    fn chains_that_accept_packets_of_pods_stay_where_others_would_drop_them() {
        let removal = Removal::of(&SAVED.replace(":FORWARD ACCEPT", ":FORWARD DROP"));
        assert_eq!(removal.kept, ["filter/ANTREA-FORWARD"]);
        assert!(!removal.script.contains("filter"), "{}", removal.script);
    }

    #[test]
    fn rules_of_other_programs_stay() {
        let others = SAVED.replace("ANTREA-", "OTHER-");
        assert_eq!(Removal::of(&others), Removal::default());
        assert_eq!(Removal::of(""), Removal::default());
    }
}
