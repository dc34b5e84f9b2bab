//! The sources' figures that state no numbers: [`drawn`] returns the labels of their axes and the
//! shapes of their curves, [`both_kernels`] selects this run's cells for the curves.
//!
//! The description gives only the shape, in words; no point is invented. Neighbour:
//! [`super::plot`].

use tontine_bench::schema::Cell;

use super::curve::{Curve, CurveLine};

/// A figure of a source, described to the extent possible.
#[derive(Debug, Clone, Copy)]
pub(super) struct Paper {
    experiment: &'static str,
    /// The metric of the figure; the experiment's other metrics do not appear in the source.
    metric: &'static str,
    /// The figure's number and caption.
    pub(super) caption: &'static str,
    pub(super) along: &'static str,
    pub(super) up: &'static str,
    pub(super) shape: &'static str,
}

/// Returns the source's figure that an experiment's metric repeats; `None` if the source has none.
pub(super) fn drawn(experiment: &str, metric: &str) -> Option<&'static Paper> {
    PAPERS.iter().find(|paper| paper.experiment == experiment && paper.metric == metric)
}

/// The parameter of the model of the paper's machine.
const ITS_MACHINE: &str = "in a model of 10 processors";
/// Prefix of the note that marks a modelled figure.
const SIMULATION: &str = "simulation";
/// The kernels that the paper compares, as variants.
const KERNELS: [(&str, &str); 2] = [("old kernel", "master"), ("new kernel", "parallel")];

/// Selects the paper's two curves, old kernel and new, from `curves`: from the model of the paper's
/// machine if that has both, otherwise from the first curve that has both.
pub(super) fn both_kernels<'a>(curves: &[Curve<'a>]) -> Option<Curve<'a>> {
    let of = |curve: &Curve<'a>| -> Option<Vec<CurveLine<'a>>> {
        let line = |&(role, variant)| {
            let mut lines = curve.lines.iter().filter(|line| !line.aside);
            let found = lines.find(|line| line.name == variant && line.points.len() > 1)?;
            Some(CurveLine { role, ..found.clone() })
        };
        KERNELS.iter().map(line).collect()
    };
    let of_its_machine = curves.iter().filter(|curve| curve.common == ITS_MACHINE);
    let (curve, lines) =
        of_its_machine.chain(curves).find_map(|curve| Some((curve, of(curve)?)))?;
    let mut cells = lines.iter().flat_map(|line| line.points.iter().map(|(_, cell)| *cell));
    let label = cells.find_map(label);
    let common = match (label, curve.common.as_str()) {
        (Some(label), common) => format!("{common}: {label}"),
        (None, "") => "virtual Unix on this machine's processors".to_owned(),
        (None, common) => format!("virtual Unix on this machine's processors, {common}"),
    };
    let (param, unit) = (curve.param.clone(), curve.unit.clone());
    Some(Curve { param, unit, common, lines })
}

/// Returns the note that marks a cell's figure as modelled; `None` if it is measured.
pub(super) fn label(cell: &Cell) -> Option<&str> {
    cell.notes.iter().map(String::as_str).find(|note| note.starts_with(SIMULATION))
}

const PAPERS: &[Paper] = &[
    Paper {
        experiment: "signal-throughput",
        metric: "received",
        caption: "Figure 1: signal deliveries per process per second",
        along: "pairs of processes, one sending, one receiving",
        up: "signals per process per second",
        shape: "The kernel with parallel signals stays level up to five pairs on ten processors, \
                one for each process, and falls beyond, where processes have to take turns. The \
                old kernel, in which all signal work runs on one master processor, falls as \
                1/pairs from the start.",
    },
    Paper {
        experiment: "fork-throughput",
        metric: "forked",
        caption: "Figure 2: forks completed per process per second",
        along: "processes that fork at once, 50 forks each",
        up: "forks per process per second",
        shape: "Both kernels fall with more processes, the old one sooner. The gain is smaller \
                than with signals, because most of a fork is the creation of an address space, \
                which was not made parallel; the added locks do not slow down a single process.",
    },
    Paper {
        experiment: "builds",
        metric: "build",
        caption: "Figure 3: elapsed time for multiple builds",
        along: "builds at once, each of about 10,000 lines of C",
        up: "elapsed seconds per build",
        shape: "The time of a build rises with their number, in the new kernel more slowly; at \
                the right it bends upward, which the paper attributes to the one disk that all \
                builds share.",
    },
    Paper {
        experiment: "sessions",
        metric: "iteration",
        caption: "Figure 4: elapsed time for multiple pseudo-user sessions",
        along: "pseudo-users at once",
        up: "elapsed seconds per iteration",
        shape: "Both curves rise unevenly, because each session begins after a delay of its own; \
                the new kernel's curve has about the shape of the old one's and lies below it \
                throughout.",
    },
];

#[cfg(test)]
mod tests {
    use super::super::curve::curves;
    use super::*;
    use crate::fixture;

    fn with(variant: &str, level: &str, modelled: Option<&str>) -> Cell {
        let mut cell = fixture::small().cells.remove(0);
        cell.variant = variant.into();
        cell.params = [("builds".to_owned(), level.to_owned())].into();
        cell.params.extend(modelled.map(|found| ("modelled".to_owned(), found.to_owned())));
        cell.notes = modelled.map(|_| "simulation, in some way".to_owned()).into_iter().collect();
        cell
    }

    fn both(modes: &[&str], modelled: &[Option<&str>]) -> Option<(String, Vec<String>)> {
        let mut cells = Vec::new();
        for &machine in modelled {
            for level in ["1", "8"] {
                cells.extend(modes.iter().map(|mode| with(mode, level, machine)));
            }
        }
        let found = both_kernels(&curves(&cells.iter().collect::<Vec<_>>()))?;
        let labels = found.lines.iter().map(CurveLine::label).collect();
        Some((found.common, labels))
    }

    #[test]
    fn paper_figure_shows_both_kernels_on_modelled_machine() {
        let modes = ["linux", "master", "parallel"];
        let labels = ["old kernel (master)", "new kernel (parallel)"].map(str::to_owned).to_vec();
        let ten = Some("10 processors");
        assert_eq!(
            both(&modes, &[None, ten, Some("64 processors")]),
            Some((
                "in a model of 10 processors: simulation, in some way".to_owned(),
                labels.clone()
            ))
        );
        let here = "virtual Unix on this machine's processors".to_owned();
        assert_eq!(both(&modes, &[None]), Some((here, labels)));
        assert_eq!(both(&["linux", "parallel"], &[None, ten]), None);
    }
}
