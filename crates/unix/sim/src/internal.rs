//! Items for `tontine-unix-lab` outside the public interface, without any promise of stability.

pub use crate::config::Conductor;
pub use crate::executor::{
    At, CLOCK, Chooser, Fiber, Footprint, Object, Reused, SignalStack, SwitchEvent, SwitchReason,
    context, current, enter_kernel, leave_kernel, park,
};
pub use crate::kernel::{call_of, is_wanted, waits_in_user_mode};
pub use crate::label::named_by;
pub use crate::split_mix::SplitMix;

/// Returns the name of the lock class with this rank.
pub fn lock_name(rank: u8) -> &'static str {
    crate::lock::lock_order::ORDER[usize::from(rank)].name
}
