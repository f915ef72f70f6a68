//! The matrix as an SVG image.

use std::fmt::Write;

use super::matrix::{Cell, Matrix, Party};

const CELL: usize = 22;
/// Approximate width of a letter.
const LETTER: usize = 7;
const MARGIN: usize = 16;
const LEGEND: usize = 44;

/// Draws the matrix; the names of the targets are rotated.
pub(crate) fn draw(matrix: &Matrix) -> String {
    let longest =
        |parties: &[Party]| parties.iter().map(|party| label(party).chars().count()).max().unwrap_or_default();
    let (left, top) = (MARGIN + longest(&matrix.sources) * LETTER, MARGIN + longest(&matrix.targets) * LETTER);
    let (width, height) = (left + matrix.targets.len() * CELL + MARGIN, top + matrix.sources.len() * CELL + LEGEND);
    let width = width.max(LEGEND * 10);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"monospace\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
    );
    for (index, target) in matrix.targets.iter().enumerate() {
        let x = left + index * CELL + CELL * 2 / 3;
        let y = top - 6;
        let _ = writeln!(svg, "<text transform=\"translate({x},{y}) rotate(-90)\">{}</text>", escape(&label(target)));
    }
    for (index, (source, row)) in matrix.sources.iter().zip(&matrix.cells).enumerate() {
        let y = top + index * CELL;
        let (text_x, text_y) = (left - 6, y + CELL * 2 / 3);
        let _ =
            writeln!(svg, "<text x=\"{text_x}\" y=\"{text_y}\" text-anchor=\"end\">{}</text>", escape(&label(source)));
        for (column, (cell, target)) in row.iter().zip(&matrix.targets).enumerate() {
            let x = left + column * CELL;
            let title = format!("{} to {}: {}", label(source), label(target), words(*cell));
            let _ = writeln!(
                svg,
                "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"3\" fill=\"{}\"><title>{}</title></rect>",
                x + 1,
                y + 1,
                CELL - 2,
                CELL - 2,
                colour(*cell),
                escape(&title)
            );
        }
    }
    let legend = [
        (Cell::Tried { worked: 1, of: 1, refused: false }, "reached"),
        (Cell::Tried { worked: 1, of: 2, refused: false }, "by some addresses"),
        (Cell::Tried { worked: 0, of: 1, refused: true }, "refused"),
        (Cell::Tried { worked: 0, of: 1, refused: false }, "no answer"),
    ];
    let y = height - LEGEND / 2;
    let mut x = MARGIN;
    for (cell, text) in legend {
        let _ = writeln!(
            svg,
            "<rect x=\"{x}\" y=\"{}\" width=\"12\" height=\"12\" rx=\"3\" fill=\"{}\"/>",
            y - 10,
            colour(cell)
        );
        let _ = writeln!(svg, "<text x=\"{}\" y=\"{y}\">{text}</text>", x + 18);
        x += 34 + text.len() * LETTER;
    }
    svg + "</svg>\n"
}

fn label(party: &Party) -> String {
    format!("{}/{}", party.group, party.name)
}

fn colour(cell: Cell) -> &'static str {
    match cell {
        Cell::Itself => "#e8e8e8",
        Cell::Nothing => "#fff",
        Cell::Tried { worked, of, .. } if worked == of => "#2a9d5c",
        Cell::Tried { worked: 0, refused: true, .. } => "#c8553d",
        Cell::Tried { worked: 0, .. } => "#f0b7a4",
        Cell::Tried { .. } => "#e9c46a",
    }
}

fn words(cell: Cell) -> String {
    match cell {
        Cell::Itself => "itself".to_owned(),
        Cell::Nothing => "nothing to try".to_owned(),
        Cell::Tried { worked, of, .. } => format!("{worked} of {of} addresses"),
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cell_is_drawn_and_names_are_escaped() {
        let mut matrix = super::super::matrix::tests::example();
        matrix.sources[0].name = "a<b".into();
        let svg = draw(&matrix);
        assert_eq!(svg.matches("<title>").count(), 6);
        assert!(svg.contains("a&lt;b") && !svg.contains("a<b"));
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    }
}
