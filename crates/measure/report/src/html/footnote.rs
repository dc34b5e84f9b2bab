//! Remarks that several rows of a page share, printed once: [`Footnotes`].
//!
//! A remark of one row stays in that row. A remark that the page would repeat gets a number in the
//! order of its first row; rows refer to it by a link, and [`Footnotes::list`] prints it at the end
//! of the page.

use std::collections::{BTreeMap, BTreeSet};

use maud::{Markup, html};
use tontine_bench::schema::Cell;

use super::explained::set;

/// The numbered remarks of one page.
#[derive(Debug, Default)]
pub(super) struct Footnotes<'a> {
    numbers: BTreeMap<&'a str, usize>,
    notes: Vec<&'a str>,
}

impl<'a> Footnotes<'a> {
    /// Numbers the remarks that occur in more than one of `cells`.
    pub(super) fn of(cells: impl Iterator<Item = &'a Cell> + Clone) -> Self {
        let mut rows: BTreeMap<&str, usize> = BTreeMap::new();
        let notes = || cells.clone().flat_map(|cell| cell.notes.iter().map(String::as_str));
        for note in notes() {
            *rows.entry(note).or_default() += 1;
        }
        let mut footnotes = Self::default();
        for note in notes().filter(|note| rows[note] > 1) {
            if !footnotes.numbers.contains_key(note) {
                footnotes.notes.push(note);
                footnotes.numbers.insert(note, footnotes.notes.len());
            }
        }
        footnotes
    }

    pub(super) fn numbers(&self, cell: &Cell) -> BTreeSet<usize> {
        cell.notes.iter().filter_map(|note| self.numbers.get(note.as_str()).copied()).collect()
    }

    /// Returns the numbers of the remarks that all of `cells` share; none for a single cell, whose
    /// row refers to them.
    pub(super) fn shared(&self, cells: &[&Cell]) -> BTreeSet<usize> {
        let mut each = cells.iter().map(|cell| self.numbers(cell));
        let first = each.next().filter(|_| cells.len() > 1).unwrap_or_default();
        each.fold(first, |all, own| all.intersection(&own).copied().collect())
    }

    /// Returns the remarks that have no number, joined.
    pub(super) fn own(&self, cell: &Cell) -> String {
        let own = cell.notes.iter().map(String::as_str);
        own.filter(|note| !self.numbers.contains_key(note)).collect::<Vec<_>>().join("; ")
    }

    /// Returns the remarks at the end of the page; nothing if none is repeated.
    pub(super) fn list(&self) -> Markup {
        html! {
            @if !self.notes.is_empty() {
                section.footnotes aria-labelledby="notes" {
                    h2 #notes { "Notes" }
                    ol {
                        @for (at, note) in self.notes.iter().enumerate() {
                            li id=(format!("n{}", at + 1)) { (set(note)) }
                        }
                    }
                }
            }
        }
    }
}

pub(super) fn links(numbers: &BTreeSet<usize>) -> Markup {
    html! {
        @if !numbers.is_empty() {
            sup {
                @for (at, number) in numbers.iter().enumerate() {
                    @if at > 0 { " " }
                    a href={ "#n" (number) } { (number) }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn repeated_remark_is_numbered_and_single_one_stays() {
        let mut cells = fixture::small().cells;
        let notes = [&["alone", "both"][..], &["both"], &[]];
        for (cell, notes) in cells.iter_mut().zip(notes) {
            cell.notes = notes.iter().map(|note| (*note).to_owned()).collect();
        }
        let footnotes = Footnotes::of(cells.iter());
        assert_eq!(footnotes.own(&cells[0]), "alone");
        assert_eq!(footnotes.numbers(&cells[1]), BTreeSet::from([1]));
        assert_eq!(footnotes.shared(&[&cells[0], &cells[1]]), BTreeSet::from([1]));
        assert!(footnotes.shared(&[&cells[0], &cells[2]]).is_empty());
        assert!(footnotes.shared(&[&cells[1]]).is_empty());
        let list = footnotes.list().into_string();
        assert!(list.contains("<li id=\"n1\">both</li>") && !list.contains("alone"), "{list}");
        assert!(Footnotes::of(cells[..1].iter()).list().into_string().is_empty());
    }
}
