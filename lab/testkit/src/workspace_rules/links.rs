//! Links between documents lead to files and headings that exist.

use std::collections::BTreeMap;

/// A complaint for each relative link of a Markdown file that leads nowhere. `exists` knows files and directories;
/// `documents` has the text of every Markdown file.
pub(super) fn complaints(
    path: &str,
    documents: &BTreeMap<String, String>,
    exists: impl Fn(&str) -> bool,
) -> Vec<String> {
    let text = documents.get(path).map(String::as_str).unwrap_or_default();
    let mut complaints = Vec::new();
    for link in links(text) {
        let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
        let target = if file.is_empty() { Some(path.to_owned()) } else { resolve(path, file) };
        let complaint =
            |what: String| format!("{path}: the link `{link}` leads to {what}.\nFix: correct it, or remove it.");
        match target {
            Some(target) if target == path || exists(&target) => {
                let headings = documents.get(&target).map(|text| text.lines().filter_map(slug).collect::<Vec<_>>());
                if !anchor.is_empty()
                    && headings.is_some_and(|headings| !headings.iter().any(|heading| heading == anchor))
                {
                    complaints.push(complaint(format!("no heading of {target}")));
                }
            }
            _ => complaints.push(complaint("no file of this repository".into())),
        }
    }
    complaints
}

/// Targets of `](...)` outside of code blocks, without those that leave the repository.
fn links(text: &str) -> Vec<&str> {
    let mut fenced = false;
    let mut links = Vec::new();
    for line in text.lines() {
        fenced ^= line.trim_start().starts_with("```");
        if !fenced {
            let targets = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
            links.extend(targets.filter(|target| !target.contains("://") && !target.starts_with("mailto:")));
        }
    }
    links
}

/// The path in the repository of a link in the document at `from`.
fn resolve(from: &str, link: &str) -> Option<String> {
    let mut parts: Vec<_> = from.split('/').collect();
    parts.pop();
    for part in link.trim_end_matches('/').split('/') {
        match part {
            ".." => drop(parts.pop()?),
            "." => {}
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// The anchor of a line that is a heading, as GitHub makes it.
fn slug(line: &str) -> Option<String> {
    let title = line.strip_prefix('#')?.trim_start_matches('#').strip_prefix(' ')?;
    let kept = title.chars().filter(|c| c.is_alphanumeric() || "-_ ".contains(*c));
    Some(kept.collect::<String>().to_lowercase().replace(' ', "-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> String {
        let documents = [("docs/a.md", text), ("docs/b.md", "## A rule's id, `x_y`: it\n")];
        let documents = documents.map(|(path, text)| (path.to_owned(), text.to_owned())).into();
        complaints("docs/a.md", &documents, |path| ["docs/b.md", "README.md", "crates/api"].contains(&path)).join("\n")
    }

    #[test]
    fn links_lead_to_files_and_headings() {
        let good = "# Top\n[b](b.md) [id](b.md#a-rules-id-x_y-it) [up](../README.md) [dir](../crates/api/) [web](https://a/b) [top](#top)";
        assert_eq!(check(good), "");
        assert_eq!(check("```\n[c](c.md)\n```"), "");
        assert!(check("![picture](c.svg)").contains("`c.svg` leads to no file"));
        assert!(check("[out](../../b.md)").contains("no file"));
        assert!(check("[b](b.md#nothing)").contains("no heading of docs/b.md"));
        assert!(check("[a](#nothing)").contains("no heading of docs/a.md"));
    }
}
