//! The scenario in the [region](super::region): the checker stores it with [`put`], the processes
//! that run it load it with [`get`].
//!
//! The scenario is stored as its printed text, in which the statements are on different lines. The
//! original line numbers are also stored.

use std::sync::atomic::Ordering::SeqCst;

use super::region::{LINES, RegionShared, RunRequest, TEXT};
use crate::scenario::{Scenario, Statement, StatementKind, SyntaxError};

/// Stores a scenario. Returns `false` if it is too long.
pub(super) fn put(region: &RegionShared, scenario: &Scenario) -> bool {
    let text = scenario.to_string();
    let mut lines = Vec::new();
    each_line(&mut scenario.clone(), &mut |line| lines.push(*line));
    if text.len() > TEXT || lines.len() > LINES {
        return false;
    }
    region.put_text(&text);
    for (to, line) in region.lines.iter().zip(&lines) {
        to.store(*line, SeqCst);
    }
    let RunRequest { text_length, lines_length, .. } = &region.order;
    text_length.store(u32::try_from(text.len()).unwrap_or(0), SeqCst);
    lines_length.store(u32::try_from(lines.len()).unwrap_or(0), SeqCst);
    true
}

/// Loads the scenario.
pub(super) fn get(region: &RegionShared) -> Result<Scenario, SyntaxError> {
    let RunRequest { text_length, lines_length, .. } = &region.order;
    let mut scenario: Scenario = region.text(text_length.load(SeqCst) as usize).parse()?;
    let lines = &region.lines[..lines_length.load(SeqCst) as usize];
    let mut lines = lines.iter();
    each_line(&mut scenario, &mut |line| {
        *line = lines.next().map_or(0, |line| line.load(SeqCst));
    });
    Ok(scenario)
}

/// Calls `see` with every line of a scenario, in the order of the text.
fn each_line(scenario: &mut Scenario, see: &mut impl FnMut(&mut u32)) {
    for block in &mut scenario.blocks {
        see(&mut block.source.line);
        lines_of(&mut block.body, see);
    }
}

fn lines_of(body: &mut [Statement], see: &mut impl FnMut(&mut u32)) {
    for statement in body {
        see(&mut statement.source.line);
        match &mut statement.kind {
            StatementKind::Handler(step) => lines_of(&mut step.body, see),
            StatementKind::Repeat(_, body) | StatementKind::While(_, body) => lines_of(body, see),
            StatementKind::Call(_)
            | StatementKind::Note(_)
            | StatementKind::Set(..)
            | StatementKind::Check(_) => {}
        }
    }
}
