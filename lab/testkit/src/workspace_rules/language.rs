//! The language of comments, messages, names and documents: the words that CONTRIBUTING.md advises against, and rustdoc
//! that is too short to say anything. Both are a ratchet: `language-budget.txt` has what each directory still contains,
//! and may only shrink.

use std::collections::{BTreeMap, BTreeSet};

use super::source::{Kind, Piece, pieces};

/// Words and phrases with a better one in the glossary. Case and punctuation do not matter.
const WORDS: &[&str] = &[
    "anew",
    "anybody",
    "cable",
    "cables",
    "ethernet address",
    "ethernet addresses",
    "everybody",
    "house",
    "nobody",
    "of whose",
    "patience",
    "somebody",
    "told",
    "what follows",
    "whence",
    "whoever",
    "whom",
    "whomever",
];

/// These name the words in order to advise against them.
const EXEMPT: &[&str] = &["CONTRIBUTING.md", "lab/testkit/src/workspace_rules/language.rs"];

/// A doc comment with this many words says no more than the name below it.
const TOO_SHORT: usize = 3;

/// What is looked for; the budget has a line for each directory and rule.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Rule {
    /// A word of [`WORDS`] in a comment, a string literal or a document.
    Words,
    /// Such a word in the name of a function, type or module.
    Names,
    /// A doc comment of at most [`TOO_SHORT`] words.
    ShortDocs,
}
use Rule::{Names, ShortDocs, Words};

impl Rule {
    const ALL: [Self; 3] = [Words, Names, ShortDocs];

    fn key(self) -> &'static str {
        match self {
            Words => "words",
            Names => "names",
            ShortDocs => "short-docs",
        }
    }

    fn fix(self) -> &'static str {
        match self {
            Words | Names => "take the term from the glossary in CONTRIBUTING.md",
            ShortDocs => "say what the name does not, or delete the comment",
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Finding {
    rule: Rule,
    directory: String,
    /// `file:line: text`.
    place: String,
}

impl Finding {
    fn new(rule: Rule, path: &str, line: usize, text: &str) -> Self {
        Self { rule, directory: directory(path), place: format!("{path}:{line}: `{text}`") }
    }
}

/// How many findings each directory may have.
pub(super) type Budget = BTreeMap<(String, Rule), usize>;

/// The findings in a file, of which `path` says how to read it.
pub(super) fn findings(path: &str, text: &str) -> Vec<Finding> {
    let generated = text.lines().take(5).any(|line| line.contains("@generated"));
    if EXEMPT.contains(&path) || generated {
        return vec![];
    }
    if path.ends_with(".rs") { rust(path, text) } else { plain(path, text) }
}

/// Whether `path` is a text that people read: source, documents, manifests, scripts.
pub(super) fn is_read(path: &str) -> bool {
    let endings = [".rs", ".md", ".toml", ".proto", "Makefile", ".ci/run", "Dockerfile", ".service"];
    endings.iter().any(|ending| path.ends_with(ending)) || path.starts_with("scripts/") || path.starts_with("deploy/")
}

/// The directory that a file counts for: a crate, or a directory at the top.
fn directory(path: &str) -> String {
    let parts: Vec<_> = path.split('/').collect();
    match parts.as_slice() {
        [_] => ".".into(),
        ["crates" | "bins" | "lab", name, ..] => format!("{}/{name}", parts[0]),
        [first, ..] => (*first).into(),
        [] => String::new(),
    }
}

fn rust(path: &str, text: &str) -> Vec<Finding> {
    let mut found = Vec::new();
    for block in blocks(&pieces(text)) {
        match block.kind {
            Kind::Code => found.extend(names(path, &block)),
            kind => {
                found.extend(words(&block.text).into_iter().map(|word| Finding::new(Words, path, block.line, word)));
                let said = block.text.trim_matches(|c: char| "/! \n".contains(c));
                if kind == Kind::Doc && said.split_whitespace().count() <= TOO_SHORT {
                    found.push(Finding::new(ShortDocs, path, block.line, &said.replace('\n', "")));
                }
            }
        }
    }
    found
}

/// A run of comment lines, a literal, or code.
struct Block {
    kind: Kind,
    line: usize,
    text: String,
}

fn blocks(pieces: &[Piece<'_>]) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut gap = false;
    for piece in pieces {
        if piece.kind == Kind::Code && piece.text.trim().is_empty() {
            gap = piece.text.matches('\n').count() > 1;
            continue;
        }
        let comment = matches!(piece.kind, Kind::Doc | Kind::Comment);
        match blocks.last_mut() {
            Some(last) if comment && last.kind == piece.kind && !gap => {
                last.text += "\n";
                last.text += piece.text.trim_start_matches(['/', '!']);
            }
            _ => blocks.push(Block { kind: piece.kind, line: piece.line, text: piece.text.into() }),
        }
        gap = false;
    }
    blocks
}

/// Declared functions, types and modules with such a word in their name.
fn names(path: &str, code: &Block) -> Vec<Finding> {
    let declares = ["fn", "struct", "enum", "trait", "mod", "type", "const", "static"];
    let mut found = Vec::new();
    for (number, line) in code.text.lines().enumerate() {
        let tokens: Vec<_> =
            line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|token| !token.is_empty()).collect();
        let declared = tokens.windows(2).find(|pair| declares.contains(&pair[0])).map(|pair| pair[1]);
        let bad = declared.filter(|name| !words(name).is_empty());
        found.extend(bad.map(|name| Finding::new(Names, path, code.line + number, name)));
    }
    found
}

/// Markdown without its code blocks, and other texts as they are.
fn plain(path: &str, text: &str) -> Vec<Finding> {
    let (mut fenced, mut found) = (false, Vec::new());
    for (number, line) in text.lines().enumerate() {
        let fence = path.ends_with(".md") && line.trim_start().starts_with("```");
        fenced ^= fence;
        if !fenced && !fence {
            found.extend(words(line).into_iter().map(|word| Finding::new(Words, path, number + 1, word)));
        }
    }
    found
}

/// The words of `WORDS` in a text, in order.
fn words(text: &str) -> Vec<&'static str> {
    let text: Vec<_> = text.split(|c: char| !c.is_alphabetic()).filter(|word| !word.is_empty()).collect();
    let begins_with = |text: &[&str], phrase: &str| {
        let mut text = text.iter();
        phrase.split(' ').all(|word| text.next().is_some_and(|next| next.eq_ignore_ascii_case(word)))
    };
    let at = |at: usize| WORDS.iter().find(|phrase| begins_with(&text[at..], phrase)).copied();
    (0..text.len()).filter_map(at).collect()
}

pub(super) fn count(findings: &[Finding]) -> Budget {
    let mut counts = Budget::new();
    for finding in findings {
        *counts.entry((finding.directory.clone(), finding.rule)).or_default() += 1;
    }
    counts
}

/// A complaint for each directory that has more findings than its budget, or fewer.
pub(super) fn complaints(budget: &Budget, findings: &[Finding]) -> Vec<String> {
    let counts = count(findings);
    let mut complaints = Vec::new();
    let keys: BTreeSet<_> = budget.keys().chain(counts.keys()).collect();
    for key in keys {
        let (directory, rule) = key;
        let allowed = budget.get(key).copied().unwrap_or_default();
        let found = counts.get(key).copied().unwrap_or_default();
        let name = rule.key();
        if found > allowed {
            let here = findings.iter().filter(|finding| (&finding.directory, finding.rule) == (directory, *rule));
            let places: String = here.map(|finding| format!("\n  {}", finding.place)).collect();
            complaints
                .push(format!("{directory}: {name}: {found} found, {allowed} allowed.\nFix: {}:{places}", rule.fix()));
        } else if found < allowed {
            let fix = "lower the budget: `make language-budget` does it";
            complaints
                .push(format!("{directory}: {name}: {found} found, fewer than the {allowed} allowed.\nFix: {fix}."));
        }
    }
    complaints
}

/// The budget with everything lowered to what was found, and nothing raised.
pub(super) fn lowered(budget: &Budget, findings: &[Finding]) -> Budget {
    let counts = count(findings);
    let least = |(key, allowed): (&(String, Rule), &usize)| {
        let found = counts.get(key).copied().unwrap_or_default();
        (key.clone(), found.min(*allowed))
    };
    budget.iter().map(least).filter(|(_, allowed)| *allowed > 0).collect()
}

/// Reads lines such as `crates/node words 12`; `#` begins a comment.
pub(super) fn parse(text: &str) -> Result<Budget, String> {
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    let entry = |line: &str| {
        let parts: Vec<_> = line.split_whitespace().collect();
        let [directory, key, number] = parts.as_slice() else { return None };
        let rule = Rule::ALL.into_iter().find(|rule| rule.key() == *key)?;
        Some((((*directory).to_owned(), rule), number.parse().ok()?))
    };
    lines.map(|line| entry(line).ok_or_else(|| format!("`{line}` is not `DIRECTORY RULE NUMBER`"))).collect()
}

/// The text that [`parse`] reads.
pub(super) fn render(budget: &Budget) -> String {
    let mut text = String::from(HEADER);
    for ((directory, rule), allowed) in budget {
        text += &format!("{directory} {} {allowed}\n", rule.key());
    }
    text
}

const HEADER: &str = "\
# What each directory still contains of the words that CONTRIBUTING.md advises against (`words` in comments, string
# literals and documents, `names` of functions, types and modules) and of doc comments of three words or fewer
# (`short-docs`). The numbers may only shrink: `make language-budget` lowers them to what is there. To list the places of
# one line, set its number to 0 and run `cargo test -p testkit workspace_rules`.
";

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<(Rule, String)> {
        findings(path, text).into_iter().map(|finding| (finding.rule, finding.place)).collect()
    }

    #[test]
    fn words_are_found_in_comments_literals_and_declared_names() {
        let source = "/// Answers every question of\n/// whoever asks.\nfn nobody_waits(patience: u8) {\n    warn!(\"Agents are told\"); // anew\n}\n";
        let expected = [
            (Words, "crates/a/src/b.rs:1: `whoever`"),
            (Names, "crates/a/src/b.rs:3: `nobody_waits`"),
            (Words, "crates/a/src/b.rs:4: `told`"),
            (Words, "crates/a/src/b.rs:4: `anew`"),
        ];
        assert_eq!(found("crates/a/src/b.rs", source), expected.map(|(rule, place)| (rule, place.to_owned())));
        assert_eq!(found("crates/a/src/b.rs", &format!("// @generated\n{source}")), []);
    }

    #[test]
    fn a_phrase_is_found_across_lines() {
        let source = "// Its ethernet\n// address.\n";
        assert_eq!(found("a/b.rs", source), [(Words, "a/b.rs:1: `ethernet address`".to_owned())]);
        assert_eq!(found("a/b.rs", "// retold, untold\n"), []);
    }

    #[test]
    fn short_doc_comments_are_found_but_not_short_last_lines() {
        let source =
            "/// Its name.\nname: u8,\n/// The name of the Node, as Kubernetes\n/// has it.\nnode: u8,\n// Plain.\n";
        assert_eq!(found("a/b.rs", source), [(ShortDocs, "a/b.rs:1: `Its name.`".to_owned())]);
    }

    #[test]
    fn markdown_is_read_without_its_code_blocks() {
        let text = "Nobody.\n```console\nnobody\n```\nWhoever.\n";
        let expected = [(Words, "docs/a.md:1: `nobody`".to_owned()), (Words, "docs/a.md:5: `whoever`".to_owned())];
        assert_eq!(found("docs/a.md", text), expected);
    }

    #[test]
    fn a_budget_that_is_too_small_or_too_large_is_a_complaint() {
        let findings = findings("crates/a/src/b.rs", "// nobody, somebody\n");
        let budget = |number| parse(&format!("# comment\ncrates/a words {number}\n")).unwrap();
        assert_eq!(complaints(&budget(2), &findings), Vec::<String>::new());
        let above = complaints(&budget(1), &findings).join("");
        assert!(above.contains("2 found, 1 allowed") && above.contains("crates/a/src/b.rs:1: `somebody`"), "{above}");
        assert!(complaints(&Budget::new(), &findings).join("").contains("0 allowed"));
        assert!(complaints(&budget(3), &findings).join("").contains("fewer than the 3 allowed"));
    }

    #[test]
    fn a_budget_is_lowered_and_never_raised() {
        let findings = findings("crates/a/src/b.rs", "// nobody, somebody\n");
        let budget = parse("crates/a words 3\ncrates/b names 1\n").unwrap();
        assert_eq!(lowered(&budget, &findings), parse("crates/a words 2").unwrap());
        assert_eq!(lowered(&parse("crates/a words 1").unwrap(), &findings), parse("crates/a words 1").unwrap());
        assert_eq!(parse(&render(&budget)), Ok(budget));
        assert!(parse("crates/a words").unwrap_err().contains("`crates/a words`"));
    }
}
