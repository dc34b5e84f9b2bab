//! Builds: [`Tools`] are the tools, and [`Tools::build`] runs several builds at once.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use tontine_host::error::{ErrorContext, MeasureError, Result};
use tontine_host::os::process_group::ProcessGroup;
use tontine_host::os::program::{find, last_words};

use super::source;

/// Environment variables that connect a `make` with an outer `make`, or cause it to read more than
/// its makefile.
const OF_MAKE: [&str; 5] = ["MAKEFLAGS", "MFLAGS", "GNUMAKEFLAGS", "MAKELEVEL", "MAKEFILES"];

/// A program that every compiler with a C library's headers compiles.
const SMALLEST: &str = "#include <stdio.h>\nint main(void) { return puts(\"well\") < 0; }\n";

/// The tools of a build.
#[derive(Debug)]
pub(super) struct Tools {
    make: PathBuf,
}

/// Result of simultaneous builds.
#[derive(Debug)]
pub(super) struct Built {
    /// Duration of each build, in seconds.
    pub(super) seconds: Vec<f64>,
    /// Lines of C in each build.
    pub(super) lines: usize,
}

impl Tools {
    /// Searches for `make` and a working compiler, and tests the compiler in `folder`.
    ///
    /// Compiling a small program is also the warm-up: it loads the compiler and the headers into
    /// memory, so that the first build does not differ from the last.
    ///
    /// # Errors
    /// Returns `Skipped`, naming what is missing.
    pub(super) fn look(folder: &Path, processes: &ProcessGroup, until: Instant) -> Result<Self> {
        let make = find("make").ok_or_else(|| {
            MeasureError::skip("needs make, and found none on PATH: install make")
        })?;
        let cc = find("cc").ok_or_else(|| {
            MeasureError::skip("needs a C compiler named cc, and found none on PATH: install one")
        })?;
        fs::write(folder.join("smallest.c"), SMALLEST).setting_up("writing a source file")?;
        let mut compile = command(&cc, folder)?;
        compile.args(["-o", "smallest", "smallest.c"]);
        let (_, status) = processes.run(&mut compile, until)?;
        if !status.success() {
            return Err(MeasureError::skip(format!(
                "needs a C compiler that finds <stdio.h> and links: {} on a program of two lines: \
                 {status}: {}",
                cc.display(),
                said_in(folder)
            )));
        }
        Ok(Self { make })
    }

    /// Builds `count` copies of the program at once, each in its own folder in `folder`.
    ///
    /// # Errors
    /// Returns `Skipped` if the sources cannot be written. Returns `Failed` if a build fails, does
    /// not end by `until`, or yields a program whose output differs from that of the other builds.
    pub(super) fn build(
        &self,
        count: usize,
        folder: &Path,
        processes: &ProcessGroup,
        until: Instant,
    ) -> Result<Built> {
        let folders: Vec<PathBuf> =
            (1..=count).map(|number| folder.join(format!("build-{number}"))).collect();
        let mut lines = 0;
        for folder in &folders {
            fs::create_dir(folder).setting_up("mkdir")?;
            lines = source::write(folder).setting_up("writing the sources")?;
        }
        let together = Barrier::new(count);
        let one = |folder: &PathBuf| {
            let make = self.make_in(folder);
            // Every thread must reach this barrier, even after an error, because the other threads
            // wait.
            together.wait();
            let (time, status) = processes.run(&mut make?, until)?;
            if status.success() {
                Ok(time.as_secs_f64())
            } else {
                Err(MeasureError::fail(format!("make: {status}: {}", said_in(folder))))
            }
        };
        let seconds = thread::scope(|scope| {
            let running: Vec<_> =
                folders.iter().map(|folder| scope.spawn(|| one(folder))).collect();
            let ended = running.into_iter().map(|one| {
                one.join().unwrap_or_else(|_| Err(MeasureError::fail("a thread panicked")))
            });
            // Join all threads before returning the first error.
            ended.collect::<Vec<_>>().into_iter().collect::<Result<Vec<f64>>>()
        })?;
        agree(&folders, processes, until)?;
        Ok(Built { seconds, lines })
    }

    fn make_in(&self, folder: &Path) -> Result<Command> {
        let mut make = command(&self.make, folder)?;
        OF_MAKE.iter().for_each(|name| {
            make.env_remove(name);
        });
        make.arg("-j1");
        Ok(make)
    }
}

/// Runs each program and checks that all programs print the same checksum.
fn agree(folders: &[PathBuf], processes: &ProcessGroup, until: Instant) -> Result<()> {
    let mut first = None;
    for folder in folders {
        let mut program = command(&folder.join("program"), folder)?;
        let (_, status) = processes.run(&mut program, until)?;
        let said = said_in(folder);
        let whole = !said.is_empty() && said.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !status.success() || !whole || *first.get_or_insert_with(|| said.clone()) != said {
            let folder = folder.display();
            return Err(MeasureError::fail(format!(
                "expected the programs to print one checksum; that in {folder} ended with \
                 {status}: {said}"
            )));
        }
    }
    Ok(())
}

/// Returns a command that runs in `folder`, writes its output into a file there, and has no input.
fn command(program: &Path, folder: &Path) -> Result<Command> {
    let said = File::create(folder.join("said")).setting_up("creating a file")?;
    let also = said.try_clone().setting_up("dup")?;
    let mut command = Command::new(program);
    command.current_dir(folder).stdin(Stdio::null()).stdout(said).stderr(also);
    // A killed compiler leaves temporary files, which are removed along with our folder.
    command.env("TMPDIR", folder);
    // The messages are in one language. A compiler cache is disabled, because it would not compile.
    command.env("LC_ALL", "C").env("CCACHE_DISABLE", "1");
    Ok(command)
}

fn said_in(folder: &Path) -> String {
    last_words(&fs::read(folder.join("said")).unwrap_or_default())
}
