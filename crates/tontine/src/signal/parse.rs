//! Parsing of a signal's name or number.

use std::str::FromStr;

use super::error::SignalError;
use super::number::{NAMES, Signal};

/// Parses a name, with or without `SIG`, in upper or lower case (`TERM`, `sigusr1`, `SIGRTMIN+3`),
/// or a number from 1 to 64.
impl FromStr for Signal {
    type Err = SignalError;

    fn from_str(text: &str) -> Result<Self, SignalError> {
        let upper = text.to_ascii_uppercase();
        let name = upper.strip_prefix("SIG").unwrap_or(&upper);
        let named = || NAMES.iter().find(|(_, known)| *known == name).map(|&(signal, _)| signal);
        let realtime = || match name.strip_prefix("RTMIN")? {
            "" => Self::realtime(0),
            above => Self::realtime(above.strip_prefix('+')?.parse().ok()?),
        };
        let number = || Self::from_raw(name.parse().ok()?);
        named().or_else(realtime).or_else(number).ok_or(SignalError::Malformed {
            reason: "expected a name such as SIGTERM or SIGRTMIN+3, or a number from 1 to 64",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::number::MAX_SIGNAL;
    use super::*;

    #[test]
    fn signal_name_parses_to_its_number() {
        for number in 1..=MAX_SIGNAL {
            let signal = Signal::from_raw(number).expect("there is one");
            assert_eq!(signal.as_raw(), number);
            if !signal.is_reserved_by_libc() {
                assert_eq!(signal.to_string().parse(), Ok(signal), "{signal}");
            }
        }
        assert_eq!(Signal::from_raw(0), None);
        assert_eq!(Signal::from_raw(65), None);
        assert_eq!("SIGRTMIN+99".parse::<Signal>().expect_err("no such").errno(), libc::EBADMSG);
    }
}
