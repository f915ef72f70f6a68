//! Who reaches whom, as a value.

use super::trial::Outcome;

/// Something that asks or is asked, with the words for its row or column.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Party {
    /// What belongs together is shown together: a namespace, `services`, `outside`.
    pub(crate) group: String,
    pub(crate) name: String,
    /// A few more words, such as where it is.
    pub(crate) detail: String,
}

/// A cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cell {
    /// It is the same.
    Itself,
    /// It was tried in so many ways, and this many worked.
    Tried { worked: usize, of: usize, refused: bool },
    /// There was nothing to try, or nobody to try it.
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
    /// What several attempts, such as IPv4 and IPv6, come to.
    pub(crate) fn of(outcomes: &[Outcome]) -> Self {
        if outcomes.is_empty() {
            return Self::Nothing;
        }
        let worked = outcomes.iter().filter(|outcome| **outcome == Outcome::Reached).count();
        Self::Tried { worked, of: outcomes.len(), refused: outcomes.contains(&Outcome::Refused) }
    }

    /// One character for it.
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
    /// How many cells were tried, and how many of them worked in every way.
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
    fn a_cell_says_all_some_refused_or_silent() {
        let signs: Vec<Vec<_>> =
            example().cells.iter().map(|row| row.iter().map(|cell| cell.sign()).collect()).collect();
        assert_eq!(signs, [["·", "✓"], ["✗", "·"], ["-", "½"]]);
        assert_eq!(example().score(), (1, 4));
        assert_eq!(Cell::of(&[]).sign(), " ");
    }
}
