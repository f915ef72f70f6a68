//! Golden files: scenarios with the flows of a reference document, and our differing flows.
//!
//! ```text
//! # A comment. Settings before the first heading hold for all fragments, unless a fragment has the same key.
//! gateway: port=2 mac=ea:b8:5e:a6:c2:4c ip=10.10.0.1
//!
//! == ConntrackTable (30)
//! feature: antreaProxy
//! - table=30, priority=200,ip actions=ct(table=31,zone=65520)        # P1
//! + table=30, priority=200,ip actions=ct(table=31,zone=65520,nat)    # P1
//! ```
//!
//! A flow or group has two characters before it: `  ` in the document and in ours, `- ` in the document only, `+ ` in ours only
//! (both with the errata that are the reason), `= ` in ours, while the document only describes it.

use std::collections::BTreeMap;
use std::fmt;

use openflow::flow::Flow;
use openflow::group::Group;

/// Which side has a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Side {
    Both,
    Document,
    Ours,
    Words,
}

impl Side {
    const ALL: [(Side, &str); 4] =
        [(Side::Both, "  "), (Side::Document, "- "), (Side::Ours, "+ "), (Side::Words, "= ")];

    fn prefix(self) -> &'static str {
        Self::ALL.iter().find(|(side, _)| *side == self).unwrap().1
    }

    pub(super) fn is_ours(self) -> bool {
        self != Side::Document
    }
}

/// A flow or a group; cookies of flows are left out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Entry {
    Flow(Flow),
    Group(Group),
}

impl Entry {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let entry = if text.starts_with("group_id=") {
            text.parse().map(Entry::Group)
        } else {
            text.parse().map(|flow: Flow| Entry::Flow(flow.cookie(0)))
        };
        entry.map_err(|e| format!("`{text}`: {e}"))
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Entry::Flow(flow) => flow.fmt(f),
            Entry::Group(group) => group.fmt(f),
        }
    }
}

/// A line with a flow or a group.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) side: Side,
    pub(super) text: String,
    /// Errata, or the description in the document.
    pub(super) note: String,
}

impl Line {
    pub(super) fn errata(&self) -> impl Iterator<Item = &str> {
        let named = matches!(self.side, Side::Document | Side::Ours);
        self.note.split_whitespace().filter(move |_| named)
    }
}

/// A part of a file; parts are kept in order, so that the file can be written as it was read.
#[derive(Clone, Debug)]
enum Item {
    /// A comment or an empty line.
    Text(String),
    Heading(String),
    Setting(String, String),
    Line(Line),
}

pub(super) type Settings = BTreeMap<String, Vec<String>>;

/// A table in a scenario.
#[derive(Debug)]
pub(super) struct Fragment {
    pub(super) title: String,
    pub(super) table: u8,
    pub(super) settings: Settings,
    pub(super) lines: Vec<Line>,
}

pub(super) struct Golden {
    items: Vec<Item>,
}

impl Golden {
    pub(super) fn parse(text: &str) -> Self {
        Self { items: text.lines().map(parse_line).collect() }
    }

    /// Settings of all fragments.
    pub(super) fn defaults(&self) -> Settings {
        let mut settings = Settings::new();
        for item in self.items.iter().take_while(|item| !matches!(item, Item::Heading(_))) {
            if let Item::Setting(key, value) = item {
                settings.entry(key.clone()).or_default().push(value.clone());
            }
        }
        settings
    }

    pub(super) fn fragments(&self) -> Vec<Fragment> {
        let mut fragments: Vec<Fragment> = Vec::new();
        for item in &self.items {
            match (item, fragments.last_mut()) {
                (Item::Heading(title), _) => fragments.push(Fragment {
                    title: title.clone(),
                    table: table(title),
                    settings: Settings::new(),
                    lines: Vec::new(),
                }),
                (Item::Setting(key, value), Some(fragment)) => {
                    fragment.settings.entry(key.clone()).or_default().push(value.clone());
                }
                (Item::Line(line), Some(fragment)) => fragment.lines.push(line.clone()),
                (Item::Line(line), None) => panic!("`{}` stands before the first heading", line.text),
                (Item::Setting(..), None) | (Item::Text(_), _) => {}
            }
        }
        for fragment in &mut fragments {
            for (key, values) in self.defaults() {
                fragment.settings.entry(key).or_insert(values);
            }
        }
        fragments
    }

    /// The file with our side updated: `ours` compiles the scenario of a fragment. The document's flows and existing reasons
    /// stay, and no reasons are added.
    pub(super) fn updated(&self, ours: impl Fn(&Fragment) -> Vec<Entry>) -> String {
        let fragments = self.fragments();
        let mut compiled = fragments.iter().map(&ours);
        let mut current: Vec<Entry> = Vec::new();
        let mut out: Vec<Item> = Vec::new();
        for item in &self.items {
            match item {
                Item::Heading(_) => {
                    append(&mut out, std::mem::take(&mut current));
                    current = compiled.next().unwrap();
                    out.push(item.clone());
                }
                Item::Line(line) => {
                    let here = Entry::parse(&line.text).ok().and_then(|e| current.iter().position(|c| *c == e));
                    if let Some(at) = here {
                        current.remove(at);
                    }
                    let side = match (line.side, here.is_some()) {
                        (Side::Both | Side::Document, true) => Side::Both,
                        (Side::Both | Side::Document, false) => Side::Document,
                        (Side::Ours | Side::Words, true) => line.side,
                        (Side::Ours | Side::Words, false) => continue,
                    };
                    let note = if side == Side::Both { String::new() } else { line.note.clone() };
                    out.push(Item::Line(Line { side, note, text: line.text.clone() }));
                }
                Item::Text(_) | Item::Setting(..) => out.push(item.clone()),
            }
        }
        append(&mut out, current);
        out.iter().map(|item| format!("{item}\n")).collect()
    }
}

/// Inserts new flows after the last line of a fragment.
fn append(items: &mut Vec<Item>, entries: Vec<Entry>) {
    let last = items.iter().rposition(|item| !matches!(item, Item::Text(_)));
    let at = last.map_or(0, |last| last + 1);
    let lines = entries.iter().map(|entry| Line { side: Side::Ours, text: entry.to_string(), note: String::new() });
    items.splice(at..at, lines.map(Item::Line));
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Item::Text(text) => f.write_str(text),
            Item::Heading(title) => write!(f, "== {title}"),
            Item::Setting(key, value) => write!(f, "{key}: {value}"),
            Item::Line(line) => {
                write!(f, "{}{}", line.side.prefix(), line.text)?;
                if line.note.is_empty() { Ok(()) } else { write!(f, "  # {}", line.note) }
            }
        }
    }
}

fn parse_line(line: &str) -> Item {
    if line.trim().is_empty() || line.starts_with('#') {
        return Item::Text(line.to_owned());
    }
    if let Some(title) = line.strip_prefix("== ") {
        return Item::Heading(title.to_owned());
    }
    for (side, prefix) in Side::ALL {
        if let Some(rest) = line.strip_prefix(prefix) {
            let (text, note) = rest.split_once('#').unwrap_or((rest, ""));
            return Item::Line(Line { side, text: text.trim().to_owned(), note: note.trim().to_owned() });
        }
    }
    let Some((key, value)) = line.split_once(": ") else { panic!("`{line}` is neither a flow nor a setting") };
    Item::Setting(key.to_owned(), value.to_owned())
}

/// The number in `ConntrackTable (30)`, ignoring the rest of the line.
fn table(title: &str) -> u8 {
    let number = title.split_once('(').and_then(|(_, rest)| rest.split_once(')')).map(|(number, _)| number);
    number.and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("`{title}` has no table number"))
}
