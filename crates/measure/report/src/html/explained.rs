//! The description of an experiment, folded: [`folded`]; and text with code in it: [`set`].
//!
//! The text comes from [`About`], which `tontine-measure explain` also prints.

use maud::{Markup, html};
use tontine_bench::about::About;

/// Returns the folded explanation of an experiment.
pub(super) fn folded(about: &About) -> Markup {
    html! {
        details.explained {
            summary { "What " (about.name) " is, and how it is measured" }
            (paragraphs(about))
        }
    }
}

/// Returns a sentence with its backquoted parts set as code.
pub(super) fn set(text: &str) -> Markup {
    html! {
        @for (at, part) in text.split('`').enumerate() {
            @if at % 2 == 1 { code { (part) } } @else { (part) }
        }
    }
}

fn paragraphs(about: &About) -> Markup {
    html! {
        @for paragraph in &about.about { p { (set(paragraph)) } }
        h3 { "What it does" }
        ol { @for step in &about.steps { li { (set(step)) } } }
        h3 { "How it is timed" }
        p { (set(&about.timing)) }
        @if !about.found.is_empty() {
            h3 { "What the source found" }
            p { (set(&about.found)) }
        }
        h3 { "How to read it" }
        p { (set(&about.reading)) }
        h3 { "System calls in the timed part" }
        dl { @for (variants, calls) in &about.calls { dt { (variants) } dd { (set(calls)) } } }
        h3 { "Variants" }
        dl {
            @for (name, summary) in &about.variants { dt { (name) } dd { (summary) } }
        }
    }
}
