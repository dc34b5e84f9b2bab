//! Models of blocking locks. loom runs each model in every interleaving with a bounded number of
//! preemptions, and lets every load return every value that the orderings allow.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p tontine-unix-sim --lib --release models`
#![allow(unsafe_code, reason = "loom monitors the value that the lock guards")]

use super::sync::model::{ModelFault, set};
use super::turns::{QUEUE, Turns, Want};
use Want::{Read, Write};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use std::env;
use std::process::Command;

/// A lock and the value that it guards.
struct ModelLock {
    turns: Turns,
    value: UnsafeCell<u32>,
}

// SAFETY: only the holder of the lock accesses the value; loom panics otherwise.
unsafe impl Sync for ModelLock {}

impl ModelLock {
    fn visit(&self, want: Want) {
        if !self.turns.try_take(want) {
            let _ = self.turns.wait(want, 0);
        }
        match want {
            // SAFETY: this thread holds the lock, and loom checks that other threads only read.
            Read => self.value.with(|value| assert!(unsafe { *value } <= 3)),
            // SAFETY: this thread holds the lock exclusively, which loom checks.
            Write => self.value.with_mut(|value| unsafe { *value += 1 }),
        }
        self.turns.give_back(want);
    }
}

/// Runs a model with one thread per element of `visitors`; the first is the thread that runs the
/// model.
fn model(visitors: &'static [Want]) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let guarded = ModelLock { turns: Turns::new(), value: UnsafeCell::new(0) };
        let guarded = Arc::new(guarded);
        let others: Vec<_> = visitors[1..]
            .iter()
            .map(|&want| {
                let guarded = Arc::clone(&guarded);
                thread::spawn(move || guarded.visit(want))
            })
            .collect();
        guarded.visit(visitors[0]);
        for other in others {
            other.join().expect("the visitor does not panic");
        }
        assert_eq!(guarded.turns.queued(), 0);
        let writers = visitors.iter().filter(|&&want| want == Write).count() as u32;
        // SAFETY: all other threads have ended.
        guarded.value.with(|value| assert_eq!(unsafe { *value }, writers));
    });
}

const TWO_WRITERS: &[Want] = &[Write, Write];
const WRITER_AND_READERS: &[Want] = &[Write, Read, Read];
const THREE_WRITERS: &[Want] = &[Write, Write, Write];
const READER_AND_WRITERS: &[Want] = &[Read, Write, Write];

#[test]
fn two_writers_exclude_each_other_and_finish() {
    model(TWO_WRITERS);
}

#[test]
fn readers_and_writer_leave_consistent_value() {
    model(WRITER_AND_READERS);
}

#[test]
fn three_writers_finish_one_after_another() {
    model(THREE_WRITERS);
}

#[test]
fn reader_among_writers_finishes() {
    model(READER_AND_WRITERS);
}

const FAULTS: [(&str, ModelFault); 6] = [
    ("TakeRelaxed", ModelFault::TakeRelaxed),
    ("GiveBackRelaxed", ModelFault::GiveBackRelaxed),
    ("HandOverRelaxed", ModelFault::HandOverRelaxed),
    ("GrantRelaxed", ModelFault::GrantRelaxed),
    // A fiber that queues does not set the mark.
    ("QueueUnmarked", ModelFault::Unmarked(QUEUE)),
    ("Unwoken", ModelFault::Unwoken),
];

/// Runs all models with the fault that the environment names, or without a fault if it names none.
#[test]
fn lock_models_hold_unless_fault_is_injected() {
    let name = env::var(FAULT).unwrap_or_default();
    let fault = FAULTS.iter().find(|(known, _)| *known == name);
    set(fault.map_or(ModelFault::None, |&(_, fault)| fault));
    for visitors in [TWO_WRITERS, WRITER_AND_READERS, READER_AND_WRITERS] {
        model(visitors);
    }
}

/// The environment variable that passes the name of the fault to a process.
const FAULT: &str = "TONTINE_MODEL_FAULT";

#[test]
fn every_injected_lock_fault_is_found() {
    let program = env::current_exe().expect("this program");
    for (name, _) in FAULTS {
        // Each fault runs in a separate process, because loom cannot clean up after a deadlock.
        let output = Command::new(&program)
            .args([
                "--exact",
                "lock::models::lock_models_hold_unless_fault_is_injected",
                "--nocapture",
            ])
            .env(FAULT, name)
            .output()
            .expect("the program starts");
        let said = String::from_utf8_lossy(&output.stderr);
        let found = said.contains("Causality violation") || said.contains("deadlock");
        assert!(!output.status.success() && found, "{name} goes unnoticed:\n{said}");
    }
}
