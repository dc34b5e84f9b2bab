//! A statement in parts, so that a page can mark up names and figures: [`Sentence`].

use tontine_bench::format::{self, FormattedFigure};
use tontine_bench::schema::Cell;
use tontine_bench::task::Params;

/// A part for which a template leaves a place.
pub(super) trait SentenceSlot {
    fn add_to(&self, sentence: Sentence) -> Sentence;
}

/// The name of the variant.
impl SentenceSlot for Cell {
    fn add_to(&self, sentence: Sentence) -> Sentence {
        sentence.name(&self.variant)
    }
}

/// A name.
impl SentenceSlot for &str {
    fn add_to(&self, sentence: Sentence) -> Sentence {
        sentence.name(self)
    }
}

impl SentenceSlot for FormattedFigure {
    fn add_to(&self, sentence: Sentence) -> Sentence {
        sentence.figure(self)
    }
}

impl SentenceSlot for Params {
    fn add_to(&self, sentence: Sentence) -> Sentence {
        sentence.with_params(self)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SentencePart {
    Words(String),
    Name(String),
    Figure(String),
    /// The interval of a figure, in parentheses.
    Interval(String),
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sentence {
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

    /// Appends a template, in which each `{}` stands for the next part.
    pub(super) fn say(self, template: &str, parts: &[&dyn SentenceSlot]) -> Self {
        let mut parts = parts.iter();
        template.split("{}").enumerate().fold(self, |sentence, (at, words)| {
            let part = if at > 0 { parts.next() } else { None };
            let sentence = part.map_or(sentence.clone(), |part| part.add_to(sentence));
            if words.is_empty() { sentence } else { sentence.words(words) }
        })
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

    fn with_params(self, params: &Params) -> Self {
        if params.is_empty() { self } else { self.words(&format!(" [{}]", format::params(params))) }
    }
}
