//! Other work of the machine: load, pressure, interrupts.

use std::time::Instant;

use crate::os::files::{Files, keyed};
use serde::Serialize;

#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct LoadFacts {
    /// Mean number of running and ready tasks over the last minute.
    pub last_minute: Option<f64>,
    /// Mean number of running and ready tasks over the last five minutes.
    pub last_five_minutes: Option<f64>,
    /// Number of running and ready tasks now, including the calling thread.
    pub runnable: Option<u64>,
    /// Percentage of the last ten seconds in which a task waited for a processor.
    pub processor_pressure: Option<f64>,
    /// Percentage of the same time in which a task waited for memory.
    pub memory_pressure: Option<f64>,
    /// Percentage of the same time in which a task waited for input and output.
    pub io_pressure: Option<f64>,
    /// Interrupts per second on all processors, over the few hundredths of a second that the
    /// measurement takes.
    pub interrupts_per_s: Option<f64>,
    /// Context switches per second, over the same time.
    pub switches_per_s: Option<f64>,
}

/// Counters, two readings of which determine a rate.
#[derive(Debug, Clone, Copy)]
pub struct Counters {
    at: Instant,
    interrupts: Option<f64>,
    switches: Option<f64>,
}

impl Counters {
    pub fn read(files: &Files) -> Self {
        let text = files.text("proc/stat").unwrap_or_default();
        Self {
            at: Instant::now(),
            interrupts: keyed(&text, "intr"),
            switches: keyed(&text, "ctxt"),
        }
    }

    fn rate(from: Option<f64>, to: Option<f64>, seconds: f64) -> Option<f64> {
        Some((to? - from?) / seconds).filter(|rate| rate.is_finite())
    }
}

impl LoadFacts {
    /// Reads the facts. The rates cover the time since `before`.
    pub fn look(files: &Files, before: Counters) -> Self {
        let now = Counters::read(files);
        let seconds = (now.at - before.at).as_secs_f64();
        let averages = files.text("proc/loadavg").unwrap_or_default();
        let word = |number: usize| averages.split_whitespace().nth(number);
        Self {
            last_minute: word(0).and_then(|text| text.parse().ok()),
            last_five_minutes: word(1).and_then(|text| text.parse().ok()),
            runnable: word(3).and_then(|text| text.split_once('/')?.0.parse().ok()),
            processor_pressure: pressure(files, "cpu"),
            memory_pressure: pressure(files, "memory"),
            io_pressure: pressure(files, "io"),
            interrupts_per_s: Counters::rate(before.interrupts, now.interrupts, seconds),
            switches_per_s: Counters::rate(before.switches, now.switches, seconds),
        }
    }
}

fn pressure(files: &Files, resource: &str) -> Option<f64> {
    let text = files.text(&format!("proc/pressure/{resource}"))?;
    let some = text.lines().find(|line| line.starts_with("some "))?;
    let average = some.split(' ').find_map(|word| word.strip_prefix("avg10="));
    average?.parse().ok()
}
