//! Attacks in a lab: runs every attack of the catalogue while victims have allowed traffic, and prints a table of the effects.
//!
//! `make test` runs the short version. `RED_TEAM=long` (`make red-team`) runs everything, in every mode of traffic, at full size;
//! `ATTACK=text` only the attacks with this text in the name, `MODE=name` only in that mode.

mod api_user;
mod attack;
mod clocks;
mod controller;
mod field;
mod floods;
mod frames;
mod hosts;
mod node_process;
mod reuse;
mod table;
mod tunnels;
mod wire;

use attack::Attack;
use field::{Field, Mode};
use table::{HEAD, Row};

/// All attacks, in order: those that may break the lab come last.
const CATALOGUE: &[&[Attack]] = &[
    frames::CATALOGUE,
    tunnels::CATALOGUE,
    hosts::CATALOGUE,
    floods::CATALOGUE,
    reuse::CATALOGUE,
    node_process::CATALOGUE,
    controller::CATALOGUE,
    api_user::CATALOGUE,
    clocks::CATALOGUE,
];

fn is_long() -> bool {
    std::env::var("RED_TEAM").is_ok_and(|value| value == "long")
}

fn is_wanted(attack: &Attack) -> bool {
    std::env::var("ATTACK").map_or(true, |text| attack.name.contains(&text))
}

/// Runs all attacks in one mode. Returns a row for each.
fn attack(name: &'static str, mode: Mode) -> Vec<Row> {
    let long = is_long();
    let chosen: Vec<(usize, &Attack)> = CATALOGUE
        .iter()
        .flat_map(|part| part.iter())
        .enumerate()
        .filter(|(_, attack)| (attack.short || long) && is_wanted(attack))
        .collect();
    let mut field = Field::start(name, mode);
    println!("{HEAD}");
    // In `make test` other tests keep the processors busy.
    let limit = if long { 1.0 } else { 20.0 };
    let mut rows = Vec::new();
    for (number, attack) in chosen {
        let (effect, begun, ended) = attack.run(&field, number, if long { 10 } else { 1 });
        let (messages, lost) =
            field.streams.iter().map(|stream| stream.between(begun, ended)).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        let undefended = attack.undefended.contains(&mode);
        let took = ended - begun;
        let row =
            Row { name: attack.name, attacker: attack.attacker, mode, undefended, effect, messages, lost, took, limit };
        println!("{}", row.line());
        rows.push(row);
    }
    for stream in field.streams.drain(..) {
        let noticed = stream.end();
        println!(
            "{}: {} messages, {} lost, longest gap {:?}",
            noticed.what,
            noticed.sent,
            noticed.lost.len(),
            noticed.longest
        );
    }
    rows
}

fn passes(rows: &[Row]) {
    println!("\n{HEAD}\n{}", rows.iter().map(Row::line).collect::<Vec<_>>().join("\n"));
    let broken: Vec<String> = rows.iter().filter(|row| !row.held()).map(Row::line).collect();
    println!("{} attempts, {} with success", rows.len(), broken.len());
    assert!(broken.is_empty(), "an attacker had success:\n{HEAD}\n{}", broken.join("\n"));
}

#[test]
fn no_attack_of_the_catalogue_has_an_effect() {
    if !is_long() {
        return passes(&attack("red-team", Mode::Encap));
    }
    let modes = Mode::ALL.iter().filter(|mode| std::env::var("MODE").map_or(true, |name| name == mode.name()));
    passes(&modes.flat_map(|mode| attack("red-team", *mode)).collect::<Vec<_>>());
}
