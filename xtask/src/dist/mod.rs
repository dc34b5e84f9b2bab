//! `cargo xtask dist`: packages the commands for users, as a tarball and for Debian ([`run`]).
//!
//! The commands are static (musl) and lack the measured C++ libraries, or dynamic (glibc) and have
//! them; the name of the tarball says which. [`pages`] splits the manual page by command, and
//! [`deb`] writes Debian's package. Everything is written below `target/dist`. The task neither
//! signs nor uploads.

mod deb;
mod pages;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

/// Profile of the commands in Cargo.toml: `release` without symbols.
const PROFILE: &str = "shipped";

/// The C library that the commands are linked with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Libc {
    /// Static; without libraries in C++.
    Musl,
    Gnu,
}

impl Libc {
    fn target(self) -> String {
        format!("{}-unknown-{}", env::consts::ARCH, self.system())
    }

    fn system(self) -> &'static str {
        match self {
            Self::Musl => "linux-musl",
            Self::Gnu => "linux-gnu",
        }
    }
}

/// The files of a package.
struct Contents {
    version: String,
    libc: Libc,
    commands: Vec<CommandFiles>,
}

/// The files of one command in a package.
struct CommandFiles {
    name: &'static str,
    program: Vec<u8>,
    /// Name (`tontine-send.1`) and text of each manual page.
    pages: Vec<(String, String)>,
    /// Completions for [`SHELLS`], in that order.
    completions: Vec<Vec<u8>>,
}

/// The commands, each with its package.
const COMMANDS: [(&str, &str); 3] = [
    ("tontine", "tontine-cli"),
    ("tontine-measure", "tontine-measure"),
    ("tontine-unix", "tontine-unix-cli"),
];

/// Shells with completions, each with the name of a command's file, in which `@` stands for the
/// command.
const SHELLS: [(&str, &str); 3] = [("bash", "@.bash"), ("zsh", "_@"), ("fish", "@.fish")];

/// Files of the repository that a package contains.
const TEXTS: [&str; 4] = ["README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE"];

/// Builds the commands, and writes both packages. Uses musl if its target is installed, unless
/// `gnu` is set.
///
/// # Errors
/// If a program fails, or a file cannot be written.
pub(crate) fn run(root: &Path, gnu: bool) -> io::Result<bool> {
    let root = root.canonicalize()?;
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let dist = target.join("dist");
    let libc = if gnu { Libc::Gnu } else { available()? };
    let built = build(&root, &target, libc)?;
    let contents = Contents {
        version: env!("CARGO_PKG_VERSION").into(),
        libc,
        commands: COMMANDS
            .iter()
            .map(|(name, _)| command_files(name, &built.join(name)))
            .collect::<io::Result<_>>()?,
    };
    // Files have the time of the last commit, so that the same commit gives the same packages.
    let stamp = text(Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(&root))?;
    let stamp = stamp.trim();
    let mut written = vec![tarball(&root, &dist, &contents, stamp)?];
    if Command::new("dpkg-deb").arg("--version").output().is_ok() {
        written.push(deb::write(&root, &dist, &contents, stamp)?);
    } else {
        println!("skipped: the package for Debian needs dpkg-deb; install dpkg");
    }
    for path in written {
        println!("{} ({} KiB)", path.display(), fs::metadata(&path)?.len() >> 10);
    }
    Ok(true)
}

/// Returns musl if the compiler has its target.
fn available() -> io::Result<Libc> {
    let target = Libc::Musl.target();
    let libraries =
        text(Command::new("rustc").args(["--print", "target-libdir", "--target", &target]))?;
    if Path::new(libraries.trim()).is_dir() {
        return Ok(Libc::Musl);
    }
    println!("linking with glibc, because {target} is missing; for static commands, run:");
    println!("  rustup target add {target}");
    Ok(Libc::Gnu)
}

/// Builds the commands, and returns their folder.
fn build(root: &Path, target: &Path, libc: Libc) -> io::Result<PathBuf> {
    let triple = libc.target();
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--locked", "--bins", "--profile", PROFILE]);
    cargo.args(COMMANDS.iter().flat_map(|(_, package)| ["--package", package]));
    cargo.args(["--target", &triple]).arg("--target-dir").arg(target).current_dir(root);
    if libc == Libc::Musl {
        cargo.arg("--no-default-features");
    }
    let status = cargo.status().map_err(|error| failure("cargo", &error))?;
    if !status.success() {
        return Err(io::Error::other(format!("cargo build for {triple}: {status}; see above")));
    }
    Ok(target.join(triple).join(PROFILE))
}

fn command_files(name: &'static str, path: &Path) -> io::Result<CommandFiles> {
    Ok(CommandFiles {
        name,
        program: fs::read(path)?,
        pages: pages::split(&text(Command::new(path).arg("man"))?)?,
        completions: SHELLS
            .iter()
            .map(|(shell, _)| output(Command::new(path).args(["completions", shell])))
            .collect::<io::Result<_>>()?,
    })
}

/// Writes the tarball, whose files are in one folder.
fn tarball(root: &Path, dist: &Path, contents: &Contents, stamp: &str) -> io::Result<PathBuf> {
    let name =
        format!("tontine-{}-{}-{}", contents.version, env::consts::ARCH, contents.libc.system());
    let folder = fresh(dist, &name)?;
    for command in &contents.commands {
        put(&folder, command.name, &command.program, 0o755)?;
        for (name, page) in &command.pages {
            put(&folder, &format!("man/man1/{name}"), page.as_bytes(), 0o644)?;
        }
        for ((_, file), completions) in SHELLS.iter().zip(&command.completions) {
            let file = file.replace('@', command.name);
            put(&folder, &format!("completions/{file}"), completions, 0o644)?;
        }
    }
    for file in TEXTS {
        put(&folder, file, &fs::read(root.join(file))?, 0o644)?;
    }
    let path = dist.join(format!("{name}.tar.gz"));
    let mut tar = Command::new("tar");
    tar.args(["--create", "--sort=name", "--owner=0", "--group=0", "--numeric-owner"]);
    tar.args(["--use-compress-program", "gzip -9n"]).arg(format!("--mtime=@{stamp}"));
    tar.arg("--file").arg(&path).arg("--directory").arg(dist).arg(&name);
    output(&mut tar)?;
    fs::remove_dir_all(&folder)?;
    Ok(path)
}

/// Returns an empty folder.
fn fresh(dist: &Path, name: &str) -> io::Result<PathBuf> {
    let folder = dist.join(name);
    match fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => fs::create_dir_all(&folder).map(|()| folder),
    }
}

/// Writes a file below `folder`, with its folders. Its mode does not depend on the umask.
fn put(folder: &Path, name: &str, bytes: &[u8], mode: u32) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let path = folder.join(name);
    let above = path.parent().expect("a file is in a folder");
    fs::create_dir_all(above)?;
    for folder in above.ancestors().take_while(|above| above.starts_with(folder)) {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?;
    }
    fs::write(&path, bytes)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(mode))
}

/// Returns the standard output of a program that must succeed.
fn output(command: &mut Command) -> io::Result<Vec<u8>> {
    let program = command.get_program().display().to_string();
    let done = command.output().map_err(|error| failure(&program, &error))?;
    if done.status.success() {
        return Ok(done.stdout);
    }
    let arguments = command.get_args().map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ");
    let why = String::from_utf8_lossy(&done.stderr);
    Err(io::Error::other(format!("{program} {arguments}: {}: {}", done.status, why.trim())))
}

fn text(command: &mut Command) -> io::Result<String> {
    String::from_utf8(output(command)?).map_err(io::Error::other)
}

fn failure(program: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot start {program}: {error}"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn put_sets_modes_of_files_and_folders() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = fresh(place.path(), "package").expect("a folder");
        put(&folder, "usr/bin/command", b"text", 0o755).expect("written");
        let mode = |name: &str| {
            fs::metadata(folder.join(name)).expect("a file").permissions().mode() & 0o777
        };
        assert_eq!((mode("usr"), mode("usr/bin"), mode("usr/bin/command")), (0o755, 0o755, 0o755));
        let again = fresh(place.path(), "package").expect("a folder");
        assert_eq!(fs::read_dir(again).expect("a folder").count(), 0);
    }

    #[test]
    fn failed_program_is_named_with_its_arguments() {
        let error = output(Command::new("sh").args(["-c", "echo why >&2; exit 3"]));
        let error = error.expect_err("status 3").to_string();
        assert!(error.starts_with("sh -c ") && error.ends_with(": why"), "{error}");
        let error = output(&mut Command::new("/nonexistent")).expect_err("no program").to_string();
        assert!(error.starts_with("cannot start /nonexistent: "), "{error}");
    }
}
