//! Rules for the help texts of a command, for its tests: [`check`] (width, form and words).

use clap::Command;

use crate::line::WIDTH;

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
#[must_use]
pub fn banned(text: &str) -> Vec<&'static str> {
    let words: Vec<String> = text
        .split(|char: char| !char.is_alphanumeric() && char != '\'' && char != '-')
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect();
    let text = format!(" {} ", words.join(" "));
    BANNED.into_iter().filter(|phrase| text.contains(&format!(" {phrase} "))).collect()
}

/// Checks the help of a command and of all its subcommands.
///
/// # Panics
/// Panics at the first text that breaks a rule, and names the command.
pub fn check(definition: Command) {
    definition.clone().debug_assert();
    let mut whole = definition.term_width(WIDTH);
    whole.build();
    let mut commands = Vec::new();
    collect(&whole, whole.get_name().to_owned(), &mut commands);
    for (name, mut command) in commands {
        check_about(&name, &command);
        for (what, text) in helps(&command) {
            let is_capital = text.starts_with(|first: char| first.is_ascii_uppercase());
            assert!(is_capital && !text.ends_with('.'), "{name}, {what}: {text:?}");
        }
        for text in [command.render_help(), command.render_long_help()] {
            let text = text.to_string();
            for line in text.lines() {
                assert!(line.chars().count() <= WIDTH, "{name}: {line}");
            }
            assert_eq!(banned(&text), [""; 0], "{name}:\n{text}");
        }
    }
}

/// Collects each command that the help shows, with its full name, except `help` itself.
fn collect(command: &Command, name: String, all: &mut Vec<(String, Command)>) {
    for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
        collect(below, format!("{name} {}", below.get_name()), all);
    }
    all.push((name, command.clone()));
}

/// Checks that the summary is an imperative with a capital, on one line, without a period at its
/// end.
fn check_about(name: &str, command: &Command) {
    // The widest name of a command and its margins take 15 columns of the list.
    const LONGEST: usize = WIDTH - 15;
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let fits = about.chars().count() <= LONGEST || command.is_hide_set();
    assert!(fits && !about.contains('\n') && !about.ends_with('.'), "{name}: {about:?}");
    let verb = about.split(' ').next().unwrap_or_default();
    let is_capital = verb.starts_with(|first: char| first.is_ascii_uppercase());
    let is_imperative = !verb.ends_with("ing") && (!verb.ends_with('s') || verb == "Pass");
    assert!(is_capital && is_imperative, "{name}: {about:?}");
}

/// Returns the help of each argument and possible value of a command, with a name.
fn helps(command: &Command) -> Vec<(String, String)> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn banned_phrases_are_found_across_lines() {
        assert_eq!(banned("Nobody goes\non."), ["nobody", "goes on"]);
        assert_eq!(banned("A receiver waits."), [""; 0]);
    }

    #[test]
    #[should_panic(expected = "command, file")]
    fn argument_without_help_is_refused() {
        check(Command::new("command").about("Send a file").arg(clap::Arg::new("file")));
    }
}
