//! Jobs: [`Jobs`], [`Job`], [`JobStatus`].
//!
//! A job is a pipeline with its own process group. The table stores the last status that
//! [`Sys::waitid`] returned for each process, and resolves `%1` and `%%`. It makes no system calls.
//!
//! [`Sys::waitid`]: tontine_unix::Sys::waitid

use std::fmt;

use tontine_unix::{Pid, Signal, WaitStatus};

use super::say::CommandError;

/// A pipeline that was started.
#[derive(Debug)]
pub(super) struct Job {
    /// The number by which the user names the job.
    pub(super) number: usize,
    pub(super) group: Pid,
    /// The command line, as it was typed.
    pub(super) command: String,
    /// The processes in the order of the pipeline, each with its last known status.
    members: Vec<(Pid, Option<WaitStatus>)>,
    /// `true` if the user has not been informed of the last change.
    pub(super) news: bool,
}

/// The state of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JobStatus {
    /// At least one process runs.
    Running,
    /// No process runs, and at least one was stopped by this signal.
    Stopped(Signal),
    /// All processes ended; the last one exited with this status.
    Done(i32),
    /// All processes ended; this signal terminated the last one; `true` if with a core dump.
    Killed(Signal, bool),
}

impl JobStatus {
    pub(super) fn is_stopped(self) -> bool {
        matches!(self, Self::Stopped(_))
    }

    pub(super) fn is_over(self) -> bool {
        matches!(self, Self::Done(_) | Self::Killed(..))
    }

    /// Returns the value of `$?`.
    pub(super) fn status(self) -> i32 {
        match self {
            Self::Running => 0,
            Self::Done(status) => status,
            Self::Stopped(signal) | Self::Killed(signal, _) => 128 + signal.number(),
        }
    }
}

impl fmt::Display for JobStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Running => f.write_str("Running"),
            Self::Stopped(Signal::TSTP) => f.write_str("Stopped"),
            Self::Stopped(signal) => write!(f, "Stopped ({signal})"),
            Self::Done(0) => f.write_str("Done"),
            Self::Done(status) => write!(f, "Done ({status})"),
            Self::Killed(signal, false) => write!(f, "Killed ({signal})"),
            Self::Killed(signal, true) => write!(f, "Killed ({signal}, core)"),
        }
    }
}

impl Job {
    pub(super) fn state(&self) -> JobStatus {
        let mut stop = None;
        let mut end = JobStatus::Done(0);
        for (_, status) in &self.members {
            match *status {
                None | Some(WaitStatus::Continued) => return JobStatus::Running,
                Some(WaitStatus::Stopped(signal) | WaitStatus::Trapped(signal)) => {
                    stop = Some(JobStatus::Stopped(signal));
                }
                Some(WaitStatus::Signaled(signal, core)) => end = JobStatus::Killed(signal, core),
                Some(WaitStatus::Exited(status)) => end = JobStatus::Done(status),
            }
        }
        stop.unwrap_or(end)
    }
}

/// The jobs that have not ended, and the ended jobs about which the user has not been informed.
#[derive(Debug, Default)]
pub(super) struct Jobs(pub(super) Vec<Job>);

impl Jobs {
    /// Adds a running job. Returns its number.
    pub(super) fn add(&mut self, members: &[Pid], command: &str) -> usize {
        let number = self.0.last().map_or(1, |job| job.number + 1);
        self.0.push(Job {
            number,
            group: members[0],
            command: command.to_owned(),
            members: members.iter().map(|pid| (*pid, None)).collect(),
            news: false,
        });
        number
    }

    /// Records the status of a process. A process of a job that has ended is another one, with a
    /// reused number.
    pub(super) fn note(&mut self, pid: Pid, status: WaitStatus) {
        for job in self.0.iter_mut().filter(|job| !job.state().is_over()) {
            let before = job.state();
            for (_, last) in
                job.members.iter_mut().filter(|(member, _)| member.number() == pid.number())
            {
                *last = (status != WaitStatus::Continued).then_some(status);
            }
            job.news |= job.state() != before;
        }
    }

    /// Records that a job is continued: its stopped processes run.
    pub(super) fn continued(&mut self, number: usize) {
        if let Some(job) = self.0.iter_mut().find(|job| job.number == number) {
            for (_, last) in &mut job.members {
                *last = last.filter(|status| status.is_terminated());
            }
            job.news = false;
        }
    }

    /// Records that no further status will arrive, so that running processes are treated as ended.
    pub(super) fn lost(&mut self) {
        for (_, last) in self.0.iter_mut().flat_map(|job| &mut job.members) {
            last.get_or_insert(WaitStatus::Exited(127));
        }
    }

    pub(super) fn get(&self, number: usize) -> Option<&Job> {
        self.0.iter().find(|job| job.number == number)
    }

    /// Returns the state of job `number`. A job that is not in the table counts as ended.
    pub(super) fn state(&self, number: usize) -> JobStatus {
        self.get(number).map_or(JobStatus::Done(127), Job::state)
    }

    /// Returns the job that `%1` or `%%` denotes.
    pub(super) fn find(&self, text: &str) -> Result<usize, CommandError> {
        let none = || CommandError::failed(format_args!("no such job: {text}"));
        match text.strip_prefix('%').ok_or_else(none)? {
            "%" => self.current().ok_or_else(|| CommandError::failed("no current job")),
            number => {
                let number = number.parse().map_err(|_| none())?;
                self.get(number).map(|job| job.number).ok_or_else(none)
            }
        }
    }

    /// Returns the current job: the last stopped one, otherwise the last running one.
    fn current(&self) -> Option<usize> {
        let left = self.0.iter().filter(|job| !job.state().is_over());
        left.map(|job| (job.state().is_stopped(), job.number)).max().map(|(_, number)| number)
    }

    /// Returns the line about a job: `[1]+ Stopped   sleep 100 | cat`.
    fn line(&self, job: &Job) -> String {
        let mark = if self.current() == Some(job.number) { '+' } else { ' ' };
        let state = job.state();
        let background = if state == JobStatus::Running { " &" } else { "" };
        format!("[{}]{mark} {:<20} {}{background}\n", job.number, state.to_string(), job.command)
    }

    /// Returns the lines about the jobs that `is_reported` selects. Records that the user has been
    /// informed, and removes those that have ended.
    pub(super) fn report(&mut self, is_reported: impl Fn(&Job) -> bool) -> String {
        let reported = self.0.iter().filter(|job| is_reported(job));
        let lines = reported.map(|job| self.line(job)).collect();
        self.0.retain(|job| !(is_reported(job) && job.state().is_over()));
        for job in self.0.iter_mut().filter(|job| is_reported(job)) {
            job.news = false;
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pid(number: i32) -> Pid {
        Pid::number_only(number)
    }

    /// Returns three jobs: one of process 10, one of processes 20 and 21, and one of process 30.
    fn three() -> Jobs {
        let mut jobs = Jobs::default();
        jobs.add(&[pid(10)], "sleep 100");
        jobs.add(&[pid(20), pid(21)], "yes | cat");
        jobs.add(&[pid(30)], "yes");
        jobs
    }

    #[test]
    fn job_state_follows_process_states() {
        let mut jobs = three();
        for (process, status, state, exit) in [
            (21, WaitStatus::Exited(3), JobStatus::Running, 0),
            (20, WaitStatus::Stopped(Signal::TTIN), JobStatus::Stopped(Signal::TTIN), 149),
            (20, WaitStatus::Continued, JobStatus::Running, 0),
            (20, WaitStatus::Signaled(Signal::PIPE, false), JobStatus::Done(3), 3),
            // The process of an ended job is another one.
            (20, WaitStatus::Stopped(Signal::TTIN), JobStatus::Done(3), 3),
        ] {
            jobs.note(pid(process), status);
            assert_eq!((jobs.state(2), jobs.state(2).status()), (state, exit));
        }
    }

    #[test]
    fn current_job_is_last_stopped_job() {
        let mut jobs = three();
        assert_eq!(jobs.find("%%").unwrap(), 3);
        jobs.note(pid(10), WaitStatus::Stopped(Signal::TSTP));
        assert_eq!((jobs.find("%%").unwrap(), jobs.find("%2").unwrap()), (1, 2));
        for (jobs, name, error) in [
            (&jobs, "%4", "no such job: %4"),
            (&jobs, "4", "no such job: 4"),
            (&Jobs::default(), "%%", "no current job"),
        ] {
            assert_eq!(jobs.find(name).unwrap_err().text, error);
        }
    }

    #[test]
    fn job_change_is_reported_once() {
        let mut jobs = three();
        let news = |jobs: &mut Jobs| jobs.report(|job| job.news);
        assert_eq!(news(&mut jobs), "");
        jobs.note(pid(30), WaitStatus::Signaled(Signal::QUIT, true));
        jobs.note(pid(10), WaitStatus::Stopped(Signal::TSTP));
        let expected = "[1]+ Stopped              sleep 100\n[3]  Killed (SIGQUIT, core) yes\n";
        assert_eq!(news(&mut jobs), expected);
        assert_eq!((news(&mut jobs), jobs.0.len()), (String::new(), 2));
        jobs.note(pid(10), WaitStatus::Continued);
        assert_eq!(news(&mut jobs), "[1]  Running              sleep 100 &\n");
        jobs.note(pid(10), WaitStatus::Stopped(Signal::TSTP));
        jobs.continued(1);
        jobs.note(pid(10), WaitStatus::Continued);
        assert_eq!(news(&mut jobs), "", "the shell reports no change that it made itself");
    }
}
