//! The observer of a comparison's second stage: [`CompareListener`].

use crate::task::InvocationTask;

/// An observer of the second stage. All methods have a default that ignores the event.
pub trait CompareListener {
    /// Reports the start. At least `pairs` pairs will be made, in about `seconds` if the files
    /// contain times.
    fn began(&mut self, _rows: usize, _pairs: usize, _seconds: Option<f64>) {}
    /// Reports that a row's task has made its first pairs and needs `more`.
    fn needs(&mut self, _task: &InvocationTask, _more: usize) {}
    /// Reports the end of a pair of `task`. If the pair failed, `why` is the reason.
    fn paired(&mut self, _task: &InvocationTask, _why: Option<&str>) {}
    /// Reports the end.
    fn ended(&mut self) {}
}
