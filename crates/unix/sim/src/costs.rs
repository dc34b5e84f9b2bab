//! Costs of the steps of the virtual Unix on a machine: [`CostModel`], with one figure per
//! [`CostKind`].
//!
//! The modelled executor charges these costs to the clocks of its processors, as
//! docs/reference/model.md describes. A cost file is text with one line per step: name,
//! nanoseconds, description. [`CostModel::measure`] measures the machine that it runs on. The
//! library includes one cost file: [`CostModel::published`].

mod text;

pub use text::ParseCostsError;

/// Number of times that an idle processor polls before it sleeps: about 25 µs in total. This is
/// longer than a woken sleeper takes to run; otherwise two processors that wait for each other's
/// answers would both sleep each time.
pub(crate) const LOOKS: u32 = 1024;

/// Picoseconds per nanosecond. Costs are stored in picoseconds so that the tenths of a nanosecond
/// in the cost of a lock are not lost.
pub(crate) const PS_A_NS: u64 = 1000;

macro_rules! steps {
    ($($step:ident = $name:literal, $what:literal;)+) => {
        /// A kind of step that takes processor time.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum CostKind {
            $(#[doc = $what] $step),+
        }

        impl CostKind {
            /// All kinds, in the order of a cost file.
            pub const ALL: [Self; [$(CostKind::$step),+].len()] = [$(Self::$step),+];

            /// Returns the name that a cost file uses.
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
    Call = "call", "Entry and exit of a system call";
    Lock = "lock", "Acquisition and release of a lock in this processor's cache";
    Transfer = "transfer", "Transfer of a cache line that another processor wrote last";
    Guarded = "guarded", "Transfer of what a lock guards from its last processor";
    Spin = "spin", "One spin on a blocking lock";
    Switch = "switch", "Switch from one virtual thread to another";
    Unpark = "unpark", "Wake-up of a thread of the same processor";
    Post = "post", "Wake-up of a thread of another processor, which is awake";
    Wake = "wake", "Wake-up of a sleeping processor: cost for the waker";
    Latency = "latency", "Wake-up of a sleeping processor: delay until it runs";
    Look = "look", "Time for which an idle processor polls before it sleeps";
    Tick = "tick", "A tick of the clock";
    Send = "send", "`kill` without its locks";
    Suspend = "suspend", "`sigsuspend` without its locks";
    Deliver = "deliver", "Setup of a handler, an empty handler, and its return";
    Fork = "fork", "`fork` without its locks, and the child's first steps";
    Exit = "exit", "`exit` without its locks";
    Reap = "reap", "`wait` for an exited child, without its locks";
    Exec = "exec", "`exec` without its locks";
    Bytes = "bytes", "A read or write of a pipe or terminal, without its locks";
}

/// The cost of each kind of step on one machine.
///
/// ```
/// use tontine_unix_sim::{CostKind, CostModel};
///
/// let costs = CostModel::published().with(CostKind::Fork, 500.0);
/// assert_eq!(costs.ns(CostKind::Fork), 500.0);
/// assert_eq!(costs.to_string().parse(), Ok(costs));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CostModel([u64; CostKind::ALL.len()]);

impl CostModel {
    /// The model in which no step takes time.
    pub const NONE: Self = Self([0; CostKind::ALL.len()]);

    /// Returns the costs of a virtual machine with two AMD EPYC processors (Zen 5), as measured by
    /// [`CostModel::measure`].
    ///
    /// # Panics
    ///
    /// Never panics, because a test ensures that the embedded file parses.
    #[must_use]
    pub fn published() -> Self {
        include_str!("costs/zen5.txt").parse().expect("a test reads it")
    }

    /// Returns the cost of a step in nanoseconds.
    #[must_use]
    pub fn ns(&self, step: CostKind) -> f64 {
        self.0[step as usize] as f64 / PS_A_NS as f64
    }

    /// Returns the model with the cost of one step replaced, in nanoseconds; a negative cost
    /// becomes 0.
    #[must_use]
    pub fn with(mut self, step: CostKind, ns: f64) -> Self {
        self.0[step as usize] = (ns * PS_A_NS as f64).round().max(0.0) as u64;
        self
    }

    /// Returns the cost of a step in picoseconds.
    #[inline]
    pub(crate) fn ps(&self, step: CostKind) -> u64 {
        self.0[step as usize]
    }
}
