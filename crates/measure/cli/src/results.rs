//! Writes and prints the results of a run: [`publish`].

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use tontine_bench::schema::Results;
use tontine_command::{CommandFailure, print};
use tontine_report::bencher::bencher;
use tontine_report::ci_figure::figures;
use tontine_report::github::github;
use tontine_report::{verdict, write};

use crate::args::{Measure, RunFormat};
use crate::{summary, table};

/// Checks before the measurement that the results can be written after it.
pub(crate) fn writable(folder: &Path) -> Result<(), CommandFailure> {
    write::check_folder(folder).map_err(|error| {
        let folder = folder.display();
        CommandFailure::failed(format!(
            "cannot write results to {folder}: {error}; name another directory with --out"
        ))
    })
}

/// Returns the absolute path of the directory for samples.
pub(crate) fn samples_folder(folder: &Path) -> Result<PathBuf, CommandFailure> {
    write::check_folder(folder).and_then(|()| folder.canonicalize()).map_err(|error| {
        let folder = folder.display();
        CommandFailure::failed(format!(
            "cannot write samples to {folder}: {error}; name another directory with --samples"
        ))
    })
}

/// Writes the files, then prints. A failure of standard output therefore loses no result.
pub(crate) fn publish(results: &Results, args: &Measure) -> Result<(), CommandFailure> {
    let written = write::write_all(results, &args.out);
    let mut said = format!("\n{}\n", verdict::run_line(results));
    if let Ok(files) = &written {
        let page = files.iter().find(|file| file.ends_with("report.html"));
        let page = page.map_or_else(|| args.out.clone(), Clone::clone);
        let _ = writeln!(said, "report: {}", page.display());
    }
    if !results.complete {
        said.push_str("stopped early: the results so far are kept and marked incomplete\n");
    }
    match args.format {
        RunFormat::Text => {
            let tables = if args.names.is_empty() { String::new() } else { table::render(results) };
            print((tables + &summary::render(results) + &said).as_bytes())?;
        }
        RunFormat::Json => print(&results.to_json()?)?,
        RunFormat::Bencher => print(bencher(&figures(results)).as_bytes())?,
        RunFormat::Github => print(github(&figures(results)).as_bytes())?,
    }
    if args.format != RunFormat::Text {
        let _ = io::stderr().write_all(said.as_bytes());
    }
    written.map(|_| ()).map_err(CommandFailure::failed)
}
