//! The command line: [`Arguments`], from which a task takes what it knows.
//!
//! A parser from a registry would take longer to build than everything else that this program
//! needs.

use std::ffi::OsString;
use std::fmt::Display;
use std::io;
use std::str::FromStr;

/// The arguments that no task has taken yet.
#[derive(Debug)]
pub(crate) struct Arguments(Vec<OsString>);

impl Arguments {
    pub(crate) fn new(arguments: impl IntoIterator<Item = OsString>) -> Self {
        Self(arguments.into_iter().collect())
    }

    /// Takes the first argument.
    pub(crate) fn first(&mut self) -> Option<String> {
        (!self.0.is_empty()).then(|| self.0.remove(0).to_string_lossy().into_owned())
    }

    /// Takes an option without a value. Returns `true` if it is present.
    pub(crate) fn flag(&mut self, name: &str) -> bool {
        let before = self.0.len();
        self.0.retain(|argument| argument != name);
        self.0.len() < before
    }

    /// Takes an option with a value, written `--name value` or `--name=value`.
    pub(crate) fn value<T: FromStr<Err: Display>>(&mut self, name: &str) -> io::Result<Option<T>> {
        let joined = format!("{name}=");
        let is_it = |argument: &OsString| {
            argument == name || argument.to_string_lossy().starts_with(&joined)
        };
        let Some(at) = self.0.iter().position(is_it) else { return Ok(None) };
        let option = self.0.remove(at);
        let text = match option.to_string_lossy().strip_prefix(&joined) {
            Some(value) => value.to_owned(),
            None if at < self.0.len() => self.0.remove(at).to_string_lossy().into_owned(),
            None => return Err(usage(format!("expected a value after {name}, found none"))),
        };
        let invalid = |error| usage(format!("{name}: found {text:?}: {error}"));
        text.parse().map(Some).map_err(invalid)
    }

    /// Takes all remaining arguments, unread.
    pub(crate) fn all(&mut self) -> Vec<OsString> {
        std::mem::take(&mut self.0)
    }

    /// Takes the remaining arguments, which must not be options.
    pub(crate) fn names(&mut self) -> io::Result<Vec<String>> {
        let names = self.all().into_iter().map(|name| name.to_string_lossy().into_owned());
        let is_name = |name: String| {
            if name.starts_with('-') { Err(unknown(&name)) } else { Ok(name) }
        };
        names.map(is_name).collect()
    }

    /// Ends the parsing.
    pub(crate) fn end(&mut self) -> io::Result<()> {
        self.0.first().map_or(Ok(()), |first| Err(unknown(&first.to_string_lossy())))
    }
}

fn unknown(argument: &str) -> io::Error {
    usage(format!("expected no argument {argument:?} here"))
}

/// Returns an error in the command line.
pub(crate) fn usage(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text + "; `cargo xtask --help` lists the tasks")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(words: &str) -> Arguments {
        Arguments::new(words.split_whitespace().map(OsString::from))
    }

    #[test]
    fn options_are_taken_in_any_order() {
        let mut left = arguments("one --repeat 3 --bench two --seed=7");
        assert!(left.flag("--bench") && !left.flag("--bench"));
        assert_eq!(left.value::<u64>("--seed").expect("a number"), Some(7));
        assert_eq!(left.value::<u32>("--repeat").expect("a number"), Some(3));
        assert_eq!(left.value::<u32>("--repeat").expect("none"), None);
        assert_eq!(left.names().expect("names"), ["one", "two"]);
        left.end().expect("nothing is left");
    }

    #[test]
    fn wrong_arguments_are_named() {
        let seed = |words| arguments(words).value::<u64>("--seed").map(drop);
        for (result, part) in [
            (arguments("--what").names().map(drop), "--what"),
            (arguments("what").end(), "what"),
            (seed("--seed"), "expected a value after --seed"),
            (seed("--seed x"), "\"x\""),
        ] {
            let text = result.expect_err("wrong").to_string();
            assert!(text.contains(part), "{text}");
        }
    }
}
