//! The cost of checking whether another process is alive, and the correctness of the check:
//! [`LivenessCheck`].
//!
//! One process is watched ([`monitored`]). Each variant is one of the [`ways`] to check
//! ([`check`]), timed in otherwise identical loops ([`timing`]). The report shows, next to the
//! figure, the check's results after events that are really caused ([`tried`]). [`word`] defines
//! the words that the kernel itself marks.
//!
//! `kill-0` uses the process id that the process itself recorded, as a monitor does that has only
//! this number. In another PID namespace that number names a different process.
//!
//! Source 002, whose figures are milliseconds per loop of ten million.

pub mod check;
mod explained;
pub mod monitored;
pub mod timing;
pub mod tried;
pub mod ways;
pub mod word;

use tontine_bench::about::{Explanation, Topic};
use tontine_bench::machine::topology::Topology;
use tontine_bench::observe::{Observed, PairedRatio, Series};
use tontine_bench::size::Size;
use tontine_bench::stats::order;
use tontine_bench::suite::{Experiment, Variant};
use tontine_bench::task::{InvocationTask, Params};
use tontine_host::clock::Clock;
use tontine_host::error::{MeasureError, Result};
use tontine_host::os::pin;

use crate::with_check;
use check::{BareLoad, Check, CompareExchange, NoCheck};
use monitored::{Home, Monitored};
use timing::{Batch, Interleaved, interleaved};
use ways::CheckMethod;

/// The ways to check.
pub const VARIANTS: &[Variant] = &ways::ALONE;

/// The experiment `liveness-check`.
pub struct LivenessCheck;

impl Experiment for LivenessCheck {
    fn name(&self) -> &'static str {
        "liveness-check"
    }

    fn summary(&self) -> &'static str {
        "What does a liveness check of a process cost, and when is its answer wrong?"
    }

    fn topic(&self) -> Topic {
        Topic::Death
    }

    fn explanation(&self) -> &'static Explanation {
        &explained::EXPLANATION
    }

    fn variants(&self) -> &'static [Variant] {
        VARIANTS
    }

    fn without_calls(&self) -> Vec<&'static str> {
        let memory_alone = ways::WAYS.iter().filter(|way| !way.enters_kernel);
        memory_alone.map(|way| way.name).collect()
    }

    /// Returns one cell: the watched process idles, so placement makes no difference.
    fn params(&self, _: &str, _: &Topology, _: Size) -> Vec<Params> {
        vec![Params::new()]
    }

    /// The number of checks, if they only access memory. Checks that enter the kernel stop at the
    /// end of their time budget, so for them it is the budget's milliseconds.
    fn operations(&self, variant: &str, size: Size) -> usize {
        match ways::find(variant) {
            None => 0,
            Some(way) if way.enters_kernel => batch_of(way, size).budget.as_millis() as usize,
            Some(_) => size.checks(),
        }
    }

    fn run(&self, task: &InvocationTask) -> Result<Observed> {
        let way = ways::find(&task.variant)
            .ok_or_else(|| MeasureError::fail(format!("no such variant: {}", task.variant)))?;
        // The events are tried before any thread is started, because trying them forks processes.
        let tried = match task.variant.as_str() {
            "dummy" | "load" => Vec::new(),
            variant => tried::try_all(variant),
        };
        let batch = batch_of(way, task.size);
        let seen = time(way, batch)?;
        let mut notes = Vec::new();
        if task.variant == "epoll-empty" {
            notes.push("watches nothing: the cost of the call, not a liveness check".to_owned());
        }
        if task.variant == "polling-thread" {
            notes.push(format!("reports a death up to {:?} late", check::POLLING_PERIOD));
        }
        Ok(Observed {
            ratios: ratios(&task.variant, &seen),
            series: vec![Series::ns("check", seen.check).batched(batch.checks as usize)],
            tried,
            notes,
            ..Observed::default()
        })
    }
}

/// Returns the size of a batch.
fn batch_of(way: &CheckMethod, size: Size) -> Batch {
    if way.enters_kernel { Batch::of_system_calls(size) } else { Batch::of_memory_checks(size) }
}

/// Runs the timed loops of one variant, on pinned processors.
fn time(way: &CheckMethod, batch: Batch) -> Result<Interleaved> {
    let allowed = pin::allowed()?;
    let here =
        *allowed.first().ok_or_else(|| MeasureError::skip("sched_getaffinity: no processor"))?;
    let there = *allowed.last().unwrap_or(&here);
    let monitored = Monitored::start_with(way.means, Home::Here, || {
        // A failure does not matter, because the process idles in either case.
        let _ = pin::pin_to(there);
    })?;
    let clock = Clock::calibrated();
    with_check!(way.name, &monitored, |check| {
        check.probe()?;
        pin::pin_to(here)?;
        let plain = &monitored.page().plain;
        let (load, compare_exchange) = (BareLoad(plain), CompareExchange::new(plain));
        interleaved(&check, &NoCheck, &load, &compare_exchange, &clock, batch)
    })
}

/// Returns the ratios between the medians of batches that ran in turn.
fn ratios(variant: &str, seen: &Interleaved) -> Vec<PairedRatio> {
    let over = |below: &str, samples: &[f64]| {
        let value = order::median(&seen.check)? / order::median(samples)?;
        Some(PairedRatio { name: format!("{variant} / {below}"), value })
    };
    let mut ratios = Vec::new();
    if variant != "dummy" {
        ratios.extend(over("dummy", &seen.dummy));
    }
    if ["futex-word", "life-word"].contains(&variant) {
        ratios.extend(over("load", &seen.load));
    }
    if variant == "mutex-trylock" {
        ratios.extend(over("lock-cmpxchg", &seen.compare_exchange));
    }
    ratios
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::ways::WAYS;
    use super::*;

    #[test]
    fn every_variant_is_timed_with_its_baselines() {
        let batch = Batch { checks: 50, samples: 3, budget: Duration::ZERO };
        for variant in &WAYS {
            match time(variant, batch) {
                Ok(seen) => {
                    assert_eq!(seen.check.len(), 3, "{}", variant.name);
                    assert!(seen.check.iter().all(|&ns| ns > 0.0), "{}", variant.name);
                    let names: Vec<_> =
                        ratios(variant.name, &seen).into_iter().map(|ratio| ratio.name).collect();
                    assert_eq!(
                        names.contains(&format!("{} / dummy", variant.name)),
                        variant.name != "dummy"
                    );
                }
                Err(MeasureError::Skipped(why)) => eprintln!("{}: skipped: {why}", variant.name),
                Err(trouble) => panic!("{}: {trouble}", variant.name),
            }
        }
    }

    #[test]
    fn refused_call_skips_and_names_it() {
        let batch = Batch { checks: 50, samples: 3, budget: Duration::ZERO };
        for (variant, refused, call) in check::refused::CASES {
            let seen = check::refused::inside(refused, || {
                time(ways::find(variant).expect("a variant"), batch).map(|_| ())
            });
            let Some(Err(MeasureError::Skipped(why))) = &seen else {
                assert_eq!(seen, None, "{variant}");
                return eprintln!("skipped: no seccomp filters here");
            };
            assert!(why.starts_with(&format!("{call}: ")), "{variant}: {why}");
        }
    }
}
