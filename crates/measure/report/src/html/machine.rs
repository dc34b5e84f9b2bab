//! The machine's facts on the page: [`one_line`], [`warning`], [`advice`], [`card`].
//!
//! The facts are read from JSON that this build or an older build wrote, so every field is
//! optional.

use maud::{Markup, html};
use serde_json::Value;

use super::explained::set;

/// The facts that identify a machine: topic, name, and the text before and after the value.
const NAMING: [(&str, &str, &str, &str); 5] = [
    ("processor", "model", "", ""),
    ("processor", "online", "", " processors"),
    ("kernel", "release", "Linux ", ""),
    ("virtualisation", "hypervisor", "hypervisor: ", ""),
    ("virtualisation", "container", "container: ", ""),
];

/// Returns the machine in one line, from its card; `None` if the card has none of these facts.
pub(super) fn one_line(machine: &Value) -> Option<String> {
    let topics = topics(machine);
    let parts: Vec<String> = NAMING
        .into_iter()
        .filter_map(|(topic, name, before, after)| {
            let (_, facts) = topics.iter().find(|(found, _)| found == topic)?;
            let (_, value) = facts.iter().find(|(found, _)| found == name)?;
            Some(format!("{before}{value}{after}"))
        })
        .collect();
    (!parts.is_empty()).then(|| parts.join(" · "))
}

/// Splits the advice into notes and findings that disturb measurements; `None` if the file contains
/// no advice.
fn sorted(machine: &Value) -> Option<(Vec<&Value>, Vec<&Value>)> {
    let all = machine["advice"].as_array()?;
    let findings = all.iter().filter(|item| item["finding"].is_string());
    Some(findings.partition(|item| field(item, "severity").eq_ignore_ascii_case("note")))
}

/// Returns a short block about the disturbances on this machine, with a link to the advice.
pub(super) fn warning(machine: &Value) -> Markup {
    let Some((notes, spoils)) = sorted(machine) else {
        return html! { p { "The run contains no check of the machine." } };
    };
    html! {
        @if spoils.is_empty() {
            p { "Nothing that this tool checks." }
        } @else {
            ul.warning {
                @for item in &spoils {
                    li { b { (field(item, "topic")) ": " } (field(item, "finding")) }
                }
            }
        }
        p.hint {
            a href={ (super::file(super::MACHINE)) "#advice" } {
                @if spoils.is_empty() { "Properties of this machine" }
                @else { "What that means, and how to fix it" }
            }
            @if !notes.is_empty() { " (" (notes.len()) " notes)" }
        }
    }
}

/// Returns the section on disturbances, with folded notes; nothing if the file contains no advice.
pub(super) fn advice(machine: &Value) -> Markup {
    let Some((notes, spoils)) = sorted(machine) else {
        return html! {};
    };
    html! {
        section aria-labelledby="advice" {
            h3 #advice { "What disturbs measurements here" }
            @if spoils.is_empty() {
                p { "Nothing that this tool checks." }
            }
            (findings(&spoils))
            @if !notes.is_empty() {
                details.notes {
                    summary { "Notes (" (notes.len()) ")" }
                    (findings(&notes))
                }
            }
        }
    }
}

fn findings(items: &[&Value]) -> Markup {
    html! {
        @if !items.is_empty() {
            ul.advice {
                @for item in items {
                    li {
                        p.finding {
                            span.severity { (field(item, "severity")) }
                            b { (field(item, "topic")) ": " } (field(item, "finding"))
                        }
                        p { (set(field(item, "effect"))) }
                        @let remedy = remedy(item);
                        @if !remedy.is_empty() {
                            p.remedy { b { "To fix it: " } (set(remedy)) }
                        }
                    }
                }
            }
        }
    }
}

fn field<'a>(item: &'a Value, name: &str) -> &'a str {
    item[name].as_str().unwrap_or_default()
}

/// Returns the remedy, which files of older builds call `mend`.
fn remedy(item: &Value) -> &str {
    item["remedy"].as_str().unwrap_or_else(|| field(item, "mend"))
}

pub(super) fn card(machine: &Value) -> Markup {
    let topics = topics(machine);
    html! {
        section aria-labelledby="card" {
            h3 #card { "Facts" }
            @if topics.is_empty() { p { "No facts were recorded with this run." } }
            div.card {
                @for (topic, facts) in &topics {
                    div {
                        h4 { (topic) }
                        dl { @for (name, value) in facts { dt { (name) } dd { (value) } } }
                    }
                }
            }
        }
    }
}

/// Returns the card as pairs; ignores values of an unexpected shape.
fn topics(machine: &Value) -> Vec<(String, Vec<(String, String)>)> {
    let pairs = |value: &Value| -> Vec<(String, String)> {
        let items = value.as_array().into_iter().flatten();
        items.filter_map(|pair| Some((pair[0].as_str()?.to_owned(), plain(&pair[1])))).collect()
    };
    let items = machine["card"].as_array().into_iter().flatten();
    items.filter_map(|topic| Some((topic[0].as_str()?.to_owned(), pairs(&topic[1])))).collect()
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn facts_of_unexpected_shape_are_ignored() {
        let card_of_odds = json!([7, ["clock"], ["processor", [["model", "X"], 3, ["online", 2]]]]);
        let odd = json!({"card": card_of_odds, "advice": {}});
        assert_eq!(one_line(&odd).unwrap(), "X · 2 processors");
        let page = card(&odd).into_string();
        assert!(page.contains("<dt>online</dt><dd>2</dd>"), "{page}");
        assert!(advice(&odd).into_string().is_empty());
        assert!(one_line(&Value::Null).is_none());
    }
}
