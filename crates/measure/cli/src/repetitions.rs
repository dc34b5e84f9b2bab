//! `tontine-measure --plan`: the repetitions that each cell needs, from a pilot.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::process::ExitCode;

use comfy_table::{CellAlignment, Table};
use tontine_bench::engine::launch::Launcher;
use tontine_bench::engine::pilot::{Pilot, PilotFailure};
use tontine_bench::engine::repetitions::{self, PilotAdvice};
use tontine_bench::engine::stop::StopRequest;
use tontine_bench::format::FormattedFigure;
use tontine_bench::task::InvocationTask;
use tontine_command::{CommandFailure, print};
use tontine_experiments::SUITE;

use crate::args::{Measure, RunFormat};
use crate::table;

const COLUMNS: [&str; 7] =
    ["cell", "mean", "within", "between", "operations × invocations", "takes", "default reaches"];

/// Tries every task and prints the advice.
pub(crate) fn advise(
    tasks: &[InvocationTask],
    args: &Measure,
    launcher: &Launcher,
) -> Result<ExitCode, CommandFailure> {
    let stop =
        StopRequest::on_signals().map_err(CommandFailure::cannot("install signal handlers"))?;
    let mut found = Vec::new();
    let mut out = io::stderr();
    let trials = repetitions::TRIALS;
    let _ = writeln!(out, "trying {} cells, {trials} short invocations each", tasks.len());
    for (tried, task) in tasks.iter().enumerate() {
        match repetitions::advise(
            task,
            args.precision / 100.0,
            Pilot { suite: &SUITE, launcher, stop: &stop },
        ) {
            Ok(advice) => {
                let _ = writeln!(out, "{task}: tried, {} of {}", tried + 1, tasks.len());
                found.push(advice);
            }
            Err(PilotFailure::Unmeasurable(why)) => {
                let _ = writeln!(out, "{task}: skipped: {why}");
            }
            Err(PilotFailure::Stopped) => break,
        }
    }
    match args.format {
        RunFormat::Bencher | RunFormat::Github => {
            return Err(CommandFailure::usage("--plan has no figures; use --format text or json"));
        }
        RunFormat::Text => print(text(&found, args.precision).as_bytes())?,
        RunFormat::Json => {
            let mut json = serde_json::to_vec_pretty(&found).map_err(CommandFailure::failed)?;
            json.push(b'\n');
            print(&json)?;
        }
    }
    Ok(stop.signal().map_or(ExitCode::SUCCESS, tontine_command::stopped_by))
}

fn text(found: &[PilotAdvice], precision: f64) -> String {
    let mut text = format!(
        "\nRepetitions for a 95 % interval of the mean within ±{precision} %, at the least cost\n\
         (Kalibera and Jones, 2013):\n\n"
    );
    let mut table = Table::new();
    table.load_style(table::STYLE);
    table.set_header(COLUMNS);
    for advice in found {
        table.add_row(row(advice));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let _ = writeln!(text, "{table}");
    text.push_str(
        "\nwithin: variation between stretches of an invocation; between: additional variation\n\
         between invocations; both as deviation ÷ mean. --quick, --full or neither sets the\n\
         number of operations, --invocations N that of invocations.\n",
    );
    text
}

fn row(advice: &PilotAdvice) -> [String; 7] {
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    let invocations =
        advice.invocations.map_or_else(|| "more than 10,000".into(), |count| count.to_string());
    [
        advice.task.to_string(),
        FormattedFigure::new(&advice.unit, advice.mean, None).value,
        percent(advice.within),
        percent(advice.between),
        format!("{} × {invocations}", advice.iterations),
        advice.seconds.map_or_else(|| "–".into(), duration),
        format!("±{}", percent(advice.reached.default)),
    ]
}

/// Returns a duration in words.
pub(crate) fn duration(seconds: f64) -> String {
    match seconds {
        ..0.95 => format!("{:.0} ms", seconds * 1e3),
        ..600.0 => format!("{seconds:.0} seconds"),
        ..36_000.0 => format!("{:.0} minutes", seconds / 60.0),
        _ => format!("{:.0} hours", seconds / 3_600.0),
    }
}
