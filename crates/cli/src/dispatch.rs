//! Commands of other programs: `tontine NAME` runs `tontine-NAME`, as git and cargo do.
//!
//! The program is next to this one or in a directory of PATH. Some names are subcommands of a
//! program: `tontine compare` runs `tontine-measure compare` ([`PROGRAMS`]).

use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use tontine_command::CommandFailure;

/// A program of this project.
struct ProgramEntry {
    /// The program's name without `tontine-`.
    name: &'static str,
    /// Subcommands of the program that `tontine` runs by their own names.
    subcommands: &'static [&'static str],
    /// Folder of the program's package in the repository.
    package: &'static str,
}

const PROGRAMS: [ProgramEntry; 2] = [
    ProgramEntry {
        name: "measure",
        subcommands: &["compare", "crash", "doctor", "explain", "list"],
        package: "crates/measure/cli",
    },
    ProgramEntry { name: "unix", subcommands: &[], package: "crates/unix/cli" },
];

/// Subcommands of this program.
const OWN: [&str; 6] = ["bridge", "completions", "help", "man", "recv", "send"];

/// Replaces this process by the program for a name, with the rest of `words` as its arguments.
/// Returns only if that fails, with the reason.
pub(crate) fn run(words: &[OsString]) -> CommandFailure {
    let Some((name, arguments)) = words.split_first() else {
        return CommandFailure::usage("expected a command; `tontine --help` lists all");
    };
    let known = PROGRAMS.iter().find(|entry| name == entry.name || is_subcommand(entry, name));
    let mut program = OsString::from("tontine-");
    program.push(known.map_or(name.as_os_str(), |entry| OsStr::new(entry.name)));
    let subcommand = known.filter(|entry| name != entry.name).map(|_| name);
    // A name with a slash is a path and not the name of a program.
    let is_path = name.as_encoded_bytes().contains(&b'/');
    let found = neighbour(&program).unwrap_or_else(|| PathBuf::from(&program));
    let error = if is_path {
        io::ErrorKind::NotFound.into()
    } else {
        Command::new(&found).args(subcommand).args(arguments).exec()
    };
    if error.kind() != io::ErrorKind::NotFound {
        return CommandFailure::failed(format!("cannot run {}: {error}", found.display()));
    }
    let name = name.to_string_lossy();
    let program = program.to_string_lossy();
    CommandFailure::usage(match known {
        Some(entry) => format!(
            "`{name}` needs the program {program}, which is neither next to this one nor in PATH; \
             install it (cargo install --locked --path {})",
            entry.package
        ),
        None => format!(
            "expected a command, found {name:?}, and no program {program} is next to this one or \
             in PATH; {}",
            advice(&name)
        ),
    })
}

/// Returns the words of the command that prints the help of `tontine help NAME…`, if the command is
/// another program's.
pub(crate) fn help_words(arguments: &[OsString]) -> Option<Vec<OsString>> {
    let [help, name, rest @ ..] = arguments else { return None };
    let is_name = name.as_encoded_bytes().first().is_some_and(|&byte| byte != b'-');
    if help != "help" || !is_name || OWN.iter().any(|own| name == own) {
        return None;
    }
    let mut words = vec![name.clone()];
    words.extend(rest.iter().cloned());
    words.push("--help".into());
    Some(words)
}

fn is_subcommand(entry: &ProgramEntry, name: &OsStr) -> bool {
    // Hidden subcommands are those of the program that measures: an older run of `compare` starts
    // this program with one.
    let is_hidden = name.as_encoded_bytes().starts_with(b"__");
    entry.subcommands.iter().any(|subcommand| name == *subcommand)
        || (is_hidden && entry.name == "measure")
}

/// Returns the path of a program in the directory of this one.
fn neighbour(program: &OsStr) -> Option<PathBuf> {
    let path = env::current_exe().ok()?.with_file_name(program);
    path.is_file().then_some(path)
}

fn advice(name: &str) -> String {
    let others = PROGRAMS.iter().flat_map(|entry| entry.subcommands.iter().chain([&entry.name]));
    let similarity = |known: &&str| strsim::jaro_winkler(name, known);
    let nearest = OWN.iter().chain(others).copied().filter(|known| similarity(known) > 0.8);
    match nearest.max_by(|a, b| similarity(a).total_cmp(&similarity(b))) {
        Some(nearest) => format!("did you mean `{nearest}`?"),
        None => "`tontine --help` lists the commands".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_of_another_program_becomes_its_option() {
        let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        assert_eq!(help_words(&words("help compare")), Some(words("compare --help")));
        assert_eq!(help_words(&words("help unix run")), Some(words("unix run --help")));
        for own in ["help send", "help", "help ", "help --version", "send help"] {
            assert_eq!(help_words(&words(own)), None, "{own}");
        }
    }

    #[test]
    fn advice_names_nearest_command() {
        assert_eq!(advice("comprae"), "did you mean `compare`?");
        assert_eq!(advice("resv"), "did you mean `recv`?");
        assert_eq!(advice("zzz"), "`tontine --help` lists the commands");
    }
}
