//! Names of the processes that could end a sleep: [`SystemState::name_awaited`] appends them to the
//! number of the child or pipe that each thread waits for.
//!
//! A child is named by its program, a pipe by the processes that have its other end open. If a
//! process sleeps although no other process has that end open, it forgot to close its own copy.

use std::collections::BTreeMap;

use super::pipe::PipeEnd;
use super::state::{ProcessState, SystemState};

/// Maximum number of owners that are named per end of a pipe.
const NAMED: usize = 4;

impl SystemState {
    /// Appends names to the number of each child and each pipe that a thread waits for.
    pub(super) fn name_awaited(&mut self) {
        let named = |process: &ProcessState| (process.pid, process.name.clone());
        let names: BTreeMap<i32, String> = self.processes.iter().map(named).collect();
        let mut owners: BTreeMap<(i32, PipeEnd), Vec<i32>> = BTreeMap::new();
        for process in &self.processes {
            for &end in &process.pipe_ends {
                owners.entry(end).or_default().push(process.pid);
            }
        }
        for process in &mut self.processes {
            for thread in &mut process.threads {
                let number = |what| thread.object.strip_prefix(what)?.parse::<i32>().ok();
                let (child, pipe) = (number(" for child "), number(" for pipe "));
                if let Some(name) = child.and_then(|child| names.get(&child)) {
                    thread.object.push_str(&format!(" ({name})"));
                } else if let Some(pipe) = pipe {
                    let (end, done) = match thread.call {
                        "read" => (PipeEnd::Writer, "written"),
                        _ => (PipeEnd::Reader, "read"),
                    };
                    let owners = owners.get(&(pipe, end)).map_or(&[][..], Vec::as_slice);
                    let owners = listed(owners, process.pid, &names);
                    thread.other_end = format!("{done} by {owners}");
                }
            }
        }
    }
}

/// Lists the processes that have one end of a pipe open; process `own` is blocked at the other end.
fn listed(owners: &[i32], own: i32, names: &BTreeMap<i32, String>) -> String {
    let named = |pid: &i32| match names.get(pid) {
        _ if *pid == own => "itself".to_owned(),
        Some(name) => format!("{pid} ({name})"),
        None => pid.to_string(),
    };
    match owners {
        [] => "no process".into(),
        [only] if *only == own => "itself alone".into(),
        _ => {
            let mut listed: Vec<String> = owners.iter().take(NAMED).map(named).collect();
            if owners.len() > NAMED {
                listed.push(format!("{} more", owners.len() - NAMED));
            }
            listed.join(", ")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pipe_end_owners_are_named_up_to_four() {
        let names = BTreeMap::from([(2, "shell".to_owned()), (3, "cat".to_owned())]);
        assert_eq!(listed(&[], 2, &names), "no process");
        assert_eq!(listed(&[2], 2, &names), "itself alone");
        assert_eq!(listed(&[2, 3], 2, &names), "itself, 3 (cat)");
        assert_eq!(listed(&[2, 3, 4, 5, 6, 7], 9, &names), "2 (shell), 3 (cat), 4, 5, 2 more");
    }
}
