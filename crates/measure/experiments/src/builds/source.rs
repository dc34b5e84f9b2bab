//! The program that is built: [`write`] generates its C sources and its makefile, which are always
//! the same.
//!
//! It consists of [`UNITS`] files of [`PARTS`] parts each. A part is `template.c` with its own
//! names and constants: a table of words, a parser, a sorted list and a matrix. The parts are real
//! code that runs: the main file calls all of them and prints a checksum, which is the same for
//! every copy.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;

const UNITS: usize = 12;
const PARTS: usize = 5;

const TEMPLATE: &str = include_str!("template.c");

const HEAD: &str = "#include <ctype.h>\n#include <stdio.h>\n#include <stdlib.h>\n\
                    #include <string.h>\n\n#include \"units.h\"\n\n";

/// Writes the program's sources into `folder` and returns the number of lines of C.
pub(super) fn write(folder: &Path) -> io::Result<usize> {
    let mut lines = 0;
    let mut put = |name: &str, text: &str| {
        if name.ends_with(".c") || name.ends_with(".h") {
            lines += text.lines().count();
        }
        fs::write(folder.join(name), text)
    };
    put("units.h", &header())?;
    put("main.c", &main_file())?;
    for unit in 0..UNITS {
        put(&format!("{}.c", name(unit)), &unit_file(unit))?;
    }
    put("Makefile", &makefile())?;
    Ok(lines)
}

fn name(unit: usize) -> String {
    format!("unit_{unit:02}")
}

fn header() -> String {
    let mut text = String::from("#ifndef UNITS_H\n#define UNITS_H\n\n");
    for unit in 0..UNITS {
        let _ = writeln!(text, "unsigned long {}(void);", name(unit));
    }
    text + "\n#endif\n"
}

fn unit_file(unit: usize) -> String {
    let mut text = String::from(HEAD);
    // Arbitrary constants, which are odd and therefore never 0.
    let constant = |part: usize, which: usize| (unit * PARTS + part) * 2 + which * 34 + 3;
    for part in 0..PARTS {
        let mut own = TEMPLATE.replace('@', &format!("{unit:02}_{part}"));
        for which in 1..=4 {
            own = own.replace(&format!("${which}"), &constant(part, which).to_string());
        }
        text.push_str(&own);
    }
    let _ = writeln!(text, "unsigned long {}(void) {{\n    unsigned long check = 0;", name(unit));
    for part in 0..PARTS {
        let _ = writeln!(text, "    check = check * 31u + part_{unit:02}_{part}();");
    }
    text + "    return check;\n}\n"
}

fn main_file() -> String {
    let mut text = String::from("#include <stdio.h>\n\n#include \"units.h\"\n\n");
    text.push_str("int main(void) {\n    unsigned long check = 0;\n");
    for unit in 0..UNITS {
        let _ = writeln!(text, "    check = check * 31u + {}();", name(unit));
    }
    text + "    printf(\"%lx\\n\", check);\n    return 0;\n}\n"
}

/// Returns the makefile: one target per object, and a link. The compiler does not optimise, because
/// it has enough work without optimisation.
fn makefile() -> String {
    let objects: Vec<String> =
        (0..UNITS).map(|unit| format!("{}.o", name(unit))).chain(["main.o".into()]).collect();
    let mut text = format!(
        "CC = cc\nCFLAGS = -O0\n\nprogram: {objects}\n\t$(CC) -o program {objects}\n",
        objects = objects.join(" ")
    );
    for object in &objects {
        let source = object.replace(".o", ".c");
        let _ = write!(text, "\n{object}: {source} units.h\n\t$(CC) $(CFLAGS) -c {source}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_have_about_ten_thousand_identical_lines() {
        let [first, second] = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
        let lines = write(first.path()).expect("written");
        assert_eq!(write(second.path()).expect("written"), lines);
        assert!((9_500..=10_500).contains(&lines), "{lines}");
        for file in fs::read_dir(first.path()).expect("a folder").flatten() {
            let read = |folder: &Path| fs::read(folder.join(file.file_name())).expect("a file");
            assert_eq!(read(first.path()), read(second.path()));
        }
    }

    #[test]
    fn unit_files_contain_no_template_placeholders() {
        for unit in 0..UNITS {
            let text = unit_file(unit);
            assert!(!text.contains('@') && !text.contains('$'), "{text}");
        }
    }
}
