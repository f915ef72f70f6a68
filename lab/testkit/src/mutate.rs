//! A short, deterministic fuzzer: stored inputs and mutations of them.

use std::fs;
use std::panic::catch_unwind;
use std::path::Path;

use anyhow::{Context, Result, anyhow};

use crate::dice::Dice;

/// Checks a fuzz property, which panics where it does not hold: on what `fuzz/seeds` and `fuzz/regressions` keep for
/// `target`, on `more` inputs, and on `count` of all these with a few bytes changed or one of `tokens` put in.
pub fn check_property(
    target: &str,
    check: fn(&[u8]),
    more: Vec<Vec<u8>>,
    tokens: &[&[u8]],
    count: usize,
) -> Result<()> {
    let mut inputs = more;
    for kind in ["seeds", "regressions"] {
        for (name, input) in files(&Path::new("fuzz").join(kind).join(target))? {
            run(check, &input).with_context(|| name)?;
            inputs.push(input);
        }
    }
    for input in &inputs {
        run(check, input)?;
    }
    let mut dice = Dice::new(0);
    for _ in 0..count {
        if let Some(input) = inputs.get(dice.below(inputs.len())) {
            run(check, &mutate(&mut dice, input, tokens))?;
        }
    }
    Ok(())
}

fn run(check: fn(&[u8]), input: &[u8]) -> Result<()> {
    catch_unwind(|| check(input)).map_err(|_| anyhow!("the property does not hold for b\"{}\"", input.escape_ascii()))
}

/// The files of a directory of the repository, sorted by name; none if it does not exist.
fn files(dir: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let Ok(entries) = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(dir)) else {
        return Ok(Vec::new());
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.with_context(|| format!("list {}", dir.display()))?.path();
        files.push((path.display().to_string(), fs::read(&path).with_context(|| path.display().to_string())?));
    }
    files.sort();
    Ok(files)
}

/// The input with a few bytes changed, moved, or cut out, or one of `tokens` put in.
pub fn mutate(dice: &mut Dice, input: &[u8], tokens: &[&[u8]]) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..=dice.below(4) {
        let at = dice.below(bytes.len() + 1);
        let to = (at + dice.below(20)).min(bytes.len());
        let piece = bytes.get(at..to).unwrap_or_default().to_vec();
        match dice.below(6) {
            0 => drop(bytes.drain(at..to)),
            1 => {
                let at = dice.below(bytes.len() + 1);
                bytes.splice(at..at, piece);
            }
            2 if !tokens.is_empty() => {
                let token = tokens.get(dice.below(tokens.len())).copied().unwrap_or_default();
                bytes.splice(at..at, token.iter().copied());
            }
            choice => {
                let (random, bit) = (dice.byte(), 1 << dice.below(8));
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = if choice < 4 { random } else { *byte ^ bit };
                }
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_property_that_fails_shows_the_input() {
        let check = |input: &[u8]| assert!(input.len() < 4 || input.starts_with(b"text"));
        let error = check_property("none", check, vec![b"text".to_vec()], &[b"<>"], 1000).unwrap_err();
        assert!(error.to_string().starts_with("the property does not hold for b\""), "{error}");
        check_property("none", |_| (), vec![], &[], 10).unwrap();
    }
}
