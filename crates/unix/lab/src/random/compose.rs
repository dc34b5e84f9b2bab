//! The generator of random scenarios from phrases: [`text`].
//!
//! Each scenario uses only a few signals, so that sent signals are often blocked, and only some of
//! the features, so that each feature is frequent in some scenarios. Processes form a tree: each is
//! forked by one other process, mostly early.

use std::fmt::Write as _;

use super::chance::Chance;
use super::phrase::{Feature, Phrase, phrases};

/// The numbers of processes to choose from, and the maximum including the processes that phrases
/// add.
const PROCESSES: [usize; 4] = [2, 2, 3, 4];
const MOST_PROCESSES: usize = 6;
/// Maximum number of additional programs, for which processes call exec.
const MOST_PROGRAMS: usize = 3;
/// Minimum number of statements, and the width of the range above that minimum.
const FEWEST: usize = 5;
const MORE: usize = 24;
/// Maximum depth of phrases within phrases.
const DEPTH: usize = 2;

/// The signals from which most scenarios choose.
const PLAIN: &[&str] = &["USR1", "USR2", "HUP", "TERM"];
const QUIET: &[&str] = &["WINCH", "URG", "CHLD"];
const STOPS: &[&str] = &["STOP", "TSTP", "TTIN", "TTOU"];
/// Signals that do not affect the process that began the run and adopts orphans, because this
/// process blocks them.
const SOFT: &[&str] = &["USR1", "USR2", "HUP", "CONT", "WINCH"];

/// Returns the random scenario of a seed.
pub(super) fn text(seed: u64) -> String {
    let mut chance = Chance::new(seed);
    let features: Vec<Feature> =
        Feature::ALL.iter().copied().filter(|_| chance.odds(1, 4)).collect();
    let features = match features.len() {
        0 => vec![chance.of(Feature::ALL), Feature::Sending],
        _ => features,
    };
    let signals = signals(&mut chance, &features);
    let mut composer =
        Composer { chance, features, signals, blocks: Vec::new(), threads: 0, phrases: 0 };
    composer.compose();
    composer.to_string()
}

/// Chooses the few signals of a scenario.
fn signals(chance: &mut Chance, features: &[Feature]) -> Vec<&'static str> {
    let mut all = vec![chance.of(PLAIN), chance.of(PLAIN)];
    if features.contains(&Feature::Stops) || chance.odds(1, 8) {
        all.extend([chance.of(STOPS), "CONT"]);
    }
    if features.contains(&Feature::RealTime) {
        all.push("RTMIN");
    }
    if chance.odds(1, 3) {
        all.push(chance.of(QUIET));
    }
    if chance.odds(1, 8) {
        all.push(chance.of(&["INT", "ALRM", "KILL", "STOP", "CONT", "PIPE", "RTMAX"]));
    }
    all
}

/// A process or a thread.
#[derive(Debug, Default)]
struct ProgramBlock {
    is_thread: bool,
    is_program: bool,
    /// `true` if a process may trace this one. A process that may be traced creates no threads,
    /// because on Linux only one thread is traced.
    is_traced: bool,
    /// Groups of statements, in order.
    units: Vec<String>,
    /// The processes that this one forks.
    children: Vec<usize>,
}

struct Composer {
    chance: Chance,
    features: Vec<Feature>,
    signals: Vec<&'static str>,
    /// The processes, followed by the threads, which are appended when everything else is complete.
    blocks: Vec<ProgramBlock>,
    threads: usize,
    /// Number of phrases so far.
    phrases: usize,
}

/// The values of the words in one phrase.
#[derive(Debug, Clone)]
struct PhraseWords {
    of: usize,
    a: &'static str,
    b: &'static str,
    new: usize,
    program: usize,
    thread: usize,
    /// The ordinal of the phrase.
    nth: usize,
}

impl Composer {
    fn compose(&mut self) {
        let processes = self.chance.of(&PROCESSES);
        self.blocks.push(ProgramBlock::default());
        for child in 1..processes {
            let parent = if self.chance.odds(1, 2) { 0 } else { self.chance.below(child) };
            self.blocks.push(ProgramBlock::default());
            self.blocks[parent].children.push(child);
        }
        self.threads = match self.features.contains(&Feature::Threads) {
            true => 1 + self.chance.below(2),
            false => 0,
        };
        let all = phrases().iter().filter(|phrase| self.features.contains(&phrase.feature));
        let all: Vec<&Phrase> = all.collect();
        let wanted = FEWEST + self.chance.below(MORE);
        let mut statements = 0;
        // A phrase that needs another process is empty if the maximum is reached.
        for _ in 0..wanted {
            if statements >= wanted {
                break;
            }
            let of = self.chance.below(self.blocks.len());
            let phrase = *self.chance.weighted(&all, |phrase| phrase.weight);
            let unit = self.phrase(of, phrase, 0);
            statements += unit.lines().count();
            self.blocks[of].units.push(unit);
        }
        for parent in 0..processes {
            self.fork_children(parent);
        }
        for thread in 0..self.threads {
            let mut units = Vec::new();
            for _ in 0..self.chance.below(4) {
                let phrase = *self.chance.weighted(&all, |phrase| phrase.weight);
                // A thread that created processes would create them again each time the thread
                // itself is created.
                if phrase.there.is_empty() && !phrase.here.iter().any(|line| is_forking(line)) {
                    units.push(self.phrase(0, phrase, DEPTH));
                }
            }
            self.blocks.push(ProgramBlock { is_thread: true, units, ..ProgramBlock::default() });
            let of = self.chance.below(processes);
            let most = self.chance.below(self.blocks[of].units.len() + 1) + 1;
            let at = self.chance.below(most);
            self.blocks[of].units.insert(at, format!("h{thread} = thread t{thread}\n"));
        }
        self.begin_and_end(processes);
        self.leave_out();
    }

    /// Removes statements for which the two systems are known to differ: docs/reference/check.md
    /// says why.
    fn leave_out(&mut self) {
        let handles = |unit: &String| unit.contains("on CHLD") || unit.contains("sigvec CHLD");
        let handles = self.blocks.iter().flat_map(|block| &block.units).any(handles);
        let has_terminal = self.features.contains(&Feature::Terminals);
        for block in &mut self.blocks {
            let is_kept = |line: &&str| {
                let line = line.trim_start();
                let waits = line.starts_with("wait") && handles;
                let takes = line.starts_with("sigwait") && !line.ends_with("{}");
                !(block.is_thread && (waits || takes))
            };
            for unit in &mut block.units {
                let lines = unit.lines().filter(is_kept).map(|line| match has_terminal {
                    true => format!("{}\n", calmed(line)),
                    false => format!("{line}\n"),
                });
                *unit = lines.collect();
            }
        }
    }

    /// Adds the statements that must be first in the first process, and the statements that end
    /// processes.
    fn begin_and_end(&mut self, processes: usize) {
        if self.features.contains(&Feature::Pipes) {
            self.blocks[0].units.insert(0, "pipe r w\n".to_owned());
        }
        if self.features.contains(&Feature::Terminals) {
            self.blocks[0].units.insert(0, "openpty u t\ncontrolling t\n".to_owned());
        }
        for process in 0..processes {
            let last = match self.chance.below(6) {
                0 => format!("exit {}\n", self.chance.below(4)),
                1 => "wait\nwait\n".to_owned(),
                2 => "wait stopped continued\n".to_owned(),
                _ => continue,
            };
            self.blocks[process].units.push(last);
        }
    }

    /// Inserts the forks among the statements of a process, mostly early.
    fn fork_children(&mut self, parent: usize) {
        let mut at = 0;
        for child in self.blocks[parent].children.clone() {
            let space = self.blocks[parent].units.len() + 1 - at;
            let most = self.chance.below(space) + 1;
            at += self.chance.below(most);
            self.blocks[parent].units.insert(at, format!("k{child} = fork p{child}\n"));
            at += 1;
        }
    }

    /// Returns the statements of a phrase for this process.
    fn phrase(&mut self, of: usize, phrase: &Phrase, depth: usize) -> String {
        let a = self.chance.of(&self.signals);
        let others: Vec<&str> = self.signals.iter().copied().filter(|other| *other != a).collect();
        let b = if others.is_empty() { "INT" } else { self.chance.of(&others) };
        let thread = self.chance.below(self.threads.max(1));
        let makes = phrase.here.iter().any(|line| line.contains("$new"));
        let executes = !phrase.program.is_empty();
        let programs = self.blocks.iter().filter(|block| block.is_program).count();
        let is_traced = self.blocks[of].is_traced;
        let traces = phrase.feature == Feature::Tracing;
        if makes && (self.processes().count() >= MOST_PROCESSES || depth >= DEPTH)
            || executes && programs >= MOST_PROGRAMS
            || is_traced && phrase.here.iter().any(|line| line.contains("= thread"))
        {
            return String::new();
        }
        let mut one_more = |is_wanted: bool, is_program: bool| {
            let is_traced = traces || is_traced && is_program;
            let block = ProgramBlock { is_program, is_traced, ..ProgramBlock::default() };
            self.blocks.extend(is_wanted.then_some(block));
            if is_wanted { self.blocks.len() - 1 } else { 0 }
        };
        let new = one_more(makes, false);
        let program = one_more(executes, true);
        self.phrases += 1;
        let words = PhraseWords { of, a, b, new, program, thread, nth: self.phrases };
        if program != 0 {
            let inner = PhraseWords { of: program, ..words.clone() };
            let unit = self.statements(&inner, &phrase.program, depth + 1);
            self.blocks[program].units.insert(0, unit);
        }
        if makes {
            let inner = PhraseWords { of: new, ..words.clone() };
            let unit = self.statements(&inner, &phrase.there, depth + 1);
            self.blocks[new].units.insert(0, unit);
        }
        self.statements(&words, &phrase.here, depth)
    }

    fn statements(&mut self, words: &PhraseWords, lines: &[&str], depth: usize) -> String {
        let mut text = String::new();
        for line in lines {
            let line = self.line(words, line, depth);
            if !line.is_empty() {
                let _ = writeln!(text, "{}", line.trim_end_matches('\n'));
            }
        }
        text
    }

    /// Replaces the words in a line. `$more` may yield several lines.
    fn line(&mut self, words: &PhraseWords, line: &str, depth: usize) -> String {
        let mut text = String::new();
        let mut rest = line;
        while let Some((before, behind)) = rest.split_once('$') {
            text.push_str(before);
            let is_word = |c: char| c.is_ascii_lowercase() || c == '-';
            let end = behind.find(|c| !is_word(c)).unwrap_or(behind.len());
            let value = self.word(words, &behind[..end], depth);
            text.push_str(&value);
            rest = &behind[end..];
        }
        text.push_str(rest);
        text
    }

    fn word(&mut self, words: &PhraseWords, word: &str, depth: usize) -> String {
        let chance = &mut self.chance;
        let chosen = match word {
            "a" => words.a,
            "b" => words.b,
            "sig" => chance.of(&self.signals),
            "quiet" => chance.of(QUIET),
            "stop" => chance.of(STOPS),
            "soft" => chance.of(SOFT),
            "last" => chance.of(&["KILL", "STOP"]),
            "set" => return self.set(),
            "who" => return self.who(words.of),
            "kid" => return self.kid(words.of),
            "n" => return (1 + chance.below(9)).to_string(),
            "mine" => return format!("m{}", words.nth),
            "new" => return format!("p{}", words.new),
            "program" => return format!("p{}", words.program),
            "new-pid" => return format!("k{}", words.new),
            "thread" => return format!("h{}", words.thread),
            "thread-block" => return format!("t{}", words.thread),
            "whom" => return self.target(words.of),
            "opts" => return some(chance, &["nohang", "exited", "stopped", "continued", "nowait"]),
            "flags" => return some(chance, &["restart", "nodefer", "resethand", "siginfo"]),
            "calm" => return some(chance, &["restart", "resethand", "siginfo"]),
            "child" => return some(chance, &["nocldstop", "nocldwait", "restart"]),
            "key" => chance.of(&["\\x03", "\\x1a", "\\x1a", "\\x03", "ab"]),
            "modes" => {
                chance.of(&["+tostop", "-tostop", "+noflsh", "-icanon", "-echo", "-isig", "+isig"])
            }
            "ttou" => {
                chance.of(&["", "", "ignore TTOU", "block {TTOU}", "on TTOU\n  note \"out\""])
            }
            "ttin" => chance.of(&["", "", "ignore TTIN", "block {TTIN}", "on TTIN\n  note \"in\""]),
            "more" => return self.more(words.of, depth),
            "fork" => return self.fork(depth),
            unknown => panic!("no word of a phrase: `{unknown}`"),
        };
        chosen.to_owned()
    }

    /// Returns a random nested phrase, or an empty string.
    fn more(&mut self, of: usize, depth: usize) -> String {
        let all = phrases().iter().filter(|phrase| self.features.contains(&phrase.feature));
        let all: Vec<&Phrase> = all.collect();
        if depth >= DEPTH || self.chance.odds(1, 3) {
            return String::new();
        }
        let phrase = *self.chance.weighted(&all, |phrase| phrase.weight);
        self.phrase(of, phrase, depth)
    }

    /// Adds a process that runs a phrase. Returns the statement that forks it.
    fn fork(&mut self, depth: usize) -> String {
        let new = self.blocks.len();
        if self.processes().count() >= MOST_PROCESSES {
            return String::new();
        }
        self.blocks.push(ProgramBlock::default());
        let unit = self.more(new, depth);
        self.blocks[new].units.insert(0, unit);
        format!("k{new} = fork p{new}")
    }

    /// Returns the processes so far, excluding threads and programs.
    fn processes(&self) -> impl Iterator<Item = usize> {
        let is_process = |at: &usize| !self.blocks[*at].is_thread && !self.blocks[*at].is_program;
        (0..self.blocks.len()).filter(is_process)
    }

    fn set(&mut self) -> String {
        if self.chance.odds(1, 16) {
            return "all".to_owned();
        }
        let mut chosen = Vec::new();
        for _ in 0..self.chance.below(4) {
            let signal = self.chance.of(&self.signals);
            if !chosen.contains(&signal) {
                chosen.push(signal);
            }
        }
        format!("{{{}}}", chosen.join(" "))
    }

    /// Returns a process whose handle or number this block may have.
    fn who(&mut self, of: usize) -> String {
        match self.chance.below(8) {
            0 | 1 => "self".to_owned(),
            2..=4 => self.kid(of),
            _ => {
                let known: Vec<usize> = self.processes().collect();
                match self.chance.of(&known) {
                    0 => "self".to_owned(),
                    known => format!("k{known}"),
                }
            }
        }
    }

    /// Returns a child of the process, if it has one.
    fn kid(&mut self, of: usize) -> String {
        match self.blocks[of].children.as_slice() {
            [] => "self".to_owned(),
            children => format!("k{}", self.chance.of(children)),
        }
    }

    fn target(&mut self, of: usize) -> String {
        match self.chance.below(6) {
            0..=2 => "any".to_owned(),
            3 => self.kid(of),
            // On Linux, a thread that waits for a group is not woken when its last child leaves the
            // group.
            4 => format!("group {} nohang", self.kid(of)),
            _ => "own-group nohang".to_owned(),
        }
    }
}

/// Changes a line of a scenario with terminals, so that no process reads forever in the background.
fn calmed(line: &str) -> String {
    let line = line.replace("sigvec TT", "on TT");
    if line.contains("on TT") { line.replace(" restart", "") } else { line }
}

/// Returns some of the words, usually one.
fn some(chance: &mut Chance, words: &[&str]) -> String {
    let mut chosen: Vec<&str> = Vec::new();
    while chance.odds(3, 5) && chosen.len() < words.len() {
        let word = chance.of(words);
        if !chosen.contains(&word) {
            chosen.push(word);
        }
    }
    chosen.join(" ")
}

/// Returns `true` if a line creates a process or a thread.
fn is_forking(line: &str) -> bool {
    ["fork", "$new", "= thread", "openpty"].iter().any(|word| line.contains(word))
}

impl std::fmt::Display for Composer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut threads = 0;
        for (at, block) in self.blocks.iter().enumerate() {
            if block.is_thread {
                writeln!(f, "thread t{threads}")?;
                threads += 1;
            } else {
                writeln!(f, "process p{at}")?;
            }
            for line in block.units.iter().flat_map(|unit| unit.lines()) {
                writeln!(f, "  {}{}", line, allowance(line))?;
            }
        }
        Ok(())
    }
}

/// Returns the suffix of a statement. Any result of a call is accepted, because the systems are
/// compared with each other.
fn allowance(line: &str) -> &'static str {
    let says = |word| line.trim_start().starts_with(word);
    if line.is_empty() || says("note ") || says("exit ") { "" } else { " -> anything" }
}
