//! Jobs: [`Jobs`], [`Job`], [`JobStatus`].
//!
//! A job is a pipeline with its own process group. The table stores the last status that
//! [`Sys::waitid`] returned for each process, and resolves `%1`, `%%` and similar names. It makes
//! no system calls.
//!
//! [`Sys::waitid`]: tontine_unix::Sys::waitid

use std::fmt;

use tontine_unix::{Pid, Signal, Termios, WaitStatus};

use super::complaint::CommandError;

/// A pipeline that was started.
#[derive(Debug)]
pub(super) struct Job {
    /// The number by which the user names the job.
    pub(super) number: usize,
    /// The process group.
    pub(super) group: Pid,
    /// The command line, as it was typed.
    pub(super) command: String,
    /// The terminal modes that the job left when it stopped in the foreground.
    pub(super) modes: Option<Termios>,
    /// The processes in the order of the pipeline, each with its last known status.
    members: Vec<(Pid, Option<WaitStatus>)>,
    /// `true` if the user has not been informed of the last change.
    news: bool,
    /// The ordinal of the event that last started, stopped or continued the job.
    turn: u64,
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
        let heard = || self.members.iter().map(|(_, status)| *status);
        if heard().any(|status| status.is_none()) {
            return JobStatus::Running;
        }
        let stop = heard().rev().find_map(|status| match status {
            Some(WaitStatus::Stopped(signal) | WaitStatus::Trapped(signal)) => {
                Some(JobStatus::Stopped(signal))
            }
            _ => None,
        });
        stop.unwrap_or_else(|| match heard().next_back().flatten() {
            Some(WaitStatus::Signaled(signal, core)) => JobStatus::Killed(signal, core),
            Some(WaitStatus::Exited(status)) => JobStatus::Done(status),
            _ => JobStatus::Done(0),
        })
    }

    /// Returns the processes of the job.
    pub(super) fn members(&self) -> impl DoubleEndedIterator<Item = Pid> {
        self.members.iter().map(|(pid, _)| *pid)
    }
}

/// The jobs that have not ended, and the ended jobs about which the user has not been informed.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    list: Vec<Job>,
    turns: u64,
}

impl Jobs {
    /// Adds a running job. Returns its number.
    pub(super) fn add(&mut self, group: Pid, members: Vec<Pid>, command: &str) -> usize {
        let number = self.list.last().map_or(1, |job| job.number + 1);
        self.turns += 1;
        self.list.push(Job {
            number,
            group,
            command: command.to_owned(),
            modes: None,
            members: members.into_iter().map(|pid| (pid, None)).collect(),
            news: false,
            turn: self.turns,
        });
        number
    }

    /// Records the status of a process.
    pub(super) fn note(&mut self, pid: Pid, status: WaitStatus) {
        let member = |job: &Job| job.members().any(|member| member.number() == pid.number());
        let Some(job) = self.list.iter_mut().find(|job| !job.state().is_over() && member(job))
        else {
            return;
        };
        let before = job.state();
        let heard = (status != WaitStatus::Continued).then_some(status);
        for (_, last) in
            job.members.iter_mut().filter(|(member, _)| member.number() == pid.number())
        {
            *last = heard;
        }
        if job.state() != before {
            job.news = true;
            self.turns += 1;
            job.turn = self.turns;
        }
    }

    /// Records that a job is continued: its stopped processes run.
    pub(super) fn sent_on(&mut self, number: usize) {
        self.turns += 1;
        if let Some(job) = self.list.iter_mut().find(|job| job.number == number) {
            for (_, last) in &mut job.members {
                *last = last.filter(|status| status.is_terminated());
            }
            job.news = false;
            job.turn = self.turns;
        }
    }

    /// Records that no further status will arrive, so that running processes are treated as ended.
    pub(super) fn lost(&mut self) {
        for (_, last) in self.list.iter_mut().flat_map(|job| &mut job.members) {
            last.get_or_insert(WaitStatus::Exited(127));
        }
    }

    pub(super) fn get(&self, number: usize) -> Option<&Job> {
        self.list.iter().find(|job| job.number == number)
    }

    pub(super) fn get_mut(&mut self, number: usize) -> Option<&mut Job> {
        self.list.iter_mut().find(|job| job.number == number)
    }

    /// Removes a job after the user was informed of its end.
    pub(super) fn remove(&mut self, number: usize) {
        self.list.retain(|job| job.number != number);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Job> {
        self.list.iter()
    }

    /// Returns the state of job `number`. A job that is not in the table counts as ended.
    pub(super) fn state(&self, number: usize) -> JobStatus {
        self.get(number).map_or(JobStatus::Done(127), Job::state)
    }

    /// Returns the job that contains this process.
    pub(super) fn of_process(&self, pid: i32) -> Option<usize> {
        let member = |job: &&Job| job.members().any(|member| member.number() == pid);
        self.list.iter().find(member).map(|job| job.number)
    }

    /// Returns the job that `%1`, `%%`, `%-` or `%name` denotes; without a text, returns the
    /// current job.
    ///
    /// # Errors
    /// If no such job exists, or several jobs match `%name`.
    pub(super) fn find(&self, text: Option<&str>) -> Result<usize, CommandError> {
        let text = text.unwrap_or("%%");
        let none = || CommandError::NoJob(text.to_owned());
        let name = text.strip_prefix('%').ok_or_else(none)?;
        match name {
            "" | "%" | "+" => self.by_turn().next().ok_or(CommandError::NoCurrentJob),
            "-" => self.by_turn().nth(1).ok_or_else(none),
            _ if name.bytes().all(|byte| byte.is_ascii_digit()) => {
                let number = name.parse().map_err(|_| none())?;
                self.get(number).map(|job| job.number).ok_or_else(none)
            }
            _ => {
                let mut fit = self.list.iter().filter(|job| job.command.starts_with(name));
                let found = fit.next().ok_or_else(none)?.number;
                fit.next().map_or(Ok(found), |_| Err(CommandError::ManyJobs(text.to_owned())))
            }
        }
    }

    /// Returns the jobs, the current job first: stopped jobs before others, later jobs before
    /// earlier ones.
    fn by_turn(&self) -> impl Iterator<Item = usize> {
        let mut jobs: Vec<_> = self.list.iter().filter(|job| !job.state().is_over()).collect();
        jobs.sort_by_key(|job| std::cmp::Reverse((job.state().is_stopped(), job.turn)));
        jobs.into_iter().map(|job| job.number)
    }

    /// Returns the line about a job: `[1]+ Stopped   sleep 100 | cat`.
    pub(super) fn line(&self, number: usize) -> String {
        let mut order = self.by_turn();
        let mark = match (order.next(), order.next()) {
            (Some(current), _) if current == number => '+',
            (_, Some(previous)) if previous == number => '-',
            _ => ' ',
        };
        self.get(number).map_or_else(String::new, |job| {
            let background = if job.state() == JobStatus::Running { " &" } else { "" };
            format!("[{number}]{mark} {:<20} {}{background}", job.state().to_string(), job.command)
        })
    }

    /// Returns the line about one job, and records that the user has been informed.
    pub(super) fn told(&mut self, number: usize) -> String {
        self.tell(|job| job.number == number).concat()
    }

    /// Returns the lines about all jobs, and removes those that have ended.
    pub(super) fn lines(&mut self) -> Vec<String> {
        self.tell(|_| true)
    }

    /// Returns the lines about jobs with news, and removes those that have ended.
    pub(super) fn news(&mut self) -> Vec<String> {
        self.tell(|job| job.news)
    }

    fn tell(&mut self, wanted: impl Fn(&Job) -> bool) -> Vec<String> {
        let told: Vec<_> =
            self.list.iter().filter(|job| wanted(job)).map(|job| job.number).collect();
        let lines = told.iter().map(|&number| self.line(number)).collect();
        for job in self.list.iter_mut().filter(|job| told.contains(&job.number)) {
            job.news = false;
        }
        self.list.retain(|job| !(told.contains(&job.number) && job.state().is_over()));
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
        jobs.add(pid(10), vec![pid(10)], "sleep 100");
        jobs.add(pid(20), vec![pid(20), pid(21)], "yes | cat");
        jobs.add(pid(30), vec![pid(30)], "yes");
        jobs
    }

    fn trimmed(lines: &[String]) -> Vec<String> {
        lines.iter().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    }

    #[test]
    fn job_state_follows_process_states() {
        let mut jobs = three();
        jobs.note(pid(21), WaitStatus::Exited(3));
        assert_eq!(jobs.state(2), JobStatus::Running);
        jobs.note(pid(20), WaitStatus::Stopped(Signal::TTIN));
        assert_eq!(jobs.state(2), JobStatus::Stopped(Signal::TTIN));
        jobs.note(pid(20), WaitStatus::Continued);
        assert_eq!(jobs.state(2), JobStatus::Running);
        jobs.note(pid(20), WaitStatus::Signaled(Signal::PIPE, false));
        assert_eq!(jobs.state(2), JobStatus::Done(3));
    }

    #[test]
    fn job_state_maps_to_exit_status() {
        assert_eq!(JobStatus::Done(3).status(), 3);
        assert_eq!(JobStatus::Killed(Signal::INT, false).status(), 130);
        assert_eq!(JobStatus::Stopped(Signal::TSTP).status(), 148);
    }

    #[test]
    fn last_stopped_job_becomes_current_job() {
        let mut jobs = three();
        assert_eq!((jobs.find(None).unwrap(), jobs.find(Some("%-")).unwrap()), (3, 2));
        jobs.note(pid(10), WaitStatus::Stopped(Signal::TSTP));
        assert_eq!((jobs.find(Some("%%")).unwrap(), jobs.find(Some("%-")).unwrap()), (1, 3));
        jobs.sent_on(1);
        jobs.note(pid(30), WaitStatus::Exited(0));
        assert_eq!((jobs.find(Some("%+")).unwrap(), jobs.find(Some("%-")).unwrap()), (1, 2));
    }

    #[test]
    fn job_is_found_by_number_or_name() {
        let mut jobs = three();
        assert_eq!(jobs.find(Some("%2")).unwrap(), 2);
        assert_eq!(jobs.find(Some("%sl")).unwrap(), 1);
        let says = |text| jobs.find(Some(text)).unwrap_err().to_string();
        assert_eq!(says("%4"), "no such job: %4");
        assert_eq!(says("%cat"), "no such job: %cat");
        assert_eq!(says("%yes"), "more than one job: %yes");
        jobs.remove(1);
        assert_eq!(jobs.find(Some("%1")).unwrap_err().to_string(), "no such job: %1");
        assert_eq!(jobs.find(Some("%3")).unwrap(), 3);
        assert_eq!(Jobs::default().find(None).unwrap_err().to_string(), "no current job");
    }

    #[test]
    fn job_line_has_number_mark_state_and_command() {
        let mut jobs = three();
        jobs.note(pid(10), WaitStatus::Stopped(Signal::TSTP));
        assert_eq!(jobs.line(1), "[1]+ Stopped              sleep 100");
        jobs.note(pid(10), WaitStatus::Stopped(Signal::TTOU));
        jobs.note(pid(20), WaitStatus::Exited(0));
        jobs.note(pid(21), WaitStatus::Signaled(Signal::QUIT, true));
        let expected = [
            "[1]+ Stopped (SIGTTOU) sleep 100",
            "[2] Killed (SIGQUIT, core) yes | cat",
            "[3]- Running yes &",
        ];
        assert_eq!(trimmed(&jobs.lines()), expected);
    }

    #[test]
    fn job_change_is_reported_once() {
        let mut jobs = three();
        assert!(jobs.news().is_empty());
        jobs.note(pid(30), WaitStatus::Exited(2));
        jobs.note(pid(10), WaitStatus::Stopped(Signal::STOP));
        assert_eq!(
            trimmed(&jobs.news()),
            ["[1]+ Stopped (SIGSTOP) sleep 100", "[3] Done (2) yes",]
        );
        assert!(jobs.news().is_empty());
        assert_eq!(jobs.iter().count(), 2);
        jobs.note(pid(10), WaitStatus::Continued);
        assert_eq!(trimmed(&jobs.news()), ["[1]+ Running sleep 100 &"]);
        jobs.note(pid(10), WaitStatus::Stopped(Signal::TSTP));
        jobs.sent_on(1);
        jobs.note(pid(10), WaitStatus::Continued);
        assert!(jobs.news().is_empty(), "the shell reports no change that it made itself");
    }

    #[test]
    fn reused_pid_does_not_change_ended_job() {
        let mut jobs = Jobs::default();
        jobs.add(pid(10), vec![pid(10)], "first");
        jobs.note(pid(10), WaitStatus::Exited(1));
        jobs.add(pid(10), vec![pid(10)], "second");
        jobs.note(pid(10), WaitStatus::Exited(2));
        assert_eq!((jobs.state(1), jobs.state(2)), (JobStatus::Done(1), JobStatus::Done(2)));
    }
}
