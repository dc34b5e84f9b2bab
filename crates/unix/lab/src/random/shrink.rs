//! Reduces a scenario that has some property: [`shrink`], by delta debugging (Zeller and
//! Hildebrandt 2002) over its statements.
//!
//! The function leaves out processes and threads, statements singly and in runs, bodies of
//! handlers, results that no statement uses, flags, options, and signals of sets. A candidate that
//! is not a scenario, for example because no statement sets a variable, is skipped.

use tontine_unix::SigSet;

use crate::scenario::{
    Argument, CallStatement, HandlerStatement, Scenario, ScenarioBlock, Statement, StatementKind,
    SystemCall,
};

/// Returns the smallest scenario found for which `shows` still returns `true`. Calls `shows` at
/// most `tries` times.
pub fn shrink(scenario: &Scenario, tries: u32, shows: impl FnMut(&Scenario) -> bool) -> Scenario {
    let mut search = Shrinker { best: scenario.clone(), tries, shows };
    loop {
        let before = search.best.clone();
        search.drop_blocks();
        search.drop_statements();
        search.simplify();
        if search.best == before || search.tries == 0 {
            return search.best;
        }
    }
}

struct Shrinker<F> {
    best: Scenario,
    tries: u32,
    shows: F,
}

impl<F: FnMut(&Scenario) -> bool> Shrinker<F> {
    /// Adopts a candidate if it still has the property. Returns `true` if the candidate was
    /// adopted.
    fn take(&mut self, candidate: &Scenario) -> bool {
        if self.tries == 0 {
            return false;
        }
        // The candidate must parse; its line numbers become the line numbers in its own text.
        let Ok(read) = candidate.to_string().parse::<Scenario>() else { return false };
        self.tries -= 1;
        let takes = (self.shows)(&read);
        if takes {
            self.best = read;
        }
        takes
    }

    /// Leaves out blocks, with the statements that start them.
    fn drop_blocks(&mut self) {
        let mut at = self.best.blocks.len();
        while at > 1 {
            at -= 1;
            let mut candidate = self.best.clone();
            let gone = candidate.blocks.remove(at);
            for block in &mut candidate.blocks {
                block.body.retain(|statement| !begins(statement, &gone));
            }
            self.take(&candidate);
        }
    }

    /// Leaves out runs of statements, starting with half of a body.
    fn drop_statements(&mut self) {
        for block in 0..self.best.blocks.len() {
            let mut size = self.best.blocks[block].body.len();
            while size > 0 {
                let mut at = self.best.blocks[block].body.len();
                while at > 0 {
                    at = at.saturating_sub(size);
                    let mut candidate = self.best.clone();
                    let body = &mut candidate.blocks[block].body;
                    let end = body.len().min(at + size);
                    body.drain(at..end);
                    self.take(&candidate);
                }
                size /= 2;
            }
        }
    }

    /// Simplifies each statement.
    fn simplify(&mut self) {
        for block in 0..self.best.blocks.len() {
            for at in 0..self.best.blocks[block].body.len() {
                let mut nth = 0;
                while let Some(step) = simpler(&self.best.blocks[block].body[at].kind, nth) {
                    let mut candidate = self.best.clone();
                    candidate.blocks[block].body[at].kind = step;
                    if !self.take(&candidate) {
                        nth += 1;
                    }
                }
            }
        }
    }
}

/// Returns `true` if a statement creates the process or thread that runs this block.
fn begins(statement: &Statement, block: &ScenarioBlock) -> bool {
    let StatementKind::Call(step) = &statement.kind else { return false };
    matches!(&step.call.arguments[..], [Argument::Block(name)] if *name == block.name)
}

/// Returns the `nth` simplification of a statement.
fn simpler(step: &StatementKind, nth: usize) -> Option<StatementKind> {
    ways(step).into_iter().nth(nth)
}

fn ways(step: &StatementKind) -> Vec<StatementKind> {
    match step {
        StatementKind::Call(step) => {
            let mut ways = Vec::new();
            if step.into.is_some() {
                ways.push(StatementKind::Call(CallStatement { into: None, ..step.clone() }));
            }
            let calls = simpler_calls(&step.call).into_iter();
            ways.extend(
                calls.map(|call| StatementKind::Call(CallStatement { call, ..step.clone() })),
            );
            ways
        }
        StatementKind::Handler(step) => {
            let mut ways: Vec<_> = (0..step.body.len())
                .map(|at| {
                    let mut fewer = step.clone();
                    fewer.body.remove(at);
                    fewer
                })
                .collect();
            ways.extend(
                fewer_signals(step.mask).map(|mask| HandlerStatement { mask, ..step.clone() }),
            );
            let flags = step.flags.iter().map(|flag| step.flags.difference(flag));
            ways.extend(flags.map(|flags| HandlerStatement { flags, ..step.clone() }));
            ways.into_iter().map(StatementKind::Handler).collect()
        }
        _ => Vec::new(),
    }
}

fn simpler_calls(call: &SystemCall) -> Vec<SystemCall> {
    let mut simpler = Vec::new();
    for (at, argument) in call.arguments.iter().enumerate() {
        let arguments: Vec<Argument> = match argument {
            Argument::Set(set) => fewer_signals(*set).map(Argument::Set).collect(),
            Argument::Flags(flags) => {
                flags.iter().map(|flag| Argument::Flags(flags.difference(flag))).collect()
            }
            Argument::Options(options) => {
                let fewer = options.iter().map(|option| options.difference(option));
                fewer.map(Argument::Options).collect()
            }
            _ => Vec::new(),
        };
        simpler.extend(arguments.into_iter().map(|argument| {
            let mut call = call.clone();
            call.arguments[at] = argument;
            call
        }));
    }
    simpler
}

/// Returns the empty set, then for each signal the set without that signal.
fn fewer_signals(set: SigSet) -> impl Iterator<Item = SigSet> {
    let none = (!set.is_empty()).then_some(SigSet::EMPTY);
    none.into_iter().chain(set.iter().map(move |signal| set.without(signal)))
}
