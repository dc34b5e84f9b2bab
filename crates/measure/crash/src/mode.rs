//! Selection of the points at which to kill: [`KillMode`].

use serde::{Deserialize, Serialize};

/// Selection of the points at which to kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KillMode {
    /// A point per class.
    #[default]
    Fast,
    /// A point per class, then for each the successor at one point of each of its classes.
    Pairs,
    /// Every point.
    Full,
}

impl KillMode {
    pub fn name(self) -> &'static str {
        match self {
            Self::Fast => "fast",
            Self::Pairs => "pairs",
            Self::Full => "full",
        }
    }
}
