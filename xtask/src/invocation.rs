//! One invocation of an experiment, for chores: [`figure`].

use std::ffi::OsString;
use std::io;
use std::time::Duration;

use tontine_bench::engine::invoked::{Order, Outcome};
use tontine_bench::engine::launch::{Ended, Launcher};
use tontine_bench::engine::stop::Stop;
use tontine_bench::stats::summary::Summary;
use tontine_bench::task::Task;

/// The hidden chore by which this program starts itself afresh.
pub(crate) const NAME: &str = "__invocation";

/// When an invocation is given up.
const DEADLINE: Duration = Duration::from_secs(20);

/// Runs `task` in a fresh process; the summary of its first metric.
///
/// # Errors
/// Where it gave no figures; the text says why.
pub(crate) fn figure(task: &Task) -> io::Result<Summary> {
    let launcher = Launcher {
        program: std::env::current_exe()?,
        arguments: vec![OsString::from(NAME)],
        deadline: DEADLINE,
    };
    let order = Order { task: task.clone(), block: 0, samples: None, plant: None };
    let name = format!("{}/{}", task.experiment, task.variant);
    match launcher.launch(&order, &Stop::never()?) {
        Ended::Replied(reply) => match reply.outcome {
            Outcome::Measured(mut measured) => Ok(measured.figures.swap_remove(0).summary),
            Outcome::Skipped(why) | Outcome::Failed(why) => {
                Err(io::Error::other(format!("{name}: {why}")))
            }
        },
        Ended::Broken(why) => Err(io::Error::other(format!("{name}: {why}"))),
        Ended::Stopped => Err(io::Error::other(format!("{name}: stopped"))),
    }
}
