//! The intervals of a run of the user's commands: [`OwnSummary`].

use serde::Serialize;

use super::OwnRun;
use crate::stats::interval::{CONFIDENCE, Interval};
use crate::stats::{order, ratio, resolution};

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CommandFigure {
    pub estimate: f64,
    /// The interval of the median; `None` if there are fewer than six starts.
    pub interval: Option<Interval>,
}

/// The ratio of the second command to the first.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PairedFigure {
    pub estimate: f64,
    /// The interval of the sign test; `None` if there are fewer than six pairs.
    pub interval: Option<Interval>,
    /// The smallest difference that this number of pairs could have resolved, as a share of the
    /// first command's figure; `None` if there are too few pairs to know it.
    pub could_resolve: Option<f64>,
    pub pairs: usize,
}

/// The figures of a run, with intervals.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OwnSummary {
    pub commands: Vec<CommandFigure>,
    /// The ratio, if there are two commands and all figures are above zero.
    pub ratio: Option<PairedFigure>,
}

impl OwnRun {
    /// Computes medians, intervals and the ratio. Returns `None` if there is no figure.
    pub fn summary(&self) -> Option<OwnSummary> {
        let figure = |all: &Vec<f64>| {
            let interval = order::median_interval(all);
            Some(CommandFigure { estimate: order::median(all)?, interval })
        };
        let commands = self.figures.iter().map(figure).collect::<Option<Vec<_>>>()?;
        Some(OwnSummary { commands, ratio: self.ratio() })
    }

    fn ratio(&self) -> Option<PairedFigure> {
        let [base, new] = &self.figures[..] else { return None };
        if base.iter().chain(new).any(|figure| *figure <= 0.0) {
            return None;
        }
        let ratios: Vec<f64> = base.iter().zip(new).map(|(base, new)| new / base).collect();
        let logs: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
        Some(PairedFigure {
            estimate: order::median(&logs)?.exp(),
            interval: ratio::paired(&ratios),
            could_resolve: resolution::paired(&logs, CONFIDENCE).map(f64::exp_m1),
            pairs: ratios.len(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Basis, OwnRunEnd};
    use super::*;

    fn run(figures: Vec<Vec<f64>>) -> OwnRun {
        OwnRun { basis: Basis::WallTime, unit: "ns".into(), figures, end: OwnRunEnd::Complete }
    }

    #[test]
    fn twenty_pairs_have_a_ratio_and_a_resolution() {
        let base: Vec<f64> = (0..20).map(|i| 100.0 + f64::from(i)).collect();
        let new: Vec<f64> = base.iter().map(|figure| figure * 0.5).collect();
        let summary = run(vec![base, new]).summary().unwrap();
        let ratio = summary.ratio.unwrap();
        assert!((ratio.estimate - 0.5).abs() < 1e-12 && ratio.pairs == 20);
        assert!(ratio.interval.unwrap().holds(ratio.estimate));
        assert!(ratio.could_resolve.unwrap() < 1e-9, "equal ratios resolve any difference");
    }

    #[test]
    fn few_pairs_have_figures_but_no_intervals() {
        let summary = run(vec![vec![1.0; 5], vec![2.0; 5]]).summary().unwrap();
        let ratio = summary.ratio.unwrap();
        assert_eq!(
            (ratio.estimate.round(), ratio.interval, ratio.could_resolve),
            (2.0, None, None)
        );
        assert_eq!(summary.commands[0].interval, None);
        assert_eq!(run(vec![vec![], vec![]]).summary(), None);
        assert_eq!(run(vec![vec![0.0; 6], vec![1.0; 6]]).summary().unwrap().ratio, None);
        assert_eq!(run(vec![vec![1.0; 6]]).summary().unwrap().ratio, None);
    }
}
