//! The manual pages, one per command, from the text that a command prints for `man`: [`split`].

use std::io;

/// First line of each page, as clap_mangen writes it.
const FIRST: &str = ".ie \\n(.g .ds Aq \\(aq";

/// Splits the text into pages, each with the name of its file.
///
/// # Errors
/// If a page has no title.
pub(super) fn split(text: &str) -> io::Result<Vec<(String, String)>> {
    let mut pages: Vec<String> = Vec::new();
    for line in text.lines() {
        if line == FIRST || pages.is_empty() {
            pages.push(String::new());
        }
        let page = pages.last_mut().expect("the first line begins a page");
        page.push_str(line);
        page.push('\n');
    }
    pages.into_iter().map(|page| name(&page).map(|name| (name, page))).collect()
}

/// Returns the file name of a page, which its title gives: `.TH tontine-send 1 …`.
fn name(page: &str) -> io::Result<String> {
    let title = page.lines().find_map(|line| line.strip_prefix(".TH "));
    let mut words = title.into_iter().flat_map(str::split_whitespace);
    match (words.next(), words.next()) {
        (Some(name), Some(section)) => Ok(format!("{name}.{section}")),
        _ => Err(io::Error::other(format!(
            "expected a page with `.TH NAME SECTION` from the subcommand `man`, found: {:?}",
            page.lines().next().unwrap_or_default()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_split_into_named_pages() {
        let page = |name: &str| {
            format!("{FIRST}\n.el .ds Aq '\n.TH {name} 1  \"{name} 0.1.0\" \n.SH NAME\n")
        };
        let (first, second) = (page("tontine"), page("tontine-send"));
        let pages = split(&format!("{first}{second}")).expect("titles");
        assert_eq!(pages, [("tontine.1".into(), first), ("tontine-send.1".into(), second)]);
    }

    #[test]
    fn page_without_title_is_an_error() {
        assert!(split("usage: tontine\n").is_err());
        assert_eq!(split("").expect("no page").len(), 0);
    }
}
