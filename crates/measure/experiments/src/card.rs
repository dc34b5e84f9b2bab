//! The card of an experiment: its name, question, topic, explanation, variants and ratios, written
//! for readers in `card.md` of its folder: [`read`], [`card!`].
//!
//! Empty lines separate the paragraphs, `## ` begins a section. A line of a system call or of a
//! variant is `- name: text`. A variant marked `[peers]` exists only with the feature `peers`. A
//! ratio is `- numerator / denominator`, as in [`Facts::ratios`].

use tontine_bench::about::{Explanation, Topic};
use tontine_bench::suite::{Facts, Variant};

/// Returns the facts on the card in a file next to the caller's, changed by a function if there is
/// one.
macro_rules! card {
    ($file:literal) => {
        crate::card::card!($file, |card| card)
    };
    ($file:literal, $change:expr) => {{
        static FACTS: std::sync::LazyLock<Facts> = std::sync::LazyLock::new(|| {
            let change: fn(Facts) -> Facts = $change;
            change($crate::card::read(include_str!($file)))
        });
        *FACTS
    }};
}
pub(crate) use card;

/// Reads a card, once per experiment: its joined lines are leaked.
pub(crate) fn read(card: &'static str) -> Facts {
    let mut sections = card.split("\n## ");
    let mut about = paragraphs(sections.next().unwrap_or_default()).into_iter();
    let mut next = || about.next().expect("a name, a question and a topic");
    let name = next().trim_start_matches("# ");
    let question = next();
    let topic = next().trim_start_matches("Topic: ");
    let mut explanation = Explanation {
        about: about.collect::<Vec<_>>().leak(),
        steps: &[],
        timing: "",
        found: "",
        reading: "",
        calls: &[],
    };
    let mut variants: &[Variant] = &[];
    let mut ratios: &[(&str, &str)] = &[];
    for section in sections {
        let (title, text) = section.split_once('\n').unwrap_or_default();
        let whole = || paragraphs(text).join(" ").leak();
        match title {
            "What it does" => explanation.steps = items(text).leak(),
            "How it is timed" => explanation.timing = whole(),
            "What the source found" => explanation.found = whole(),
            "How to read it" => explanation.reading = whole(),
            "System calls in the timed part" => explanation.calls = named(text).leak(),
            "Variants" => {
                let all = named(text).into_iter();
                let built = |name: &&str| cfg!(feature = "peers") || !name.starts_with("[peers] ");
                let all = all.filter(|(name, _)| built(name));
                let variant = |(name, text): (&'static str, _)| {
                    Variant::new(name.trim_start_matches("[peers] "), text)
                };
                variants = all.map(variant).collect::<Vec<_>>().leak();
            }
            "Ratios" => {
                let all = items(text).into_iter();
                ratios = all.filter_map(|ratio| ratio.split_once(" / ")).collect::<Vec<_>>().leak();
            }
            other => panic!("{name}: no section is called `{other}`"),
        }
    }
    let topic = Topic::ALL.into_iter().find(|one| one.name() == topic).expect("a known topic");
    let explanation = Box::leak(Box::new(explanation));
    Facts { name, question, topic, explanation, variants, ratios }
}

fn paragraphs(text: &str) -> Vec<&'static str> {
    let all = text.split("\n\n").map(|one| one.split_whitespace().collect::<Vec<_>>().join(" "));
    all.filter(|one| !one.is_empty()).map(|one| &*one.leak()).collect()
}

/// Returns the items of a list, each as one line without its bullet or number. The further lines of
/// an item are indented.
fn items(text: &str) -> Vec<&'static str> {
    let all = text.trim().replace("\n ", " ");
    let of_list = all.lines().filter_map(|line| line.split_once(' '));
    of_list.flat_map(|(_, item)| paragraphs(item)).collect()
}

fn named(text: &str) -> Vec<(&'static str, &'static str)> {
    items(text).into_iter().filter_map(|item| item.split_once(": ")).collect()
}
