//! What an experiment is, folded away beside its figures: [`folded`].
//!
//! The words are [`Explanation`]'s, the same that `tontine explain` prints.

use maud::{Markup, html};

use crate::experiment::Experiment;
use crate::experiment::explanation::Explanation;

/// The explanation of an experiment.
pub(super) fn folded(experiment: &dyn Experiment) -> Markup {
    let explained = experiment.explanation();
    html! {
        details.explained {
            summary { "What " (experiment.name()) " is, and how it is measured" }
            (told(experiment, explained))
        }
    }
}

/// A sentence, with what stands in backquotes set as code.
fn set(text: &str) -> Markup {
    html! {
        @for (at, part) in text.split('`').enumerate() {
            @if at % 2 == 1 { code { (part) } } @else { (part) }
        }
    }
}

fn told(experiment: &dyn Experiment, explained: &Explanation) -> Markup {
    html! {
        @for paragraph in explained.about { p { (set(paragraph)) } }
        h4 { "What it does" }
        ol { @for step in explained.steps { li { (set(step)) } } }
        h4 { "How it is timed" }
        p { (set(explained.timing)) }
        @if !explained.found.is_empty() {
            h4 { "What the source found" }
            p { (set(explained.found)) }
        }
        h4 { "How to read it" }
        p { (set(explained.reading)) }
        h4 { "System calls within what is timed" }
        dl { @for (variants, calls) in explained.calls { dt { (variants) } dd { (set(calls)) } } }
        h4 { "Variants" }
        dl {
            @for variant in experiment.variants() { dt { (variant.name) } dd { (variant.summary) } }
        }
    }
}
