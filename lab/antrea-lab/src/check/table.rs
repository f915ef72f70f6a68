//! The matrix as text: numbers above the columns, the names of the targets below.

use super::matrix::Matrix;

pub(crate) fn draw(matrix: &Matrix) -> String {
    let name = |index: usize| {
        matrix.sources.get(index).map(|party| format!("{}/{}", party.group, party.name)).unwrap_or_default()
    };
    let width = (0..matrix.sources.len()).map(|index| name(index).chars().count()).max().unwrap_or_default();
    let mut lines = Vec::new();
    let numbers = (1..=matrix.targets.len()).map(|number| format!("{number:>3}"));
    lines.push(format!("{:width$} {}", "from \\ to", numbers.collect::<String>()));
    for (index, row) in matrix.cells.iter().enumerate() {
        let cells = row.iter().map(|cell| format!("{:>3}", cell.sign()));
        lines.push(format!("{:width$} {}", name(index), cells.collect::<String>()));
    }
    lines.push(String::new());
    for (index, target) in matrix.targets.iter().enumerate() {
        lines.push(
            format!("{:>3} {}/{}  {}", index + 1, target.group, target.name, target.detail).trim_end().to_owned(),
        );
    }
    lines.push(String::new());
    let (good, tried) = matrix.score();
    lines.push("✓ reached   ½ by some addresses only   ✗ refused   - no answer   · itself".to_owned());
    lines.push(format!("{good} of {tried} reached"));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_sources_and_columns_are_numbered_targets() {
        let text = draw(&super::super::matrix::tests::example());
        let expected = "\
from \\ to        1  2
shop/web         ·  ✓
shop/db          ✗  ·
outside/client   -  ½

  1 shop/web  node-1
  2 shop/db  node-1

✓ reached   ½ by some addresses only   ✗ refused   - no answer   · itself
1 of 4 reached";
        assert_eq!(text, expected);
    }
}
