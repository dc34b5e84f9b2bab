//! The tables of figures 1 and 2 in docs/reference/model.md, for processors that the machine does
//! not have: [`print()`].
//!
//! Each figure is modelled several times, each time with a different seed, which is the number of
//! the process that models the figure. The table shows the median. The model uses the library's
//! default costs unless a file contains other costs.

use std::io;
use std::path::Path;
use std::time::Instant;

use tontine_bench::size::Size;
use tontine_bench::stats::order;
use tontine_bench::task::{InvocationTask, Params};

use super::MODES;
use crate::invocation;

/// A figure of the paper, with the numbers of processors and the levels for each.
struct PaperFigure {
    title: &'static str,
    experiment: &'static str,
    /// Quantity on the axis, which is a parameter of the experiment.
    level: &'static str,
    /// Placement of the processes, if the experiment has one.
    placement: Option<&'static str>,
    processors: [(usize, &'static [usize]); 2],
}

const TABLES: [PaperFigure; 2] = [
    PaperFigure {
        title: "Signals per second of each receiver (figure 1)",
        experiment: "signal-throughput",
        level: "pairs",
        placement: Some("spread"),
        processors: [(10, &[1, 2, 4, 5, 8, 10]), (64, &[1, 8, 16, 32, 64])],
    },
    PaperFigure {
        title: "Forks per second of each process (figure 2)",
        experiment: "fork-throughput",
        level: "processes",
        placement: None,
        processors: [(10, &[1, 2, 4, 7]), (64, &[1, 8, 16, 32, 64])],
    },
];

/// Models each figure `times` times, and prints the tables and the time for each.
///
/// # Errors
/// A cell yields no figure; the text names the reason.
pub(super) fn print(times: usize, costs: Option<&Path>) -> io::Result<bool> {
    for table in &TABLES {
        println!("{}, median of {times}:\n", table.title);
        println!("| P | {} | {} |", table.level, MODES.join(" | "));
        println!("| --: | --: |{}", " --: |".repeat(MODES.len()));
        let begun = Instant::now();
        for (processors, levels) in table.processors {
            for &level in levels {
                let cells = MODES.map(|mode| table.middle(mode, processors, level, times, costs));
                let cells: Vec<String> = cells.into_iter().collect::<io::Result<_>>()?;
                println!("| {processors} | {level} | {} |", cells.join(" | "));
            }
        }
        let each = begun.elapsed().as_secs_f64() / times as f64;
        println!("\nTime to model the whole table once: {each:.1} s.\n");
    }
    Ok(true)
}

impl PaperFigure {
    fn middle(
        &self,
        mode: &str,
        processors: usize,
        level: usize,
        times: usize,
        costs: Option<&Path>,
    ) -> io::Result<String> {
        let mut params = Params::new();
        params.insert(self.level.to_owned(), level.to_string());
        params.insert("modelled".to_owned(), format!("{processors} processors"));
        if let Some(placement) = self.placement {
            params.insert("placement".to_owned(), placement.to_owned());
        }
        if let Some(costs) = costs {
            params.insert("costs".to_owned(), costs.display().to_string());
        }
        let task = InvocationTask {
            experiment: self.experiment.to_owned(),
            variant: mode.to_owned(),
            params,
            size: Size::Default,
        };
        let rates = (0..times).map(|_| Ok(invocation::figure(&task)?.mean));
        let rates = rates.collect::<io::Result<Vec<f64>>>()?;
        Ok(order::median(&rates).map_or("–".to_owned(), rounded))
    }
}

/// Formats a rate with three significant digits, because further digits depend on the seeds, and
/// with separated thousands.
fn rounded(rate: f64) -> String {
    let unit = 10_f64.powf((rate.max(1.0).log10().floor() - 2.0).max(0.0));
    let digits = ((rate / unit).round() * unit).to_string();
    let mut parted = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            parted.push(',');
        }
        parted.push(digit);
    }
    parted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_three_digits_and_separated_thousands() {
        assert_eq!(rounded(2_345_678.0), "2,350,000");
        assert_eq!(rounded(12_345.0), "12,300");
        assert_eq!(rounded(999.6), "1,000");
        assert_eq!(rounded(34.4), "34");
        assert_eq!(rounded(0.4), "0");
    }
}
