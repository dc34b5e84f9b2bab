//! Signal numbers and sets of signals.

use super::harness::*;

/// Numbers that are not valid signals.
const NONE: [i32; 10] = [i32::MIN, -1_073_743_192, -1, 0, 32, 33, 65, 66, 1_073_743_192, i32::MAX];

#[test]
fn invalid_signal_numbers_are_refused_before_any_call() {
    for number in NONE {
        assert_eq!(Signal::new(number), None, "{number}");
        let error = number.to_string().parse::<Signal>().unwrap_err();
        assert!(error.to_string().contains(&format!("unknown signal `{number}`")), "{error}");
    }
    for number in (1..=31).chain(34..=64) {
        let signal = Signal::new(number).expect("a valid signal number");
        assert_eq!(signal.number(), number);
        assert_eq!(number.to_string().parse(), Ok(signal));
    }
    let beyond = (Signal::RTMAX.number() - Signal::RTMIN.number() + 1) as u8;
    assert_eq!(Signal::realtime(beyond), None);
}

#[test]
fn signal_set_contains_signal_until_removed() {
    assert_eq!(SigSet::default(), SigSet::EMPTY);
    assert!(SigSet::EMPTY.is_empty());
    assert_eq!((SigSet::EMPTY.iter().count(), SigSet::ALL.iter().count()), (0, 62));
    for signal in Signal::all() {
        assert!(SigSet::ALL.contains(signal) && !SigSet::EMPTY.contains(signal), "{signal}");
        let one = SigSet::EMPTY.with(signal);
        assert!(one.contains(signal), "{signal}");
        assert!(!one.is_empty());
        assert_eq!(one.iter().collect::<Vec<_>>(), [signal], "contains no other signal");
        assert_eq!(one.with(signal), one, "adding twice equals adding once");
        assert_eq!(one.without(signal), SigSet::EMPTY);
        let rest = SigSet::ALL.without(signal);
        assert!(!rest.contains(signal), "{signal}");
        assert_eq!(rest.iter().count(), 61, "contains every other signal");
        assert_eq!(rest.without(signal), rest, "removing twice equals removing once");
    }
}
