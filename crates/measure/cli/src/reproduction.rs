//! `tontine-measure --as-published`: repeats the programs of a source: [`reproduce`].
//!
//! Each point of the source is measured in a fresh process of this executable. A signal can
//! therefore end the run at any point: the process of the point is killed with all of its group,
//! and what it leaves behind is deleted. A complete run also writes its output to a file.

use std::cell::RefCell;
use std::io::{self, Write as _};
use std::process::ExitCode;

use tontine_bench::engine::launch::Launcher;
use tontine_bench::engine::stop::StopRequest;
use tontine_bench::machine::MachineFacts;
use tontine_bench::machine::advice::{Severity, advice};
use tontine_bench::task::InvocationTask;
use tontine_command::{CommandFailure, fill, print, stopped_by};
use tontine_experiments::SUITE;
use tontine_experiments::as_published::{self, FreshProcesses};
use tontine_report::write;

use crate::args::Measure;
use crate::progress::RunProgress;
use crate::repetitions::duration;
use crate::results::writable;

/// Repeats the source with that number.
pub(crate) fn reproduce(
    seed: &str,
    args: &Measure,
    launcher: &Launcher,
) -> Result<ExitCode, CommandFailure> {
    let known =
        || as_published::sources().iter().map(|seed| seed.number).collect::<Vec<_>>().join(", ");
    let seed = as_published::find(seed).ok_or_else(|| {
        CommandFailure::usage(format!("no source is named '{seed}'; name one of {}", known()))
    })?;
    writable(&args.out)?;
    (SUITE.clean_up)();
    let stop =
        StopRequest::on_signals().map_err(CommandFailure::cannot("install signal handlers"))?;
    warn_of_load(&MachineFacts::look());
    let show = RefCell::new(RunProgress::new());
    let mut expected = seed.seconds(args.quick).into_iter();
    let all = expected.as_slice().iter().sum::<f64>();
    show.borrow_mut().begin(
        milliseconds(all),
        &format!(
            "source {}: {} fresh processes, about {}; Ctrl-C stops it",
            seed.number,
            expected.len(),
            duration(all)
        ),
    );
    let processes = FreshProcesses { launcher, stop: &stop };
    let mut measure = |task: &InvocationTask| {
        let done = expected.next().map_or(0, milliseconds);
        show.borrow().task(task);
        processes.measure(task, |outcome| show.borrow_mut().add(done, task, outcome))
    };
    let mut both = Tee { text: Vec::new(), printed: 0, show: &show, stop: &stop };
    let reproduced = seed.reproduce(args.quick, &mut both, &mut measure);
    let printed = both.flush();
    let text = both.text;
    show.borrow().end();
    (SUITE.clean_up)();
    (SUITE.end_run)();
    if let Some(signal) = stop.signal() {
        return Ok(stopped_by(signal));
    }
    reproduced.map_err(CommandFailure::failed)?;
    printed?;
    let name = format!("as-published-{}.txt", seed.number);
    let file = write::write_file(&args.out, &name, &text).map_err(CommandFailure::failed)?;
    let _ = writeln!(io::stderr(), "wrote {}", file.display());
    Ok(ExitCode::SUCCESS)
}

fn milliseconds(seconds: f64) -> u64 {
    (seconds * 1e3) as u64
}

/// Warns if other programs use the processors.
fn warn_of_load(machine: &MachineFacts) {
    for one in advice(machine) {
        if one.topic == "load" && one.severity == Severity::Spoils {
            let text = format!("warning: {}: {}; {}", one.finding, one.effect, one.remedy);
            let _ = writeln!(io::stderr(), "{}", fill("", "  ", &text));
        }
    }
}

/// A writer that prints whole lines and keeps the text. It fails as soon as the run is stopped, so
/// that the run ends.
struct Tee<'a> {
    text: Vec<u8>,
    /// Length of the text that has been printed.
    printed: usize,
    show: &'a RefCell<RunProgress>,
    stop: &'a StopRequest,
}

impl Tee<'_> {
    /// Prints the text up to this length, while the bar is hidden.
    fn print_to(&mut self, length: usize) -> io::Result<()> {
        let text = &self.text[self.printed..length];
        self.printed = length;
        self.show.borrow().suspended(|| print(text))
    }
}

impl io::Write for Tee<'_> {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        if self.stop.requested() {
            return Err(io::Error::other("stopped"));
        }
        self.text.extend_from_slice(text);
        if text.contains(&b'\n') {
            let line_ends = self.text.iter().rposition(|byte| *byte == b'\n');
            self.print_to(line_ends.map_or(0, |at| at + 1))?;
        }
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.print_to(self.text.len())
    }
}
