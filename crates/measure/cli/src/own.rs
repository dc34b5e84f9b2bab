//! `tontine-measure -- COMMAND`: measures one command of the user, or two in pairs.

use std::fmt::Write as _;
use std::io::{self, IsTerminal};
use std::process::ExitCode;

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use tontine_bench::compare::direction::direction;
use tontine_bench::engine;
use tontine_bench::engine::stop::StopRequest;
use tontine_bench::format::{self, FormattedFigure, NOTHING};
use tontine_bench::own::start::OwnCommand;
use tontine_bench::own::{self, Basis, OwnPlan, OwnRun, OwnRunEnd, OwnSummary, PairedFigure};
use tontine_bench::size::Size;
use tontine_bench::stats::interval::CONFIDENCE;
use tontine_bench::stats::resolution;
use tontine_command::{CommandFailure, FAILED, WIDTH, fill, print, stopped_by};
use tontine_report::bencher::bencher;
use tontine_report::ci_figure::CiFigure;
use tontine_report::github::github;

use crate::args::{Measure, RunFormat};
use crate::summary::cut;

/// Measures the commands and prints their figures, also if they end early.
pub(crate) fn measure(args: &Measure, size: Size) -> Result<ExitCode, CommandFailure> {
    let plan = plan(args, size)?;
    let stop =
        StopRequest::on_signals().map_err(CommandFailure::cannot("install signal handlers"))?;
    let bar = progress(plan.pairs);
    let run = own::measure(&plan, &stop, |pairs| bar.set_position(pairs as u64));
    bar.finish_and_clear();
    match args.format {
        RunFormat::Text => print(text(&plan, &run).as_bytes())?,
        RunFormat::Json => print(json_text(&plan, &run).as_bytes())?,
        RunFormat::Bencher => print(bencher(&ci_figures(&plan, &run)).as_bytes())?,
        RunFormat::Github => print(github(&ci_figures(&plan, &run)).as_bytes())?,
    }
    match run.end {
        OwnRunEnd::Complete => Ok(ExitCode::SUCCESS),
        OwnRunEnd::Stopped => Ok(stop.signal().map_or(ExitCode::from(FAILED), stopped_by)),
        OwnRunEnd::Failed { why, unstartable: true } => Err(CommandFailure::usage(why)),
        OwnRunEnd::Failed { why, unstartable: false } => Err(CommandFailure::failed(why)),
    }
}

fn plan(args: &Measure, size: Size) -> Result<OwnPlan, CommandFailure> {
    let commands = args.own.commands();
    if commands.len() > 2 {
        let count = commands.len();
        let why = format!("found {count} commands; expected one or two, separated by `--`");
        return Err(CommandFailure::usage(why));
    }
    if commands.iter().any(|words| words.is_empty()) {
        let why = "a command after `--` is empty; expected: measure -- ./a --x 1 -- ./b";
        return Err(CommandFailure::usage(why));
    }
    Ok(OwnPlan {
        commands: commands.iter().map(|words| OwnCommand { words: words.to_vec() }).collect(),
        pairs: args.invocations.map_or_else(|| size.pairs_of_commands(), usize::from),
        order_seed: args.order_seed.unwrap_or_else(engine::plan::fresh_seed),
        ready: args.own.ready,
        ready_timeout: size.deadline(),
    })
}

/// Returns a bar on a terminal; elsewhere nothing is shown.
fn progress(pairs: usize) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(pairs as u64);
    if let Ok(style) = ProgressStyle::with_template("{bar:32} {pos}/{len} pairs, {eta} left") {
        bar.set_style(style);
    }
    bar.tick();
    bar
}

fn text(plan: &OwnPlan, run: &OwnRun) -> String {
    let mut out = String::new();
    let Some(summary) = run.summary() else {
        let _ = writeln!(out, "stopped before the first figure");
        return if run.end == OwnRunEnd::Stopped { out } else { String::new() };
    };
    let full: Vec<String> = plan.commands.iter().map(ToString::to_string).collect();
    let letters = ["A".to_owned(), "B".to_owned()];
    let distinct = full.first() != full.last() || full.len() == 1;
    let table = lines(run, &summary, &full);
    let fits = table.iter().all(|line| line.chars().count() <= WIDTH);
    let (names, table) = if fits && distinct {
        (&full[..], table)
    } else {
        for (letter, command) in letters.iter().zip(&full) {
            let _ = writeln!(out, "{}", cut(&format!("{letter}: {command}")));
        }
        let names = &letters[..full.len()];
        (names, lines(run, &summary, names))
    };
    for line in table {
        let _ = writeln!(out, "{line}");
    }
    for sentence in sentences(plan, run, &summary, names) {
        let _ = writeln!(out, "{}", fill("", "", &sentence));
    }
    out
}

/// Returns the table: a line for each command, and one for the ratio.
fn lines(run: &OwnRun, summary: &OwnSummary, names: &[String]) -> Vec<String> {
    let mut rows: Vec<[String; 3]> = Vec::new();
    for (name, figure) in names.iter().zip(&summary.commands) {
        let ends = figure.interval.map(|interval| (interval.low, interval.high));
        let shown = FormattedFigure::new(&run.unit, figure.estimate, ends);
        rows.push([name.clone(), shown.value, shown.interval]);
    }
    if let ([first, second], Some(ratio)) = (names, &summary.ratio) {
        let (value, interval) = shown_ratio(ratio);
        rows.push([format!("{second} ÷ {first}"), value, interval]);
    }
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let [names_width, values_width] = [0, 1].map(|column| width(column).unwrap_or(0));
    let line = |[name, value, interval]: &[String; 3]| {
        let interval = if interval.is_empty() { NOTHING } else { interval };
        format!("{name:names_width$}   {value:values_width$}   {interval}")
    };
    rows.iter().map(line).collect()
}

fn shown_ratio(ratio: &PairedFigure) -> (String, String) {
    let shown = match ratio.interval {
        Some(interval) => format::times(ratio.estimate, interval.low, interval.high),
        None => FormattedFigure::new("", ratio.estimate, None),
    };
    (shown.value.replace('×', ""), shown.interval.replace('×', ""))
}

/// Returns what the figures mean, in sentences.
fn sentences(plan: &OwnPlan, run: &OwnRun, summary: &OwnSummary, names: &[String]) -> Vec<String> {
    let measured = match run.basis {
        Basis::WallTime => "Time from start to end",
        Basis::UntilReady => "Time from start to ready",
        Basis::OwnFigure => "The figure that the command printed",
    };
    let pairs = run.figures[0].len();
    let things = if plan.commands.len() == 1 { "start" } else { "pair" };
    let plural = if pairs == 1 { "" } else { "s" };
    let percent = CONFIDENCE * 100.0;
    let early = if run.end == OwnRunEnd::Complete { "" } else { "; stopped early" };
    let mut all = vec![format!(
        "{measured}: median of {pairs} {things}{plural}, {percent:.0} % interval{early}."
    )];
    let [first, second] = names else { return all };
    let Some(ratio) = &summary.ratio else {
        all.push("No ratio: a figure is not above 0.".into());
        return all;
    };
    all.push(match ratio.interval {
        None => "With fewer than 6 pairs, no difference can be resolved.".into(),
        Some(interval) if interval.holds(1.0) => {
            "No difference resolved, which does not mean that there is none.".into()
        }
        Some(interval) => {
            let is_time = run.basis != Basis::OwnFigure || run.unit == "ns";
            let what = match (interval.high < 1.0, is_time) {
                (true, true) => "takes less time than",
                (false, true) => "takes more time than",
                (true, false) => "has a lower figure than",
                (false, false) => "has a higher figure than",
            };
            format!("{second} {what} {first}.")
        }
    });
    all.push(match ratio.could_resolve {
        Some(smallest) => {
            format!("A {} could not have been resolved.", amount(smallest))
        }
        None => {
            let fewest = resolution::fewest_pairs(CONFIDENCE);
            format!("The smallest difference that could be resolved is known from {fewest} pairs.")
        }
    });
    all
}

/// Formats the smallest difference, rounded up: in per cent, or as a ratio if it is large.
fn amount(share: f64) -> String {
    let percent = (share * 1_000.0).ceil() / 10.0;
    match percent {
        ..0.1 => "difference below 0.1 %".into(),
        ..10.0 => format!("difference below {percent:.1} %"),
        ..100.0 => format!("difference below {:.0} %", percent.ceil()),
        _ => format!("ratio below {:.1}", 1.0 + percent / 100.0),
    }
}

fn ci_figures(plan: &OwnPlan, run: &OwnRun) -> Vec<CiFigure> {
    let figures = run.summary().map(|summary| summary.commands).unwrap_or_default();
    let named = plan.commands.iter().zip(figures);
    named
        .map(|(command, figure)| CiFigure {
            name: command.to_string(),
            unit: run.unit.clone(),
            value: figure.estimate,
            ends: figure.interval.map(|interval| (interval.low, interval.high)),
            worse: direction("", &run.unit),
        })
        .collect()
}

fn json_text(plan: &OwnPlan, run: &OwnRun) -> String {
    let summary = run.summary();
    let commands: Vec<_> = plan
        .commands
        .iter()
        .enumerate()
        .map(|(index, command)| {
            let words: Vec<_> = command.words.iter().map(|word| word.to_string_lossy()).collect();
            let figure = summary.as_ref().map(|summary| summary.commands[index]);
            let interval = figure.and_then(|figure| figure.interval);
            json!({
                "command": words,
                "estimate": figure.map(|figure| figure.estimate),
                "low": interval.map(|interval| interval.low),
                "high": interval.map(|interval| interval.high),
                "achieved": interval.map(|interval| interval.achieved),
                "figures": run.figures[index],
            })
        })
        .collect();
    let ratio = summary.and_then(|summary| summary.ratio).map(|ratio| {
        json!({
            "estimate": ratio.estimate,
            "low": ratio.interval.map(|interval| interval.low),
            "high": ratio.interval.map(|interval| interval.high),
            "achieved": ratio.interval.map(|interval| interval.achieved),
            "could_resolve": ratio.could_resolve,
        })
    });
    let failure = match &run.end {
        OwnRunEnd::Failed { why, .. } => Some(why),
        _ => None,
    };
    let document = json!({
        "own_commands": 1,
        "measured": run.basis.name(),
        "unit": run.unit,
        "confidence": CONFIDENCE,
        "pairs": run.figures[0].len(),
        "order_seed": plan.order_seed,
        "complete": run.end == OwnRunEnd::Complete,
        "failure": failure,
        "commands": commands,
        "ratio": ratio,
    });
    format!("{document:#}\n")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn plan_of(commands: &[&[&str]]) -> OwnPlan {
        let command =
            |words: &&[&str]| OwnCommand { words: words.iter().map(Into::into).collect() };
        OwnPlan {
            commands: commands.iter().map(command).collect(),
            pairs: 30,
            order_seed: 1,
            ready: None,
            ready_timeout: Duration::from_secs(1),
        }
    }

    fn run(figures: Vec<Vec<f64>>, end: OwnRunEnd) -> OwnRun {
        OwnRun { basis: Basis::WallTime, unit: "ns".into(), figures, end }
    }

    fn figures(centre: f64, count: u32) -> Vec<f64> {
        (0..count).map(|i| centre * (1.0 + f64::from(i % 7) * 0.01)).collect()
    }

    #[test]
    fn two_commands_print_figures_ratio_and_resolution() {
        let plan = plan_of(&[&["./a"], &["./b"]]);
        let mut slower = figures(2e7, 30);
        slower.rotate_left(3);
        let text = text(&plan, &run(vec![figures(1e7, 30), slower], OwnRunEnd::Complete));
        assert!(text.starts_with("./a         10.30 ms   10."), "{text}");
        assert!(text.contains("\n./b ÷ ./a   "), "{text}");
        assert!(text.contains("./b takes more time than ./a."), "{text}");
        assert!(text.contains("could not have been resolved."), "{text}");
        assert!(text.lines().count() <= 12, "{text}");
    }

    #[test]
    fn long_or_equal_commands_are_called_a_and_b_within_80_columns() {
        let long = "x".repeat(200);
        for commands in [[&["./a"][..], &["./a"]], [&["./a"], &["./b", &long]]] {
            let plan = plan_of(&commands);
            let run = run(vec![figures(1e7, 30), figures(1e7, 30)], OwnRunEnd::Complete);
            let text = text(&plan, &run);
            assert!(text.contains("\nB ÷ A ") && text.contains("A: ./a\n"), "{text}");
            assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
            assert!(text.contains("No difference resolved"), "{text}");
        }
    }

    #[test]
    fn early_end_and_few_pairs_are_said() {
        let plan = plan_of(&[&["./a"], &["./b"]]);
        let few = run(vec![figures(1e7, 3), figures(2e7, 3)], OwnRunEnd::Stopped);
        let said = text(&plan, &few);
        assert!(said.contains("median of 3 pairs") && said.contains("stopped early"), "{said}");
        assert!(said.contains("fewer than 6 pairs"), "{said}");
        let none = run(vec![vec![], vec![]], OwnRunEnd::Stopped);
        assert_eq!(text(&plan, &none), "stopped before the first figure\n");
    }

    #[test]
    fn smallest_difference_is_rounded_up() {
        let shown = [1e-9, 0.0131, 0.0999, 0.1234].map(amount);
        assert_eq!(
            shown,
            ["0.1 %", "1.4 %", "10 %", "13 %"].map(|to| format!("difference below {to}"))
        );
        assert_eq!(amount(3.0), "ratio below 4.0");
    }
}
