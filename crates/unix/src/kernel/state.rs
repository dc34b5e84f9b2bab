//! What a system looks like from outside: [`State`], printed as `ps` would.

use std::fmt;

use super::Kernel;
use super::proc::{Phase, ProcState};
use crate::signal::SigSet;
use crate::wait::Status;

/// All processes at one moment.
#[derive(Debug, Clone, Default)]
pub struct State {
    /// By number.
    pub processes: Vec<ProcessState>,
}

/// One process.
#[derive(Debug, Clone)]
pub struct ProcessState {
    /// Its number.
    pub pid: i32,
    /// Its parent's.
    pub parent: i32,
    /// Its group's.
    pub group: i32,
    /// Its session's.
    pub session: i32,
    /// As `ps` shows it: R, S (sleeps), T (stopped), t (stopped for its tracer), Z.
    pub letter: char,
    /// Of a zombie: how it ended.
    pub end: Option<Status>,
    /// Its program.
    pub name: String,
    /// Its threads: number, the call that it is in, blocked signals, and those pending for it alone.
    pub threads: Vec<(i32, &'static str, SigSet, SigSet)>,
    /// Signals pending for the process.
    pub pending: SigSet,
}

impl Kernel {
    /// The system as it is now. Exact while nobody runs.
    pub(crate) fn snapshot(&self) -> State {
        let mut processes: Vec<_> = self
            .slab
            .iter()
            .filter_map(|proc| {
                let parent = self.parent_hint(proc).map_or(0, |parent| parent.number());
                let state = proc.lock(&self.locks);
                (state.phase != Phase::Free).then(|| of(proc.number(), parent, &state))
            })
            .collect();
        processes.sort_by_key(|process| process.pid);
        State { processes }
    }
}

fn of(pid: i32, parent: i32, state: &ProcState) -> ProcessState {
    let group = state.pgrp.as_ref();
    let sleeps = state.threads.iter().all(|member| member.thread.is_sleeping());
    let letter = match state.phase {
        Phase::Zombie => 'Z',
        _ if state.trapped.is_some() => 't',
        _ if state.stopped.is_some() => 'T',
        _ if sleeps => 'S',
        _ => 'R',
    };
    let thread = |member: &super::proc::Member| {
        let (thread, pending) = (&member.thread, member.pending.set());
        (thread.tid(), thread.call(), thread.mask(), pending)
    };
    ProcessState {
        pid,
        parent,
        group: group.map_or(0, |group| group.id.number()),
        session: group.map_or(0, |group| group.session.id.number()),
        letter,
        end: state.end,
        name: state.name.to_string(),
        threads: state.threads.iter().map(thread).collect(),
        pending: state.pending.set(),
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:>7} {:>7} {:>7} {:>7} S NAME", "PID", "PPID", "PGID", "SID")?;
        for process in &self.processes {
            write!(f, "{process}")?;
        }
        Ok(())
    }
}

impl fmt::Display for ProcessState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pid, parent, group, session, letter, name, .. } = self;
        write!(f, "{pid:>7} {parent:>7} {group:>7} {session:>7} {letter} {name}")?;
        if let (Some(end), 'Z') = (self.end, letter) {
            write!(f, " ({end})")?;
        }
        if !self.pending.is_empty() {
            write!(f, " pending {}", self.pending)?;
        }
        writeln!(f)?;
        for (tid, call, mask, pending) in &self.threads {
            write!(f, "{tid:>39} {call}")?;
            if !mask.is_empty() {
                write!(f, " blocked {mask}")?;
            }
            if !pending.is_empty() {
                write!(f, " pending {pending}")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
