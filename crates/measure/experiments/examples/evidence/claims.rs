//! Writes the verdicts of `tontine-measure --as-published` into docs/evidence/claims.md: [`run`].
//!
//! A row of the page names a claim by its source and line, and the experiment that answers it.
//! [`run`] writes the verdicts of a run into the rows and complains about claims that only one of
//! the two has.

use std::collections::BTreeMap;
use std::path::Path;
use std::{fs, io};

use tontine_bench::machine::MachineFacts;
use tontine_experiments::as_published;

/// Path of the page.
const PAGE: &str = "docs/evidence/claims.md";
/// Start of the line that describes the machine.
const MEASURED_ON: &str = "Measured on: ";
/// The line before the verdicts of a reproduction.
const HEADING: &str = "Verdicts on the source's claims";
/// The words with which a verdict begins.
const VERDICTS: [&str; 3] =
    ["reproduced: ", "not reproduced, because ", "not comparable, because "];

/// The verdicts of one source, by line and text of the claim.
type SourceVerdicts = BTreeMap<(u32, String), String>;

/// Writes the verdicts of the runs in `folder` into the page below `root`, or only compares the
/// claims. A source without a run is left as it is. Returns `Ok(false)` if claims differ.
pub(crate) fn run(root: &Path, folder: &Path, check: bool) -> io::Result<bool> {
    let mut runs = BTreeMap::new();
    for source in as_published::sources() {
        let file = folder.join(format!("as-published-{}.txt", source.number));
        match fs::read_to_string(&file) {
            Ok(text) => drop(runs.insert(source.number, parse(&text))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    if runs.is_empty() {
        return Err(io::Error::other(format!(
            "expected as-published-000.txt or the like in {}, found none; run `tontine-measure \
             --as-published N`",
            folder.display()
        )));
    }
    let page = root.join(PAGE);
    let (text, complaints) = merge(&fs::read_to_string(&page)?, runs);
    if !check {
        fs::write(&page, text)?;
    }
    for complaint in &complaints {
        eprintln!("claims: {complaint}");
    }
    Ok(complaints.is_empty())
}

/// Parses the verdicts at the end of a reproduction's output.
fn parse(output: &str) -> SourceVerdicts {
    let list = output.rsplit_once(HEADING).map_or("", |(_, list)| list);
    let mut entries: Vec<(u32, String)> = Vec::new();
    for line in list.lines().skip(1) {
        match line.split_at_checked(4).map(|(number, rest)| (number.trim().parse(), rest)) {
            Some((Ok(number), rest)) => entries.push((number, rest.trim().to_owned())),
            _ if line.trim().is_empty() => {}
            _ => {
                if let Some((_, text)) = entries.last_mut() {
                    *text += &format!(" {}", line.trim());
                }
            }
        }
    }
    let split = |(line, text): (u32, String)| {
        let at = VERDICTS.iter().filter_map(|verdict| text.find(&format!(" {verdict}"))).min()?;
        Some(((line, text[..at].to_owned()), text[at + 1..].replace('|', "\\|")))
    };
    entries.into_iter().filter_map(split).collect()
}

/// Returns the page with the verdicts of `runs`, and the claims that only one of the two has.
fn merge(page: &str, mut runs: BTreeMap<&'static str, SourceVerdicts>) -> (String, Vec<String>) {
    let (mut merged, mut complaints) = (String::new(), Vec::new());
    let mut source = None;
    for line in page.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            source = as_published::sources()
                .iter()
                .map(|source| source.number)
                .find(|number| title.starts_with(&format!("Source {number}")));
        }
        let verdicts = source.and_then(|source| runs.get_mut(source));
        match (row(line), verdicts) {
            (Some((number, claim, by)), Some(verdicts)) => {
                match verdicts.remove(&(number, claim.to_owned())) {
                    Some(verdict) => {
                        merged += &format!("| {number} | {claim} | {by} | {verdict} |");
                    }
                    None => {
                        complaints.push(format!("{PAGE}, line {number}: no run has `{claim}`"));
                        merged += line;
                    }
                }
            }
            _ if line.starts_with(MEASURED_ON) => {
                merged += &format!("{MEASURED_ON}{}.", MachineFacts::look().one_line());
            }
            _ => merged += line,
        }
        merged.push('\n');
    }
    for (source, left) in runs {
        complaints.extend(left.keys().map(|(number, claim)| {
            format!("add a row to source {source} of {PAGE}: | {number} | {claim} | … | |")
        }));
    }
    (merged, complaints)
}

/// Parses a row: line of the source, claim, and what answers it.
fn row(line: &str) -> Option<(u32, &str, &str)> {
    let mut cells = line.strip_prefix("| ")?.split(" | ");
    Some((cells.next()?.parse().ok()?, cells.next()?, cells.next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "x\n\nVerdicts on the source's claims (the number is its line)\n  \
                          17  it runs on\n      not reproduced, because it does in\n      0 % of \
                          A|B\n 129  it works\n      reproduced: 2 ns\n";

    #[test]
    fn verdicts_parse_across_wrapped_lines() {
        let found = parse(OUTPUT);
        assert_eq!(
            found[&(17, "it runs on".into())],
            "not reproduced, because it does in 0 % of A\\|B"
        );
        assert_eq!(found[&(129, "it works".into())], "reproduced: 2 ns");
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn merged_page_has_new_verdicts_and_names_unlisted_claims() {
        let page = "## Source 000: x\n| line | claim | answered by | verdict |\n\
                    | 17 | it runs on | `a` | old |\n| 9 | gone | `b` | old |\n\
                    ## Source 001\n| 17 | it runs on | `c` | other |\n";
        let (merged, complaints) = merge(page, BTreeMap::from([("000", parse(OUTPUT))]));
        assert!(merged.contains("| 17 | it runs on | `a` | not reproduced, because"), "{merged}");
        assert!(merged.contains("| 17 | it runs on | `c` | other |"), "{merged}");
        assert_eq!(complaints.len(), 2, "{complaints:?}");
        assert!(complaints[0].contains("`gone`") && complaints[1].contains("| 129 | it works |"));
    }
}
