//! How a golden file differs from what came of its scenario: only the parts that differ, each below its step, Node and object.

use std::collections::BTreeSet;

/// The lines of a file with the headings that they stand below.
fn sections(text: &str) -> Vec<(Vec<&str>, &str)> {
    let mut headings: Vec<&str> = Vec::new();
    let mut lines = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        let level = match line {
            line if line.starts_with("== ") => 0,
            line if line.starts_with("-- ") => 1,
            line if line.starts_with(' ') => 3,
            _ => 2,
        };
        headings.truncate(level);
        if level == 3 {
            lines.push((headings.clone(), line));
        } else {
            headings.push(line);
            lines.push((headings.clone(), ""));
        }
    }
    lines
}

/// What differs, below its headings.
pub(crate) fn difference(expected: &str, actual: &str) -> String {
    let (old, new) = (sections(expected), sections(actual));
    let (before, after): (BTreeSet<_>, BTreeSet<_>) = (old.iter().collect(), new.iter().collect());
    let mut text = String::new();
    let mut shown: Vec<&str> = Vec::new();
    let changes = old.iter().filter(|line| !after.contains(line)).map(|line| ('-', line));
    let changes = changes.chain(new.iter().filter(|line| !before.contains(line)).map(|line| ('+', line)));
    let mut changes: Vec<_> = changes.collect();
    changes.sort_by(|a, b| a.1.0.cmp(&b.1.0));
    for (sign, (headings, line)) in changes {
        if *headings != shown {
            shown.clone_from(headings);
            text += &format!("    {}\n", headings.join(" / "));
        }
        if !line.is_empty() {
            text += &format!("      {sign} {}\n", line.trim());
        }
    }
    text
}
