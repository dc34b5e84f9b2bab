//! Builds: [`Tools`] are the tools, and [`Tools::build`] runs several builds at once.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use std::fs::{self, File};

use tontine_bench::os::process_group::ProcessGroup;
use tontine_bench::os::program::{find, last_lines};

use super::source;
use crate::prelude::*;

/// Environment variables that connect a `make` with an outer `make`, or cause it to read more than
/// its makefile.
const OF_MAKE: [&str; 5] = ["MAKEFLAGS", "MFLAGS", "GNUMAKEFLAGS", "MAKELEVEL", "MAKEFILES"];

const SMALLEST: &str = "#include <stdio.h>\nint main(void) { return puts(\"well\") < 0; }\n";

#[derive(Debug)]
pub(super) struct Tools {
    make: PathBuf,
}

#[derive(Debug)]
pub(super) struct Built {
    pub(super) seconds: Vec<f64>,
    pub(super) lines: usize,
}

impl Tools {
    /// Searches for `make` and a working compiler, and tests the compiler in `folder`.
    ///
    /// Compiling a small program is also the warm-up: it loads the compiler and the headers into
    /// memory, so that the first build does not differ from the last.
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
            skip!(
                "needs a C compiler that finds <stdio.h> and links: {} on a program of two lines: \
                 {status}: {}",
                cc.display(),
                output_in(folder)
            );
        }
        Ok(Self { make })
    }

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
        let build = |number: usize, mut make: Command| {
            let (time, status) = processes.run(&mut make, until)?;
            if status.success() {
                return Ok(time.as_secs_f64());
            }
            Err(MeasureError::fail(format!("make: {status}: {}", output_in(&folders[number]))))
        };
        let make = |number: usize| self.make_in(&folders[number]);
        let seconds = threads::together(count, make, build)?;
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
        let output = output_in(folder);
        let whole = !output.is_empty() && output.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !status.success() || !whole || *first.get_or_insert_with(|| output.clone()) != output {
            let folder = folder.display();
            bail!(
                "expected the programs to print one checksum; that in {folder} ended with \
                 {status}: {output}"
            );
        }
    }
    Ok(())
}

/// Returns a command that runs in `folder`, writes its output into a file there, and has no input.
fn command(program: &Path, folder: &Path) -> Result<Command> {
    let output = File::create(folder.join("output")).setting_up("creating a file")?;
    let also = output.try_clone().setting_up("dup")?;
    let mut command = Command::new(program);
    command.current_dir(folder).stdin(Stdio::null()).stdout(output).stderr(also);
    // A killed compiler leaves temporary files, which are removed along with our folder.
    command.env("TMPDIR", folder);
    // The messages are in one language. A compiler cache is disabled, because it would not compile.
    command.env("LC_ALL", "C").env("CCACHE_DISABLE", "1");
    Ok(command)
}

fn output_in(folder: &Path) -> String {
    last_lines(&fs::read(folder.join("output")).unwrap_or_default())
}
