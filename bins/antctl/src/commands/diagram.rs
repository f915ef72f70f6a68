//! Draws the tables of a pipeline as SVG.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use anyhow::Result;
use openflow::action::Action;
use openflow::flow::Flow;
use pipeline::tables::Table;

use crate::state::NodeView;

const COLUMNS: usize = 4;
const BOX: (usize, usize) = (232, 58);
const GAP: (usize, usize) = (70, 62);
const MARGIN: usize = 40;

/// Draws the tables in packet order, in rows from left to right, with an arrow for every pair of tables that a flow
/// connects.
pub(crate) fn draw(node: &NodeView) -> Result<String> {
    let mut counts: BTreeMap<u8, usize> = BTreeMap::new();
    let mut ways: BTreeSet<(u8, u8)> = BTreeSet::new();
    for (flow, _) in node.flows()? {
        *counts.entry(flow.table).or_default() += 1;
        ways.extend(targets(&flow).into_iter().map(|to| (flow.table, to)));
    }
    for (group, _) in node.groups()? {
        let to = group.buckets.iter().flat_map(|bucket| bucket.actions.iter().flat_map(target));
        ways.extend(to.map(|to| (Table::ServiceLb.id(), to)));
    }
    let tables: Vec<u8> = counts.keys().copied().collect();
    let place: BTreeMap<u8, (usize, usize)> =
        tables.iter().enumerate().map(|(n, table)| (*table, position(n))).collect();
    let rows = tables.len().div_ceil(COLUMNS);
    let width = 2 * MARGIN + COLUMNS * BOX.0 + (COLUMNS - 1) * GAP.0;
    let height = 2 * MARGIN + rows * BOX.1 + rows.saturating_sub(1) * GAP.1;

    let mut svg = String::new();
    let _ = writeln!(
        svg,
        r##"<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" font-family="sans-serif">
<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="#5b6b7b"/></marker></defs>
<rect width="100%" height="100%" fill="#ffffff"/>"##
    );
    for (from, to) in &ways {
        if let (Some(a), Some(b)) = (place.get(from), place.get(to)) {
            let _ = writeln!(
                svg,
                r##"<path d="{}" fill="none" stroke="#5b6b7b" stroke-opacity="0.55" stroke-width="1.4" marker-end="url(#tip)"/>"##,
                arrow(*a, *b)
            );
        }
    }
    for (table, count) in &counts {
        let Some((x, y)) = place.get(table) else { continue };
        let name = Table::by_id(*table).map_or("", |table| table.name());
        let flows = if *count == 1 { "flow" } else { "flows" };
        let _ = writeln!(
            svg,
            r##"<g><title>table {table}: {count} {flows}</title><rect x="{x}" y="{y}" width="{}" height="{}" rx="8" fill="{}" stroke="#274060"/>
<text x="{}" y="{}" font-size="15" font-weight="bold" fill="#14233a">{name}</text>
<text x="{}" y="{}" font-size="12" fill="#3c4f63">table {table} · {count} {flows}</text></g>"##,
            BOX.0,
            BOX.1,
            colour(*table),
            x + 12,
            y + 25,
            x + 12,
            y + 44,
        );
    }
    svg.push_str("</svg>\n");
    Ok(svg)
}

fn position(n: usize) -> (usize, usize) {
    (MARGIN + n % COLUMNS * (BOX.0 + GAP.0), MARGIN + n / COLUMNS * (BOX.1 + GAP.1))
}

/// An arrow from box to box: straight within a row, otherwise bent, so that long arrows do not cross boxes.
fn arrow((ax, ay): (usize, usize), (bx, by): (usize, usize)) -> String {
    if ay == by && ax < bx && bx - ax == BOX.0 + GAP.0 {
        let y = ay + BOX.1 / 2;
        return format!("M{},{y} L{},{y}", ax + BOX.0, bx);
    }
    if ay == by {
        let (from, to, top) = (ax + BOX.0 / 2, bx + BOX.0 / 2, ay.saturating_sub(GAP.1 / 2));
        return format!("M{from},{ay} C{from},{top} {to},{top} {to},{by}");
    }
    let down = ay < by;
    let (from, to) = (ax + BOX.0 / 2, bx + BOX.0 / 2);
    let (start, end) = if down { (ay + BOX.1, by) } else { (ay, by + BOX.1) };
    let middle = start.midpoint(end);
    format!("M{from},{start} C{from},{middle} {to},{middle} {to},{end}")
}

/// The colour of a table by its purpose: identity, connections, Services, policies, forwarding.
fn colour(table: u8) -> &'static str {
    match table {
        0..=22 => "#e8eef7",
        23..=24 | 35..=42 | 106 | 108 => "#fdf0d8",
        30..=31 | 105 => "#e6f4ea",
        45..=61 | 85..=101 => "#fbe3e4",
        _ => "#efe9f7",
    }
}

fn targets(flow: &Flow) -> Vec<u8> {
    flow.actions.iter().flat_map(target).chain(flow.goto_table).collect()
}

fn target(action: &Action) -> Vec<u8> {
    match action {
        Action::Resubmit { table, .. } => table.iter().copied().collect(),
        Action::Ct(ct) => ct.table.iter().copied().collect(),
        Action::Clone(actions) => actions.iter().flat_map(target).collect(),
        _ => Vec::new(),
    }
}
