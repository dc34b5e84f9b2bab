//! The costs of the steps of the virtual Unix on a machine: [`CostModel`], one figure a
//! [`CostKind`].
//!
//! The modelled executor charges them to its processors' clocks; docs/model.md says where. A file
//! of costs is text, a line a step: its name, nanoseconds, what it is. [`CostModel::measure`] makes
//! one on the machine that it runs on. One that was made so comes with the library:
//! [`CostModel::published`].

mod text;

pub use text::ParseCostsError;

/// Looks at other processors before an idle one sleeps: some 25 µs. Longer than a sleeper takes to
/// run once it is woken, or two that wait for each other's answers would both sleep each time.
pub(crate) const LOOKS: u32 = 1024;

/// Picoseconds in a nanosecond: costs are kept in the former, to lose no tenth of a lock.
pub(crate) const PS_A_NS: u64 = 1000;

macro_rules! steps {
    ($($step:ident = $name:literal, $what:literal;)+) => {
        /// A kind of step that costs processor time.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum CostKind {
            $(#[doc = $what] $step),+
        }

        impl CostKind {
            /// All kinds, in the order of a file of costs.
            pub const ALL: [Self; [$(CostKind::$step),+].len()] = [$(Self::$step),+];

            /// Returns the name, as in a file of costs.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$step => $name),+ }
            }

            /// Returns a description.
            #[must_use]
            pub const fn what(self) -> &'static str {
                match self { $(Self::$step => $what),+ }
            }
        }
    };
}

steps! {
    Call = "call", "a system call's way in and out";
    Lock = "lock", "a lock taken and given back whose cache line is here";
    Transfer = "transfer", "a cache line that another processor wrote last";
    Guarded = "guarded", "what a lock guards, when another processor had the lock last";
    Spin = "spin", "one turn of waiting at a blocking lock";
    Switch = "switch", "from one virtual thread to another";
    Unpark = "unpark", "waking a thread of this processor";
    Post = "post", "waking a thread of another processor that is awake";
    Wake = "wake", "waking a processor that sleeps: the waker's part";
    Latency = "latency", "the same: until the sleeper runs";
    Look = "look", "how long a processor with nothing to do looks about before it sleeps";
    Tick = "tick", "a tick of the clock";
    Send = "send", "what kill does beside its locks";
    Suspend = "suspend", "what sigsuspend does beside its locks";
    Deliver = "deliver", "setting a handler up, running an empty one, and what comes after it";
    Fork = "fork", "what fork does beside its locks, and the child's first steps";
    Exit = "exit", "what exit does beside its locks";
    Reap = "reap", "what wait does with a child that has ended, beside its locks";
    Exec = "exec", "what exec does beside its locks";
    Bytes = "bytes", "a read or write of a pipe or terminal beside its locks";
}

/// The cost of each kind of step on a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CostModel([u64; CostKind::ALL.len()]);

impl CostModel {
    /// The model in which no step takes time.
    pub const NONE: Self = Self([0; CostKind::ALL.len()]);

    /// Returns the costs of a virtual machine with two AMD EPYC processors (Zen 5), which
    /// [`CostModel::measure`] measured.
    ///
    /// # Panics
    ///
    /// Never: a test reads the file.
    #[must_use]
    pub fn published() -> Self {
        include_str!("costs/zen5.txt").parse().expect("a test reads it")
    }

    /// Returns the cost of a step in nanoseconds.
    #[must_use]
    pub fn ns(&self, step: CostKind) -> f64 {
        self.0[step as usize] as f64 / PS_A_NS as f64
    }

    /// Returns the model with another cost of a step, in nanoseconds; a negative cost becomes 0.
    #[must_use]
    pub fn with(mut self, step: CostKind, ns: f64) -> Self {
        self.0[step as usize] = (ns * PS_A_NS as f64).round().max(0.0) as u64;
        self
    }

    /// Picoseconds of a step.
    #[inline]
    pub(crate) fn ps(&self, step: CostKind) -> u64 {
        self.0[step as usize]
    }
}
