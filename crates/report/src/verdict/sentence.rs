//! A statement in parts, so that a page can mark up names and figures: [`Sentence`].

use tontine_bench::format::{self, FormattedFigure};
use tontine_bench::task::Params;

/// A part of a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SentencePart {
    /// Plain words.
    Words(String),
    /// The name of a variant.
    Name(String),
    /// A figure.
    Figure(String),
    /// The interval of a figure, in parentheses.
    Interval(String),
}

/// One statement about this machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sentence {
    /// The parts, in order.
    pub parts: Vec<SentencePart>,
}

impl Sentence {
    /// Returns the sentence without markup.
    pub fn plain(&self) -> String {
        self.parts
            .iter()
            .map(|part| match part {
                SentencePart::Words(text)
                | SentencePart::Name(text)
                | SentencePart::Figure(text)
                | SentencePart::Interval(text) => text.as_str(),
            })
            .collect()
    }

    pub(super) fn words(mut self, text: &str) -> Self {
        self.parts.push(SentencePart::Words(text.into()));
        self
    }

    pub(super) fn name(mut self, name: &str) -> Self {
        self.parts.push(SentencePart::Name(name.into()));
        self
    }

    /// Appends names, separated by commas.
    pub(super) fn names<'a>(self, names: impl Iterator<Item = &'a str>) -> Self {
        names.enumerate().fold(self, |sentence, (at, name)| {
            if at > 0 { sentence.words(", ").name(name) } else { sentence.name(name) }
        })
    }

    pub(super) fn figure(mut self, shown: &FormattedFigure) -> Self {
        self.parts.push(SentencePart::Figure(shown.value.clone()));
        if !shown.interval.is_empty() {
            self.parts.push(SentencePart::Words(" ".into()));
            self.parts.push(SentencePart::Interval(format!("({})", shown.interval)));
        }
        self
    }

    pub(super) fn with_params(self, params: &Params) -> Self {
        if params.is_empty() { self } else { self.words(&format!(" [{}]", format::params(params))) }
    }
}
