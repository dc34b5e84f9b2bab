//! The package for Debian: [`write()`].

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

use super::{Contents, Libc, SHELLS, fresh, output, put};

/// Files of a command's completions for [`SHELLS`], in which `@` stands for the command.
const COMPLETIONS: [&str; 3] = [
    "usr/share/bash-completion/completions/@",
    "usr/share/zsh/vendor-completions/_@",
    "usr/share/fish/vendor_completions.d/@.fish",
];
const _: () = assert!(COMPLETIONS.len() == SHELLS.len());

/// Writes the package with `dpkg-deb`; returns its path.
pub(super) fn write(
    root: &Path,
    dist: &Path,
    contents: &Contents,
    stamp: &str,
) -> io::Result<PathBuf> {
    let architecture = match env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let tree = fresh(dist, "deb")?;
    for command in &contents.commands {
        put(&tree, &format!("usr/bin/{}", command.name), &command.program, 0o755)?;
        for (name, page) in &command.pages {
            let path = format!("usr/share/man/man1/{name}");
            put(&tree, &path, page.as_bytes(), 0o644)?;
            output(Command::new("gzip").arg("-9n").arg(tree.join(path)))?;
        }
        for (path, completions) in COMPLETIONS.iter().zip(&command.completions) {
            put(&tree, &path.replace('@', command.name), completions, 0o644)?;
        }
    }
    let documents = "usr/share/doc/tontine";
    for file in ["README.md", "CHANGELOG.md"] {
        put(&tree, &format!("{documents}/{file}"), &fs::read(root.join(file))?, 0o644)?;
    }
    output(Command::new("gzip").arg("-9n").arg(tree.join(documents).join("CHANGELOG.md")))?;
    let mit = fs::read_to_string(root.join("LICENSE-MIT"))?;
    put(&tree, &format!("{documents}/copyright"), copyright(&mit).as_bytes(), 0o644)?;

    let programs: Vec<&[u8]> = contents.commands.iter().map(|one| &one.program[..]).collect();
    let size = programs.iter().map(|program| program.len()).sum::<usize>() >> 10;
    let needed = depends(contents.libc, &programs);
    let control = control(&contents.version, architecture, size, &needed);
    put(&tree, "DEBIAN/control", control.as_bytes(), 0o644)?;
    let path = dist.join(format!("tontine_{}_{architecture}.deb", contents.version));
    let mut build = Command::new("dpkg-deb");
    build.args(["--build", "--root-owner-group"]).arg(&tree).arg(&path);
    output(build.env("SOURCE_DATE_EPOCH", stamp))?;
    fs::remove_dir_all(&tree)?;
    Ok(path)
}

fn control(version: &str, architecture: &str, kibibytes: usize, depends: &str) -> String {
    let depends = if depends.is_empty() { String::new() } else { format!("Depends: {depends}\n") };
    format!(
        "Package: tontine\n\
         Version: {version}\n\
         Architecture: {architecture}\n\
         Maintainer: The contributors to Tontine\n\
         Installed-Size: {kibibytes}\n\
         {depends}\
         Section: utils\n\
         Priority: optional\n\
         Description: messages between processes that survive kill -9\n \
         The command tontine sends and receives messages through shared memory.\n \
         The command tontine-measure measures the mechanisms between the processes\n \
         of this machine, and shows what survives a kill at every instruction. The\n \
         command tontine-unix runs process and signal code in a virtual Unix.\n"
    )
}

/// Returns the packages that the commands need.
fn depends(libc: Libc, programs: &[&[u8]]) -> String {
    let newest = programs.iter().filter_map(|program| newest(program, b"GLIBC_2.")).max();
    match (libc, newest) {
        (Libc::Musl, _) => String::new(),
        (Libc::Gnu, None) => "libc6, libgcc-s1, libstdc++6".into(),
        (Libc::Gnu, Some(minor)) => format!("libc6 (>= 2.{minor}), libgcc-s1, libstdc++6"),
    }
}

/// Returns the highest number that follows `mark` anywhere in a program: versions of symbols are
/// texts.
fn newest(program: &[u8], mark: &[u8]) -> Option<u32> {
    let marked = program.windows(mark.len()).enumerate().filter(|(_, found)| *found == mark);
    let number = |(at, _): (usize, &[u8])| {
        let rest = &program[at + mark.len()..];
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()
    };
    marked.filter_map(number).max()
}

/// Returns Debian's file on licences. Apache's is not repeated: every system has it.
fn copyright(mit: &str) -> String {
    let mut text = String::from(
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\
         Upstream-Name: tontine\n\
         \n\
         Files: *\n",
    );
    let (holder, license) = mit
        .split_once("Copyright ")
        .and_then(|(_, rest)| rest.split_once('\n'))
        .unwrap_or(("the contributors to Tontine", mit));
    let holder = holder.trim_start_matches("(c) ");
    let _ = write!(text, "Copyright: {holder}\nLicense: MIT or Apache-2.0\n\nLicense: MIT\n");
    for line in license.trim().lines() {
        let _ = writeln!(text, " {}", if line.is_empty() { "." } else { line });
    }
    text.push_str(
        "\n\
         License: Apache-2.0\n \
         On Debian systems, /usr/share/common-licenses/Apache-2.0 contains this license.\n",
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_names_dependencies_only_of_a_dynamic_command() {
        let program = b"\0GLIBC_2.2.5\0GLIBC_2.34\0GLIBC_2.9\0GLIBC_PRIVATE\0";
        let dynamic = depends(Libc::Gnu, &[b"\0GLIBC_2.17\0", program]);
        assert_eq!(dynamic, "libc6 (>= 2.34), libgcc-s1, libstdc++6");
        let control = |depends: &str| control("0.1.0", "amd64", 9, depends);
        assert!(control(&dynamic).contains("\nDepends: libc6 (>= 2.34), "));
        let fixed = control(&depends(Libc::Musl, &[program]));
        assert!(!fixed.contains("Depends"), "{fixed}");
        // Lines of the long description begin with a blank.
        let (_, description) = fixed.split_once("\nDescription: ").expect("a description");
        assert!(description.lines().skip(1).all(|line| line.starts_with(' ')), "{fixed}");
    }

    #[test]
    fn copyright_has_holder_and_text_of_the_license() {
        let text =
            copyright("MIT License\n\nCopyright (c) 2026 A. Holder\n\nPermission.\n\nAs is.\n");
        assert!(text.contains("\nCopyright: 2026 A. Holder\n"), "{text}");
        assert!(text.contains("\nLicense: MIT\n Permission.\n .\n As is.\n"), "{text}");
    }
}
