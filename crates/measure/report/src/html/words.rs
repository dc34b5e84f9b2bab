//! Parameters in words: [`params`], as in "between two cores, 64 bytes per message".
//!
//! The other formats print names and values, as [`tontine_bench::format::params`] returns them. A
//! parameter or a value that the table does not know is printed in that form here, too.

use tontine_bench::format;
use tontine_bench::task::Params;

/// Returns parameters in words; an empty string if there are none.
pub(super) fn params(params: &Params) -> String {
    params.iter().map(|(name, value)| param(name, value)).collect::<Vec<_>>().join(", ")
}

fn param(name: &str, value: &str) -> String {
    if let Some((_, _, words)) = FIXED.iter().find(|(of, is, _)| *of == name && *is == value) {
        return (*words).into();
    }
    let number: Option<f64> = value.parse().ok().filter(|number: &f64| number.is_finite());
    let count = |one: &str, several: &str| match number {
        Some(1.0) => format!("1 {one}"),
        Some(number) => format!("{} {several}", format::tick("", number)),
        None => format!("{name} {value}"),
    };
    match name {
        "size" => count("byte per message", "bytes per message"),
        "senders" => count("sender", "senders"),
        "idle" => count("idle sender", "idle senders"),
        "pairs" => count("pair of processes", "pairs of processes"),
        "processes" => count("process", "processes"),
        "threads" => count("thread", "threads"),
        "builds" => count("build", "builds at once"),
        "sessions" => count("session", "sessions at once"),
        "blocks" => count("block", "blocks"),
        "pair" => match value.split_once('-') {
            Some((one, other)) => format!("between processors {one} and {other}"),
            None => format!("{name} {value}"),
        },
        "increments" => count("increment", "increments"),
        "distance" => count("byte apart", "bytes apart"),
        "pause_us" => number.map_or_else(
            || format!("{name} {value}"),
            |us| format!("after {} without a message", format::tick("ns", us * 1e3)),
        ),
        "spin_us" => number.map_or_else(
            || format!("{name} {value}"),
            |us| format!("polls for {}", format::tick("ns", us * 1e3)),
        ),
        "modelled" => format!("in a model of {value}"),
        "beside" => format!("next to {value}"),
        "computing" => format!("computing cut to {value}"),
        "costs" => format!("with the costs in {value}"),
        "parent" => format!("the parent holds {value}"),
        "window" => format!("{value} before the wait"),
        "signal" => value.into(),
        "lock" | "benchmark" => format!("{name} {value}"),
        "from" => format!("re-entered from {value}"),
        "main" => format!("main thread {value}"),
        "others" => format!("other threads {value}"),
        _ => format!("{name} {value}"),
    }
}

/// Parameters with fixed values: name, value, words.
const FIXED: [(&str, &str, &str); 23] = [
    ("placement", "cross-core", "between two cores"),
    ("placement", "same-core", "on one core"),
    ("placement", "siblings", "on two hardware threads of one core"),
    ("placement", "cross-cache", "between two cores that share no cache"),
    ("placement", "cross-socket", "between two sockets"),
    ("placement", "spread", "spread over all cores"),
    ("placement", "unpinned", "placed by the kernel"),
    ("placement", "off-master", "on one core, not the master"),
    ("placement", "apart", "each pair on a core of its own"),
    ("pacing", "hot", "back to back"),
    ("cause", "SIGKILL", "killed by SIGKILL"),
    ("cause", "exit", "after exit"),
    ("waiting", "blocked", "the waiter sleeps"),
    ("waiting", "spinning", "the waiter spins"),
    ("sending", "acknowledged", "sent one by one"),
    ("sending", "burst", "sent in bursts"),
    ("traffic", "one by one", "one message at a time"),
    ("traffic", "stream", "as a stream"),
    ("window", "as it is", "no added gap before the wait"),
    ("from", "two threads", "called by two threads"),
    ("main", "unblocked", "the main thread accepts signals"),
    ("others", "asleep", "the other threads sleep"),
    ("others", "one running", "one other thread runs"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(&str, &str)]) -> String {
        params(&pairs.iter().map(|&(name, value)| (name.into(), value.into())).collect())
    }

    #[test]
    fn known_parameters_are_words_and_others_name_and_value() {
        assert_eq!(of(&[]), "");
        let hot = [("pacing", "hot"), ("placement", "cross-core")];
        assert_eq!(of(&hot), "back to back, between two cores");
        assert_eq!(
            of(&[("size", "1048576"), ("senders", "1")]),
            "1 sender, 1,048,576 bytes per message"
        );
        assert_eq!(of(&[("pause_us", "10000")]), "after 10 ms without a message");
        assert_eq!(of(&[("spin_us", "5")]), "polls for 5 µs");
        assert_eq!(of(&[("modelled", "10 processors")]), "in a model of 10 processors");
        assert_eq!(of(&[("weather", "rain"), ("size", "big")]), "size big, weather rain");
    }
}
