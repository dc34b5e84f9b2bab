//! Section 9 of source 001: lock statistics under the paper's own load, and the answer to its open
//! question: [`tell`].
//!
//! The load is eight sessions and eight builds at the same time, in each mode: on a model of the
//! paper's machine, and on this machine's processors. To answer the question, the model runs the
//! load twice, with per-process locks and with the one lock of all relations, on increasing numbers
//! of processors. Once eight trees of each kind no longer occupy all processors, it runs more of
//! both.

use std::io::Write;

use tontine_bench::contention::{ContentionTable, Gain, answer};
use tontine_bench::machine::topology::Topology;
use tontine_bench::observe::Observed;
use tontine_bench::size::Size;
use tontine_bench::task::Params;
use tontine_host::error::{MeasureError, Result};

use super::{PAPERS_MACHINE, PAPERS_PROCESSORS, mean, run, say};
use crate::SUITE;

/// Number of sessions, and of builds, in the paper's load.
const PAPERS_LOAD: usize = 8;
/// Numbers of processors of the models that answer the question.
const PROCESSORS: [usize; 7] = [2, 4, 8, PAPERS_PROCESSORS, 16, 32, 64];
/// Numbers of processors of the models in a quick run.
const QUICK_PROCESSORS: [usize; 3] = [2, PAPERS_PROCESSORS, 64];
/// The mode with one lock for all relations, and the name of that lock.
const GLOBAL: (&str, &str) = ("parallel", "proc_relation_lock");
/// The mode with per-process locks instead, and the name of such a lock.
const OWN: (&str, &str) = ("per-process", "p_family_lock");
/// The paper's statement.
const PAPER: &str = "The paper on proc_relation_lock: well under 2 % of its acquisitions waited; \
     10 % of those waits blocked, 90 % ended while the thread still spun. Above the median of the \
     kernel's locks, and not among the most contended.";

/// Writes the statistics and the answer. A quick run uses fewer numbers of processors.
///
/// # Errors
/// Returns `Failed` if `out` cannot be written.
pub(super) fn tell(quick: bool, processors: usize, out: &mut dyn Write) -> Result<()> {
    say(
        out,
        format_args!(
            "\nSection 9: how locks are taken, eight sessions and eight builds at once\n\
             percent of all acquisitions that waited; in brackets, percent of these that \
             were blocked"
        ),
    )?;
    let size = if quick { Size::Quick } else { Size::Full };
    let title = format!("modelled with {}, uniprocessor with one", PAPERS_MACHINE.1);
    table(&title, size, true, out)?;
    table(&format!("virtual Unix on {processors} processors"), size, false, out)?;
    say(out, format_args!("\n{PAPER}"))?;
    question(if quick { &QUICK_PROCESSORS } else { &PROCESSORS }, out)
}

/// Writes the lock statistics of the paper's load in every mode, modelled or not.
fn table(title: &str, size: Size, modelled: bool, out: &mut dyn Write) -> Result<()> {
    say(out, format_args!("\n{title}"))?;
    let Some(sessions) = SUITE.find("sessions") else { return Ok(()) };
    let topology = Topology::of_this_machine();
    let mut table = ContentionTable::default();
    let mut notes = Vec::new();
    for variant in sessions.variants() {
        let cells = sessions.params(variant.name, &topology, size).into_iter();
        let mut cells = cells.filter(|params| params.contains_key("beside"));
        let papers = |params: &Params| match params.get(PAPERS_MACHINE.0) {
            None => !modelled,
            Some(found) => modelled && (found == PAPERS_MACHINE.1 || found == "1 processor"),
        };
        let Some(params) = cells.find(papers) else { continue };
        match run("sessions", variant.name, params) {
            Ok(observed) => {
                note(&mut table, variant.name, &observed);
                notes = observed.notes;
            }
            Err(trouble) => say(out, format_args!("{}: {trouble}", variant.name))?,
        }
    }
    let heads = table.modes().iter().map(|mode| format!("{mode:>14}")).collect::<String>();
    say(out, format_args!("{:<20}{heads}", "lock"))?;
    for (lock, shares) in table.rows() {
        let shares = shares.iter().map(|share| format!("{share:>14}")).collect::<String>();
        say(out, format_args!("{lock:<20}{shares}"))?;
    }
    for note in notes {
        say(out, format_args!("({note})"))?;
    }
    Ok(())
}

fn note(table: &mut ContentionTable, mode: &str, observed: &Observed) {
    for series in &observed.series {
        if let Some((lock, share)) = series.at.get("lock").zip(series.samples.first()) {
            table.note(mode, lock, &series.metric, *share);
        }
    }
}

/// Answers whether per-process locks would be worth it, with models of these numbers of processors.
fn question(processors: &[usize], out: &mut dyn Write) -> Result<()> {
    say(
        out,
        format_args!(
            "\nIts open question: are locks of each process, instead of the one of all \
             relations, worth it?\nfrom {} (`{}`) to {} (`{}`), modelled; waits as above\n\n\
             {:>10} {:>9} {:>11} {:>11} {:>10} {:>10} {:>10}",
            GLOBAL.1,
            GLOBAL.0,
            OWN.1,
            OWN.0,
            "processors",
            "load",
            "one lock",
            "own locks",
            "sessions",
            "builds",
            "forks"
        ),
    )?;
    let (mut sessions, mut builds, mut forks) = (Vec::new(), Vec::new(), Vec::new());
    for &processors in processors {
        let step = match step(processors) {
            Ok(step) => step,
            Err(trouble) => {
                say(out, format_args!("{processors:>10} {trouble}"))?;
                continue;
            }
        };
        let LockGain { each, waits, gains } = step;
        let shown = gains.map(|gain| format!("{:+.1} %", 100.0 * gain.share));
        say(
            out,
            format_args!(
                "{processors:>10} {:>9} {:>11} {:>11} {:>10} {:>10} {:>10}",
                format!("{each} + {each}"),
                waits[0],
                waits[1],
                shown[0],
                shown[1],
                shown[2]
            ),
        )?;
        let of_all = [&mut sessions, &mut builds, &mut forks];
        of_all.into_iter().zip(gains).for_each(|(of_one, gain)| of_one.push(gain));
    }
    say(out, format_args!("(+: faster with locks of each process)"))?;
    let load = "for sessions with builds";
    let all = [(load, sessions), ("for these builds", builds), ("for forks alone", forks)];
    for (what, gains) in all {
        let answer = answer(&gains).unwrap_or_else(|| "not known".to_owned());
        say(out, format_args!("{what}: {answer}"))?;
    }
    Ok(())
}

/// Gains from per-process locks on a number of processors.
struct LockGain {
    /// Number of sessions, and number of builds.
    each: usize,
    /// Statistics of the one lock, and of the per-process locks.
    waits: [String; 2],
    /// Gains for sessions, for builds and for forks.
    gains: [Gain; 3],
}

fn step(processors: usize) -> Result<LockGain> {
    // A tree stays on one processor, so fewer trees would leave some processors idle.
    let each = PAPERS_LOAD.max(processors / 2);
    let cell = |pairs: [(&str, String); 2]| {
        let all = pairs.into_iter().chain([("modelled", format!("{processors} processors"))]);
        all.map(|(name, value)| (name.to_owned(), value)).collect::<Params>()
    };
    let load = cell([("sessions", each.to_string()), ("beside", format!("{each} builds"))]);
    let [one, own] = [GLOBAL, OWN].map(|(mode, _)| run("sessions", mode, load.clone()));
    let (one, own) = (one?, own?);
    // If the model has no more processors than the paper's machine, use the highest level of the
    // fork curve.
    let most = if processors > PAPERS_PROCESSORS { processors } else { processors.min(7) };
    let forks = Params::from([
        ("processes".to_owned(), most.to_string()),
        ("modelled".to_owned(), format!("{processors} processors")),
    ]);
    let rate = |mode| mean(&run("fork-throughput", mode, forks.clone())?, "forked");
    let time = |metric| -> Result<Gain> {
        Ok(Gain::of_time(processors, mean(&one, metric)?, mean(&own, metric)?))
    };
    let waits = [(&one, GLOBAL.1), (&own, OWN.1)].map(|(observed, lock)| waits(observed, lock));
    let [one_lock, own_locks] = waits;
    Ok(LockGain {
        each,
        waits: [one_lock?, own_locks?],
        gains: [
            time("iteration")?,
            time("build")?,
            Gain::of_rate(processors, rate(GLOBAL.0)?, rate(OWN.0)?),
        ],
    })
}

/// Returns the statistics of one lock.
fn waits(observed: &Observed, lock: &str) -> Result<String> {
    let mut table = ContentionTable::default();
    note(&mut table, "", observed);
    let found =
        table.rows().find(|(name, _)| *name == lock).map(|(_, mut shares)| shares.remove(0));
    found.ok_or_else(|| MeasureError::fail(format!("no thread took {lock}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_table_of_papers_machine_has_all_locks_and_modes() {
        let mut out = Vec::new();
        table("modelled", Size::Quick, true, &mut out).expect("a vector can be written");
        let text = String::from_utf8(out).expect("UTF-8");
        let mut lines = text.lines().skip(2);
        let heads: Vec<&str> = lines.next().expect("heads").split_whitespace().collect();
        let modes = ["uniprocessor", "master", "coarse", "parallel", "per-process"];
        assert_eq!(heads, [&["lock"][..], &modes].concat(), "{text}");
        for lock in ["coarse_lock", "proc_relation_lock", "p_family_lock", "pg_lock", "p_lock"] {
            let row = text.lines().find(|line| line.split(' ').next() == Some(lock));
            let row = row.unwrap_or_else(|| panic!("{lock} is missing: {text}"));
            assert!(row.contains('.'), "{row}");
        }
        let relations = text.lines().find(|line| line.starts_with("proc_relation_lock"));
        assert_eq!(relations.expect("found above").matches('–').count(), 4, "{text}");
        assert!(text.contains("(simulation, ") && !text.contains("failed"), "{text}");
    }

    #[test]
    fn lock_question_is_answered_for_load_and_for_forks() {
        let mut out = Vec::new();
        question(&[2], &mut out).expect("a vector can be written");
        let text = String::from_utf8(out).expect("UTF-8");
        for start in ["for sessions with builds: ", "for these builds: ", "for forks alone: "] {
            let answer = text.lines().find_map(|line| line.strip_prefix(start));
            let answer = answer.unwrap_or_else(|| panic!("no answer: {text}"));
            let known = ["yes, from ", "no, not on up to ", "not sustained: "];
            assert!(known.iter().any(|begin| answer.starts_with(begin)), "{answer}");
        }
        let row = text.lines().find(|line| line.starts_with("         2     8 + 8 "));
        let gains = row.expect("a row of two processors").matches('%').count();
        assert_eq!(gains, 3, "{text}");
    }
}
