//! The project's own tasks, one subcommand each: `cargo xtask …`.
//!
//! Nothing depends on this package, and it depends on no crate of the product. A task is a module
//! with a function `run` that returns `true` if its checks pass; this file only lists the tasks.
//!
//! Floors, from the bottom up: `arguments`, `programs`; `mutants`; `dist`, `python`, `tidy`,
//! `zenoh`.

mod arguments;
mod dist;
mod mutants;
mod programs;
mod python;
mod tidy;
mod zenoh;

use std::io;
use std::path::Path;
use std::process::ExitCode;

use arguments::{Arguments, usage};

const HELP: &str = "\
The project's own tasks. Run them from the root of the repository.

  tidy             Check the rules of STYLE.md that a program can check
  header           Generate bindings/c/include/tontine.h from the sources
    --check          Write nothing; fail if the file is out of date
  mutants [NAME]…  Remove protections from a copy of the virtual Unix's kernel, and show that tests
                   find each
    --sample N       Try only N mutants, which change with each commit, and only with tests
    --protocol       Break the protocol between two gateways instead
    --rules          Count the rules that random scenarios use, and break one after another
    --scenarios N    Number of random scenarios that must use each rule [default: 100000]
    --seed SEED      Seed of the first scenario [default: 93000000]
  dist             Build the commands without symbols, and package them as a tarball and for Debian,
                   below target/dist; static if the musl target is installed (CONTRIBUTING.md)
    --gnu            Link with glibc, and include the measured C++ libraries
  python           Build the Python package's wheels and run its tests on each
    --bench          Also compare the speed with multiprocessing, pyzmq and JetStream
    --one            Build and test only for the oldest version that the main wheel serves
    --repeat N       Number of times that the tests run
  zenoh            Check, build and test the carrier over Zenoh, which is outside of the workspace
    --bench          Instead of the tests, measure the carrier, in an optimised build
    --repeat N       Number of times that the tests run

Programs of other packages; `cargo xtask NAME --help` lists their options:

  torment          Attack the library with random kills and hostile peers
    --asan           Build with AddressSanitizer (needs a nightly toolchain)
  crash            Explore the effect of kills on all mechanisms, and write the table of
                   docs/evidence/survival.md
  claims           Write the verdicts of `tontine-measure --as-published N` into
                   docs/evidence/claims.md
  trees            Trace a real build and a real session, for the virtual Unix to repeat
";

fn main() -> ExitCode {
    match run(Arguments::new(std::env::args_os().skip(1))) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(mut arguments: Arguments) -> io::Result<bool> {
    let root = Path::new(".");
    let name = arguments.first().unwrap_or_else(|| "--help".to_owned());
    match name.as_str() {
        "tidy" => {
            arguments.end()?;
            Ok(tidy())
        }
        "header" => {
            let check = arguments.flag("--check");
            arguments.end()?;
            programs::header(check)
        }
        "mutants" => mutants::run(root, &mutants::MutantsRequest::parse(arguments)?),
        "dist" => {
            let gnu = arguments.flag("--gnu");
            arguments.end()?;
            dist::run(root, gnu)
        }
        "python" => python::run(root, &python::PythonRequest::parse(arguments)?),
        "zenoh" => zenoh::run(root, &zenoh::ZenohRequest::parse(arguments)?),
        "torment" => programs::run_or_sanitize(programs::TORMENT, &arguments.all()),
        "crash" => programs::run(programs::CRASH, &arguments.all()),
        "claims" => programs::run(programs::CLAIMS, &arguments.all()),
        "trees" => programs::run(programs::TREES, &arguments.all()),
        "--help" | "-h" | "help" => {
            print!("{HELP}");
            Ok(true)
        }
        name => Err(usage(format!("expected a task, found {name:?}"))),
    }
}

fn tidy() -> bool {
    let found = tidy::run(Path::new("."));
    for complaint in &found {
        eprintln!("{complaint}");
    }
    found.is_empty()
}
