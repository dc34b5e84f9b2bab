//! Scheduling of this process: affinity, policy, cgroup quota and throttling.

use crate::os::files::{Files, keyed};
use crate::os::pin;
use serde::Serialize;

#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Scheduling {
    pub affinity: Option<Vec<usize>>,
    /// `other`, `fifo`, `round-robin`, `batch`, `idle` or `deadline`.
    pub policy: Option<String>,
    /// Nice value, from −20 to 19.
    pub nice: Option<i64>,
    /// The hierarchy with the processor controller, `v1` or `v2`.
    pub cgroup: Option<String>,
    /// Limit in processors that the cgroup or one of its ancestors sets; `None` if there is no
    /// limit or it is unknown.
    pub quota: Option<f64>,
    /// Number of periods in which the cgroup was throttled since its creation.
    pub throttled_periods: Option<u64>,
    /// Total time of throttling in ms.
    pub throttled_ms: Option<f64>,
}

impl Scheduling {
    pub fn look(files: &Files) -> Self {
        let group = Cgroup::of_this_process(files);
        // The command's name, in parentheses, may contain blanks, so the fields are counted from
        // its end.
        let stat = files.text("proc/self/stat").unwrap_or_default();
        let fields: Vec<&str> = stat
            .rsplit_once(") ")
            .map(|(_, after)| after.split_whitespace().collect())
            .unwrap_or_default();
        // proc_pid_stat(5) numbers the fields from 1, and these fields begin at 3.
        let field = |number: usize| -> Option<i64> { fields.get(number - 3)?.parse().ok() };
        let throttling = group.as_ref().and_then(|group| group.throttling(files));
        Self {
            affinity: pin::allowed().ok(),
            policy: field(41).map(|number| policy(number).to_owned()),
            nice: field(19),
            cgroup: group.as_ref().map(|group| group.version.to_owned()),
            quota: group.as_ref().and_then(|group| group.quota(files)),
            throttled_periods: throttling.map(|(periods, _)| periods),
            throttled_ms: throttling.map(|(_, ms)| ms),
        }
    }
}

fn policy(number: i64) -> &'static str {
    match number {
        0 => "other",
        1 => "fifo",
        2 => "round-robin",
        3 => "batch",
        5 => "idle",
        6 => "deadline",
        7 => "ext",
        _ => "unknown",
    }
}

/// The cgroup of this process that has the processor controller.
#[derive(Debug, PartialEq)]
struct Cgroup {
    version: &'static str,
    /// Mount point of the hierarchy.
    mount: String,
    /// Names of the groups from the mount point down to the group of this process.
    path: Vec<String>,
}

impl Cgroup {
    /// Returns the first mounted hierarchy, v1 before v2, that lists the processor controller. On a
    /// mixed system, that is v1.
    fn of_this_process(files: &Files) -> Option<Self> {
        let groups = files.text("proc/self/cgroup")?;
        let mounts = files.text("proc/self/mountinfo")?;
        let of_kind = |version, wanted: &dyn Fn(&str) -> bool, kind: &str, option: &str| {
            let path = groups.lines().find_map(|line| {
                let (_, rest) = line.split_once(':')?;
                let (controllers, path) = rest.split_once(':')?;
                wanted(controllers).then_some(path)
            })?;
            let (root, mount) = mounts.lines().find_map(|line| mounted(line, kind, option))?;
            // Inside a container the mount's root may be the group itself.
            let below = path.strip_prefix(root.trim_end_matches('/')).unwrap_or("");
            let path = below.split('/').filter(|name| !name.is_empty() && *name != "..");
            Some(Self { version, mount: mount.to_owned(), path: path.map(str::to_owned).collect() })
        };
        let lists_cpu = |controllers: &str| controllers.split(',').any(|name| name == "cpu");
        of_kind("v1", &lists_cpu, "cgroup", "cpu")
            .or_else(|| of_kind("v2", &str::is_empty, "cgroup2", ""))
    }

    /// Returns the directories of this process's group and its ancestors, nearest first.
    fn folders(&self) -> impl Iterator<Item = String> {
        (0..=self.path.len()).rev().map(|depth| {
            let mut folder = self.mount.clone();
            for name in &self.path[..depth] {
                folder.push('/');
                folder.push_str(name);
            }
            folder
        })
    }

    /// Returns the tightest limit between this group and the root, in processors.
    fn quota(&self, files: &Files) -> Option<f64> {
        self.folders()
            .filter_map(|folder| {
                let (quota, period) = if self.version == "v2" {
                    let text = files.text(&format!("{folder}/cpu.max"))?;
                    let (quota, period) = text.split_once(' ')?;
                    (quota.parse::<f64>().ok()?, period.parse::<f64>().ok()?)
                } else {
                    (
                        files.number::<f64>(&format!("{folder}/cpu.cfs_quota_us"))?,
                        files.number::<f64>(&format!("{folder}/cpu.cfs_period_us"))?,
                    )
                };
                (quota > 0.0 && period > 0.0).then(|| quota / period)
            })
            .min_by(f64::total_cmp)
    }

    /// Returns how many times and for how many milliseconds the nearest group with these counters
    /// was throttled.
    fn throttling(&self, files: &Files) -> Option<(u64, f64)> {
        self.folders().find_map(|folder| {
            let text = files.text(&format!("{folder}/cpu.stat"))?;
            let periods = keyed(&text, "nr_throttled")?;
            let ms = keyed::<f64>(&text, "throttled_usec").map(|us| us / 1e3);
            let ms = ms.or_else(|| keyed::<f64>(&text, "throttled_time").map(|ns| ns / 1e6))?;
            Some((periods, ms))
        })
    }
}

/// Returns the root and the mount point of a `mountinfo` line, if its file system and one of its
/// options match.
fn mounted<'a>(line: &'a str, kind: &str, option: &str) -> Option<(&'a str, &'a str)> {
    let (before, after) = line.split_once(" - ")?;
    let mut before = before.split(' ').skip(3);
    let (root, mount) = (before.next()?, before.next()?);
    let mut after = after.split(' ');
    let found = after.next()?;
    let options = after.nth(1)?;
    let fits = option.is_empty() || options.split(',').any(|name| name == option);
    (found == kind && fits).then_some((root, mount))
}
