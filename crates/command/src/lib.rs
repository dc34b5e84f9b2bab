//! Parts that the commands `tontine`, `tontine-measure` and `tontine-unix` share: a clean early end
//! ([`stop`]), and with the feature `arguments` the errors and exit statuses of a command
//! ([`CommandFailure`]), its output ([`print()`], [`fill`]), the rules for its help ([`help`]), and
//! the subcommands that print its manual pages and completions ([`Documentation`]).
//!
//! Floors, from the bottom up: `stop`; `line`; `help`.

#[cfg(feature = "arguments")]
pub mod help;
#[cfg(feature = "arguments")]
mod line;
pub mod stop;

#[cfg(feature = "arguments")]
pub use line::*;
