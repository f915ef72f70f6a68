//! Recorded answers of the real server: a file for each area, a line for each step.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use crate::answer::Answer;
use crate::area::{Area, data};
use crate::diff::{Allowance, Report, compare};
use crate::http::Server;
use crate::run::run;

/// Runs `area` against `server`, and compares with the recorded answers.
pub fn check(area: &Area, server: &Server, allowed: &[Allowance]) -> Result<Report> {
    Ok(compare(&area.name, &golden(area)?, &run(area, server), allowed))
}

/// The recorded answers of the real server to the steps of `area`.
pub fn golden(area: &Area) -> Result<Vec<Answer>> {
    let file = file(area);
    let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let answers: Vec<Answer> = serde_json::from_str(&text).with_context(|| format!("{} is damaged", file.display()))?;
    let current = answers.iter().map(|answer| &answer.step).eq(area.steps.iter().map(|step| &step.step));
    ensure!(current, "the steps of {} have changed: record them again with `RECORD=1 make test-kubernetes`", area.name);
    Ok(answers)
}

/// Records `answers` as those of the real server.
pub fn record(area: &Area, answers: &[Answer]) -> Result<()> {
    let lines = answers.iter().map(serde_json::to_string).collect::<Result<Vec<_>, _>>()?;
    let file = file(area);
    fs::write(&file, format!("[\n{}\n]\n", lines.join(",\n")))
        .with_context(|| format!("cannot write {}", file.display()))
}

fn file(area: &Area) -> PathBuf {
    data().join("golden").join(format!("{}.json", area.name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::area::areas;

    #[test]
    fn every_area_has_recorded_answers() {
        for area in areas().unwrap() {
            golden(&area).unwrap();
        }
    }
}
