//! Which points to kill at: [`Mode`].

use serde::{Deserialize, Serialize};

/// Which points to kill at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// One point a class.
    #[default]
    Fast,
    /// One point a class, and then the successor at one point of each of its classes.
    Pairs,
    /// Every point.
    Full,
}

impl Mode {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fast => "fast",
            Self::Pairs => "pairs",
            Self::Full => "full",
        }
    }
}
