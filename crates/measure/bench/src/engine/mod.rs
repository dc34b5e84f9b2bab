//! The engine, which runs tasks in fresh processes and collects their replies.
//!
//! [`plan::Plan`] is the request: tasks, size and order. [`run`] executes it block by block. A
//! block contains every task once, in random order, so that drift of the machine affects all cells
//! equally. A task whose invocations take seconds has fewer of them, spread evenly over the blocks.
//! Each invocation is a new process ([`launch`]) that receives a task, runs it ([`invoked`]) and
//! replies with summaries. [`collect`] converts the replies to cells, with remarks on what makes
//! their figures doubtful. [`stop`] lets Ctrl-C end the
//! run cleanly, and `group` kills what a start leaves.
//!
//! Before a run, [`pilot`] makes a few small invocations. From these, [`estimate`] computes the
//! duration of the run, and [`repetitions`] the number of repetitions.

pub mod collect;
mod doubts;
pub mod estimate;
pub(crate) mod group;
pub mod invoked;
pub mod launch;
pub mod pilot;
pub mod plan;
pub mod repetitions;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Instant, SystemTime};

use crate::engine::collect::{Collector, Rows};
use crate::engine::invoked::{InvocationReply, InvocationRequest, InvocationResult};
use crate::engine::launch::{LaunchResult, Launcher};
use crate::engine::plan::Plan;
pub use tontine_command::stop;

use crate::engine::stop::StopRequest;
use crate::executable::Executable;
use crate::machine::{MachineFacts, advice, card};
use crate::schema::{Results, SCHEMA};
use crate::task::InvocationTask;

/// Number of blocks in which a task may fail before it is left out of the remaining blocks. Without
/// this limit, a mechanism that hangs would cost one timeout per block.
const FAILED_BLOCKS: usize = 2;

/// An observer of the engine. All methods have a default that ignores the event.
pub trait Progress {
    /// Reports the start of the run. `plan` contains the maximum number of invocations.
    fn began(&mut self, _plan: &Plan) {}
    /// Reports the start of an invocation of `task` in a block.
    fn invoking(&mut self, _task: &InvocationTask, _block: usize) {}
    /// Reports the end of an invocation of `task`. `left_out` further invocations will not be made.
    fn invoked(&mut self, _task: &InvocationTask, _outcome: &InvocationResult, _left_out: usize) {}
    fn ended(&mut self) {}
}

/// An observer that ignores all events.
#[derive(Debug, Clone, Copy)]
pub struct Silent;

impl Progress for Silent {}

/// Runs the whole plan, or the part of it before `stop`.
///
/// If `samples`, an existing directory, is given, writes raw samples to it. If an invocation fails,
/// its row records the failure; the run itself does not fail.
pub fn run(
    plan: &Plan,
    launcher: &Launcher,
    samples: Option<&PathBuf>,
    stop: &StopRequest,
    progress: &mut dyn Progress,
) -> Results {
    let began = Instant::now();
    let started = humantime::format_rfc3339_seconds(SystemTime::now());
    let mut machine = machine_facts(&plan.suite.machine());
    let executable = Executable::at(&launcher.program).ok();
    let mut collector = Collector::new(plan);
    let mut failed_blocks = vec![0; plan.tasks.len()];
    let mut closed = vec![false; plan.tasks.len()];
    let mut ledger = BTreeMap::new();

    (plan.suite.clean_up)();
    progress.began(plan);
    'run: for block in 0..plan.blocks() {
        for index in plan.order(block) {
            if closed[index] {
                continue;
            }
            let task = &plan.tasks[index];
            progress.invoking(task, block);
            let order = InvocationRequest { task: task.clone(), block, samples: samples.cloned() };
            let invoked = Instant::now();
            let Some((reply, earlier)) = invoke(launcher, &order, stop) else {
                break 'run;
            };
            *ledger.entry(task.experiment.clone()).or_default() += invoked.elapsed().as_secs_f64();
            match &reply.outcome {
                InvocationResult::Skipped(_) => closed[index] = true,
                InvocationResult::Failed(_) => {
                    failed_blocks[index] += 1;
                    closed[index] = failed_blocks[index] == FAILED_BLOCKS;
                }
                InvocationResult::Measured(_) => {}
            }
            let left_out = if closed[index] { plan.left_after(index, block) } else { 0 };
            progress.invoked(task, &reply.outcome, left_out);
            collector.add(index, block, earlier, reply);
        }
    }
    progress.ended();
    (plan.suite.clean_up)();
    (plan.suite.end_run)();

    if let Some(facts) = machine.as_object_mut() {
        let stolen = crate::machine::stolen_ms();
        facts.insert("stolen_ms_at_end".into(), stolen.into());
    }
    let named = |name: &str| plan.tasks.iter().any(|task| task.experiment == name);
    let taking_part = plan.suite.experiments.iter().filter(|one| named(one.name()));
    let Rows { cells, ratios, tried, maps } = collector.finish();
    Results {
        schema: SCHEMA,
        machine,
        order_seed: plan.seed,
        started: started.to_string(),
        seconds: began.elapsed().as_secs_f64(),
        ledger,
        size: plan.size,
        complete: !stop.requested(),
        executable,
        experiments: taking_part.map(|one| one.description()).collect(),
        mechanisms: (plan.suite.mechanisms)(),
        cells,
        ratios,
        tried,
        maps,
    }
}

/// Runs one invocation, and repeats it once if it fails. Returns `None` if the run was stopped;
/// otherwise returns the reply, and the reason why a first attempt failed.
pub fn invoke(
    launcher: &Launcher,
    order: &InvocationRequest,
    stop: &StopRequest,
) -> Option<(InvocationReply, Option<String>)> {
    let mut earlier = None;
    loop {
        let reply = match launcher.launch(order, stop) {
            LaunchResult::Stopped => return None,
            LaunchResult::Replied(reply) => *reply,
            LaunchResult::Broken(why) => InvocationReply::failed(why),
        };
        match (&reply.outcome, &earlier) {
            (InvocationResult::Failed(why), None) => earlier = Some(why.clone()),
            _ => return Some((reply, earlier)),
        }
    }
}

/// Returns the machine's facts, the advice and the card, as `results.json` contains them.
pub fn machine_facts(machine: &MachineFacts) -> serde_json::Value {
    let mut facts = serde_json::to_value(machine).unwrap_or_default();
    if let Some(object) = facts.as_object_mut() {
        object.insert("summary".into(), machine.one_line().into());
        let advice = serde_json::to_value(advice::advice(machine)).unwrap_or_default();
        object.insert("advice".into(), advice);
        object.insert("card".into(), serde_json::to_value(card(machine)).unwrap_or_default());
    }
    facts
}
