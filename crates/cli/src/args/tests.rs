//! Tests of the help texts: width, form and words.

use super::*;

/// Phrases that STYLE.md excludes. The check reads the rendered text, because a phrase may be split
/// over two lines of the source.
const BANNED: [&str; 30] = [
    "whoever",
    "whomever",
    "somebody",
    "someone",
    "nobody",
    "everybody",
    "anybody",
    "for ever",
    "so many",
    "so much",
    "so often",
    "under way",
    "anew",
    "beside",
    "newcomer",
    "newcomers",
    "for want of",
    "in the place of",
    "by dice",
    "tell of",
    "tells of",
    "told of",
    "comes of",
    "came of",
    "look after",
    "looked after",
    "looks after",
    "goes on",
    "go on",
    "a cell",
];

/// Returns the banned phrases that `text` contains as whole words.
pub(crate) fn banned(text: &str) -> Vec<&'static str> {
    let words: Vec<String> = text
        .split(|char: char| !char.is_alphanumeric() && char != '\'' && char != '-')
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect();
    let text = format!(" {} ", words.join(" "));
    BANNED.into_iter().filter(|phrase| text.contains(&format!(" {phrase} "))).collect()
}

/// Returns each command that the help shows, with its full name, except `help` itself.
fn commands() -> Vec<(String, clap::Command)> {
    fn collect(command: &clap::Command, name: String, all: &mut Vec<(String, clap::Command)>) {
        for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
            collect(below, format!("{name} {}", below.get_name()), all);
        }
        all.push((name, command.clone()));
    }
    let mut whole = definition().term_width(WIDTH);
    whole.build();
    let mut all = Vec::new();
    collect(&whole, "tontine".to_owned(), &mut all);
    all
}

/// Returns the help of each argument and possible value of a command, with a name.
fn helps(command: &clap::Command) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for argument in command.get_arguments() {
        let text = argument.get_help().map(ToString::to_string);
        all.push((argument.get_id().to_string(), text.unwrap_or_default()));
        for value in argument.get_possible_values() {
            let is_ours = argument.get_id() != "shell";
            let takes_value = argument.get_action().takes_values();
            let text = value.get_help().map(ToString::to_string);
            if is_ours && takes_value {
                all.push((value.get_name().to_owned(), text.unwrap_or_default()));
            }
        }
    }
    all
}

#[test]
fn help_lines_fit_80_columns() {
    let commands = commands();
    assert!(commands.len() > 15, "{}", commands.len());
    for (name, command) in commands {
        let helps = [command.clone().render_help(), command.clone().render_long_help()];
        for line in helps
            .iter()
            .flat_map(|text| text.to_string().lines().map(str::to_owned).collect::<Vec<_>>())
        {
            assert!(line.chars().count() <= WIDTH, "{name}: {line}");
        }
    }
}

/// Each command's help is an imperative with a capital, on one line, without a period at its end.
#[test]
fn each_command_has_a_one_line_imperative() {
    // The widest name of a command and its margins take 15 columns of the list.
    const LONGEST: usize = WIDTH - 15;
    for (name, command) in commands() {
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        let hidden = command.is_hide_set();
        let fits = about.chars().count() <= LONGEST || hidden;
        assert!(fits && !about.contains('\n') && !about.ends_with('.'), "{name}: {about:?}");
        let verb = about.split(' ').next().unwrap_or_default();
        let is_capital = verb.starts_with(|first: char| first.is_ascii_uppercase());
        let is_imperative = !verb.ends_with("ing") && (!verb.ends_with('s') || verb == "Pass");
        assert!(is_capital && is_imperative, "{name}: {about:?}");
    }
}

/// Each argument's help begins with a capital and has no period at its end.
#[test]
fn each_argument_and_value_has_help() {
    for (name, command) in commands() {
        for (what, text) in helps(&command) {
            let is_capital = text.starts_with(|first: char| first.is_ascii_uppercase());
            assert!(is_capital && !text.ends_with('.'), "{name}, {what}: {text:?}");
        }
    }
}

#[test]
fn help_has_no_excluded_words() {
    for (name, mut command) in commands() {
        let text = command.render_long_help().to_string();
        assert_eq!(banned(&text), [""; 0], "{name}:\n{text}");
    }
    assert_eq!(banned("Nobody goes\non."), ["nobody", "goes on"]);
}

#[test]
fn command_line_definition_is_consistent() {
    definition().debug_assert();
}
