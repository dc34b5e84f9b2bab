//! Runs one invocation of an experiment for a task: [`figure`].

use std::ffi::OsString;
use std::io;
use std::time::Duration;

use tontine_bench::engine::invoked::{InvocationRequest, InvocationResult};
use tontine_bench::engine::launch::{LaunchResult, Launcher};
use tontine_bench::engine::stop::StopRequest;
use tontine_bench::stats::summary::Summary;
use tontine_bench::task::InvocationTask;

/// Hidden command by which this program starts itself again for each invocation.
pub(crate) const NAME: &str = "__invocation";

/// Timeout of an invocation.
const DEADLINE: Duration = Duration::from_secs(20);

/// Runs `task` in a fresh process and returns the summary of its first metric.
///
/// # Errors
/// Fails if the invocation yields no figures; the text names the reason.
pub(crate) fn figure(task: &InvocationTask) -> io::Result<Summary> {
    let launcher = Launcher {
        program: std::env::current_exe()?,
        arguments: vec![OsString::from(NAME)],
        deadline: DEADLINE,
    };
    let order = InvocationRequest { task: task.clone(), block: 0, samples: None, plant: None };
    let name = format!("{}/{}", task.experiment, task.variant);
    match launcher.launch(&order, &StopRequest::never()?) {
        LaunchResult::Replied(reply) => match reply.outcome {
            InvocationResult::Measured(mut measured) => Ok(measured.figures.swap_remove(0).summary),
            InvocationResult::Skipped(why) | InvocationResult::Failed(why) => {
                Err(io::Error::other(format!("{name}: {why}")))
            }
        },
        LaunchResult::Broken(why) => Err(io::Error::other(format!("{name}: {why}"))),
        LaunchResult::Stopped => Err(io::Error::other(format!("{name}: stopped"))),
    }
}
