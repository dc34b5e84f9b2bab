//! The cost of checking whether another process is alive, and the correctness of the check:
//! [`LivenessCheck`].
//!
//! One process is watched ([`monitored`]). Each variant is one of the [`methods`] of checking
//! ([`check`]), timed in otherwise identical loops ([`timing`]), and tried after events that are
//! really caused ([`tried`]). [`word`] defines the words that the kernel itself marks. `kill-0`
//! uses the process id that the process itself recorded, as a monitor does that has only this
//! number.

pub(crate) mod check;
pub(crate) mod methods;
pub(crate) mod monitored;
#[cfg(test)]
pub(crate) mod refused_tests;
pub(crate) mod timing;
pub(crate) mod tried;
mod word;

use crate::prelude::*;
use crate::with_check;
use check::Check;
use methods::CheckMethod;
use monitored::{Home, Monitored};
use timing::{Batch, Interleaved, interleaved};

pub(crate) struct LivenessCheck;

impl Experiment for LivenessCheck {
    fn facts(&self) -> Facts {
        card!("card.md")
    }

    fn without_calls(&self) -> Vec<&'static str> {
        let of_memory = methods::ALL.iter().filter(|method| !method.enters_kernel);
        of_memory.map(|method| method.name).collect()
    }

    /// Returns one cell: the watched process idles, so placement makes no difference.
    fn params(&self, _: &str, _: &Topology, _: Size) -> Vec<Params> {
        vec![Params::new()]
    }

    /// The number of checks, if they only access memory. Checks that enter the kernel stop at the
    /// end of their time budget, so for them it is the budget's milliseconds.
    fn operations(&self, variant: &str, size: Size) -> usize {
        match methods::find(variant) {
            Some(method) if method.enters_kernel => {
                Batch::of(method, size).budget.as_millis() as usize
            }
            _ => size.checks(),
        }
    }

    fn run(&self, task: &InvocationTask) -> Result<Observed> {
        let method = methods::find(&task.variant)
            .ok_or_else(|| MeasureError::fail(format!("no such variant: {}", task.variant)))?;
        // The events are tried before any thread is started, because trying them forks processes.
        let tried = match task.variant.as_str() {
            "dummy" | "load" => Vec::new(),
            variant => tried::try_all(variant),
        };
        let batch = Batch::of(method, task.size);
        let seen = time(method, batch)?;
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

fn time(method: &CheckMethod, batch: Batch) -> Result<Interleaved> {
    let allowed = pin::allowed()?;
    let here =
        *allowed.first().ok_or_else(|| MeasureError::skip("sched_getaffinity: no processor"))?;
    let there = *allowed.last().unwrap_or(&here);
    let monitored = Monitored::start_with(method.means, Home::Here, || {
        // A failure does not matter, because the process idles in either case.
        let _ = pin::pin_to(there);
    })?;
    let clock = Clock::calibrated();
    with_check!(method.name, &monitored, |check| {
        check.probe()?;
        pin::pin_to(here)?;
        interleaved(&check, &monitored.page().plain, &clock, batch)
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

    use super::*;

    const BATCH: Batch = Batch { checks: 50, samples: 3, budget: Duration::ZERO };

    #[test]
    fn every_variant_is_timed_with_its_baselines() {
        for method in &methods::ALL {
            let Some(seen) = unless_skipped(time(method, BATCH), method.name) else { continue };
            assert!(seen.check.len() == 3 && seen.check.iter().all(|&ns| ns > 0.0), "{seen:?}");
            let ratio = format!("{} / dummy", method.name);
            let found = ratios(method.name, &seen).iter().any(|found| found.name == ratio);
            assert_eq!(found, method.name != "dummy");
        }
    }

    #[test]
    fn refused_call_skips_and_names_it() {
        refused_tests::must_skip(|method| time(method, BATCH).map(drop));
    }
}
