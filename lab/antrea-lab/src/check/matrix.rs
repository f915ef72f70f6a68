//! The connectivity matrix as a value.

use super::trial::Outcome;

/// A source or target, with the text of its row or column.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Party {
    /// Namespace, `service`, `nodeport`, `node` or `outside`.
    pub(crate) group: String,
    pub(crate) name: String,
    /// Probe and location, such as `tcp 80 on node-1`.
    pub(crate) detail: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cell {
    /// Source and target are the same.
    Itself,
    /// Number of probes, and of those that succeeded.
    Tried { worked: usize, of: usize, refused: bool },
    /// The target has no address to probe.
    Nothing,
}

/// Sources in rows, targets in columns.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Matrix {
    pub(crate) sources: Vec<Party>,
    pub(crate) targets: Vec<Party>,
    pub(crate) cells: Vec<Vec<Cell>>,
}

impl Cell {
    /// Combines the outcomes of several probes, such as IPv4 and IPv6.
    pub(crate) fn of(outcomes: &[Outcome]) -> Self {
        if outcomes.is_empty() {
            return Self::Nothing;
        }
        let worked = outcomes.iter().filter(|outcome| **outcome == Outcome::Reached).count();
        Self::Tried { worked, of: outcomes.len(), refused: outcomes.contains(&Outcome::Refused) }
    }

    /// The character in the table.
    pub(crate) fn sign(self) -> &'static str {
        match self {
            Self::Itself => "·",
            Self::Nothing => " ",
            Self::Tried { worked, of, .. } if worked == of => "✓",
            Self::Tried { worked: 0, refused: true, .. } => "✗",
            Self::Tried { worked: 0, .. } => "-",
            Self::Tried { .. } => "½",
        }
    }
}

impl Matrix {
    /// Number of cells in which all probes succeeded, and number of probed cells.
    pub(crate) fn score(&self) -> (usize, usize) {
        let tried = self.cells.iter().flatten().filter(|cell| matches!(cell, Cell::Tried { .. }));
        let good = tried.clone().filter(|cell| matches!(cell, Cell::Tried { worked, of, .. } if worked == of));
        (good.count(), tried.count())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn example() -> Matrix {
        let party = |group: &str, name: &str| Party { group: group.into(), name: name.into(), detail: "node-1".into() };
        let (yes, no) = (Cell::of(&[Outcome::Reached; 2]), Cell::of(&[Outcome::Silence]));
        let half = Cell::of(&[Outcome::Reached, Outcome::Silence]);
        Matrix {
            sources: vec![party("shop", "web"), party("shop", "db"), party("outside", "client")],
            targets: vec![party("shop", "web"), party("shop", "db")],
            cells: vec![vec![Cell::Itself, yes], vec![Cell::of(&[Outcome::Refused]), Cell::Itself], vec![no, half]],
        }
    }

    #[test]
    fn a_cell_shows_success_partial_success_refusal_or_silence() {
        let signs: Vec<Vec<_>> =
            example().cells.iter().map(|row| row.iter().map(|cell| cell.sign()).collect()).collect();
        assert_eq!(signs, [["·", "✓"], ["✗", "·"], ["-", "½"]]);
        assert_eq!(example().score(), (1, 4));
        assert_eq!(Cell::of(&[]).sign(), " ");
    }
}
