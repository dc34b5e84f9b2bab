//! Tests of errors in a scenario's text, with the line, the column and the nearest known word.

use tontine_unix_lab::scenario::Scenario;

/// Returns the text of the error: `LINE:COLUMN: MESSAGE`, the source line, and the caret.
fn error(text: &str) -> String {
    text.parse::<Scenario>().expect_err("refused").to_string()
}

/// Returns the message about one statement, the second line of a scenario.
fn about(statement: &str) -> String {
    let text = format!("process a\n  {statement}\n\nprocess worker\n  n = 0\n\nthread helper\n");
    error(&text).lines().next().unwrap_or_default().to_owned()
}

#[test]
fn unknown_word_error_suggests_nearest_word() {
    assert_eq!(about("frok worker"), "2:3: unknown word `frok`; did you mean `fork`?");
    assert_eq!(about("nete \"x\""), "2:3: unknown word `nete`; did you mean `note`?");
    assert_eq!(
        about("wait stoped"),
        "2:8: neither a variable nor an option: `stoped`; did you mean `stopped`?"
    );
    assert_eq!(about("raise USR3"), "2:9: unknown signal `USR3`; did you mean `USR1`?");
    assert_eq!(about("wait -> ECHLD"), "2:11: unknown error `ECHLD`; did you mean `ECHILD`?");
    assert_eq!(
        about("on USR1 restrat: n = 1"),
        "2:11: unknown flag `restrat`; did you mean `restart`?"
    );
    assert_eq!(
        about("wait -> exitd 3"),
        "2:11: neither a variable nor a result: `exitd`; did you mean `exited`?"
    );
    assert_eq!(about("tcsetattr n +tostp"), "2:16: unknown mode `tostp`; did you mean `tostop`?");
    assert_eq!(
        about("getrlimit procesess"),
        "2:13: unknown resource `procesess`; did you mean `processes`?"
    );
}

#[test]
fn unknown_word_without_near_match_has_no_suggestion() {
    assert_eq!(about("xyzzy"), "2:3: unknown word `xyzzy`");
}

#[test]
fn undefined_name_error_points_to_name() {
    assert_eq!(about("fork wroker"), "2:8: unknown process `wroker`; did you mean `worker`?");
    assert_eq!(about("thread worker"), "2:10: unknown thread `worker`");
    assert_eq!(about("kill m TERM"), "2:8: no statement sets a variable `m`; did you mean `n`?");
    assert_eq!(
        about("note \"is {m}\""),
        "2:8: no statement sets a variable `m`; did you mean `n`?"
    );
    let text = "process a\n\nexpect b exited 0\n";
    assert!(error(text).starts_with("3:8: unknown process `b`; did you mean `a`?"));
}

#[test]
fn handler_accepts_only_permitted_statements() {
    assert!(
        about("on USR1: fork worker").starts_with("2:12: a handler cannot call `fork`: it may")
    );
    assert_eq!(about("on USR1: on USR2"), "2:12: a handler cannot install a handler");
    assert_eq!(about("exit sender"), "2:8: `sender` is available only in handlers");
}

#[test]
fn error_caret_points_to_word() {
    assert_eq!(
        error("process a\n  x = wait nohagn\n"),
        "2:12: neither a variable nor an option: `nohagn`; did you mean `nohang`?\n  \
         |   x = wait nohagn\n  |            ^^^^^^"
    );
    assert_eq!(
        error("process a\n  kill self\n"),
        "2:12: expected a signal: USR1, RTMIN+2; found the end of the line\n  \
         |   kill self\n  |            ^"
    );
}

#[test]
fn scenario_layout_errors_are_reported() {
    assert!(error("process a\n  exit 0\n   exit 1\n").starts_with("3:4: expected 2 spaces"));
    assert!(error("process a\n\texit 0\n").starts_with("2:1: found a tab; use spaces"));
    assert!(error("  process a\n").starts_with("1:3: expected no indentation here"));
    assert!(error("process a\nexit 0\n").starts_with("2:1: expected `process`, `thread` or"));
    assert!(error("process a\nprocess a\n").starts_with("2:9: `a` is defined above"));
    assert!(error("").starts_with("1:1: expected at least one process"));
    let mut deep = String::from("process a\n");
    for depth in 1..30 {
        deep.push_str(&format!("{:1$}repeat 2\n", "", depth));
    }
    assert!(error(&deep).contains("blocks are nested more than 16 deep"), "{}", error(&deep));
}

#[test]
fn common_beginner_mistakes_have_specific_errors() {
    let stands = "starts a line: expected no indentation here";
    assert_eq!(about("expect a exited 0"), format!("2:3: `expect` {stands}"));
    assert_eq!(about("process b"), format!("2:3: `process` {stands}"));
    let name = error("process Main\n");
    assert!(name.starts_with("1:9: expected the name of a process, in lower case; found `M"));
    let whole = "expected a whole number of a smaller unit: 1500ms, not 1.5s";
    assert_eq!(about("sleep 1.5s"), format!("2:9: {whole}"));
    let spaces = "expected the end of the line, or spaces around `-`; found `-1`";
    assert_eq!(about("x = self -1"), format!("2:12: {spaces}"));
    assert_eq!(about("check 0 == n-1"), "2:14: no statement sets `n-1`; put spaces around `-`");
    assert!(about("kill worker TERM").starts_with("2:8: `worker` is a process of the text, not a"));
    assert!("process a: exit 3\nexpect a exited 3\n".parse::<Scenario>().is_ok());
    assert!("\u{feff}process a\n".parse::<Scenario>().is_ok());
    assert_eq!(error("# nothing\n"), "1:1: expected at least one process");
}

#[test]
fn error_excerpt_is_short_and_escaped_for_any_line() {
    let shown = error("process a\n  note \"\x1b[2J\" x\n");
    assert!(shown.ends_with("\n  |   note \"\\x1b[2J\" x\n  |                  ^"), "{shown}");
    let zero = error("process a\n  exit \u{200b}1\n");
    assert!(zero.starts_with("2:8: unexpected character U+200B"), "{zero}");
    for text in ["x".repeat(1 << 21), format!("note \"{}\" x", "y".repeat(1 << 20))] {
        let shown = error(&format!("process a\n  {text}\n"));
        assert!(shown.len() < 2000, "{} bytes", shown.len());
        let lines: Vec<&str> = shown.lines().collect();
        let caret = lines[2].chars().position(|c| c == '^');
        assert_eq!(caret.and_then(|at| lines[1].chars().nth(at)), Some('x'), "{shown}");
    }
}

#[test]
fn invalid_numbers_durations_and_texts_are_refused() {
    assert_eq!(about("alarm 4294967296"), "2:9: 4294967296 exceeds 32 bits");
    assert_eq!(about("sleep 10"), "2:9: expected a duration: 10ms, 2s, 500us; found `10`");
    assert_eq!(about("sleep 10m"), "2:9: expected a number or a duration: 10ms, 2s, 500us");
    assert_eq!(about("note \"x"), "2:8: the text has no closing `\"`");
    assert_eq!(about(r#"note "\xff""#), r"2:9: expected \x00 to \x7f");
    assert_eq!(about("note \"a } b\""), "2:8: `}` without `{`; write `}}` for a brace");
    assert_eq!(about("wait = 3"), "2:3: `wait` is a keyword; choose another name for the variable");
}

#[test]
fn impossible_exit_status_is_refused() {
    let refused = |at: &str, found: i32, expected: i32| {
        format!(
            "{at}: expected an exit status from 0 to 255; found {found}, of which a parent \
             receives {expected}: write that"
        )
    };
    assert_eq!(about("exit 256"), refused("2:8", 256, 0));
    assert_eq!(about("exit -1"), refused("2:8", -1, 255));
    assert_eq!(about("wait -> exited 3 or exited -1"), refused("2:30", -1, 255));
    assert_eq!(about("wait -> n exited 300"), refused("2:20", 300, 44));
    let whole = error("process a\n\nexpect a exited 256\n");
    assert_eq!(
        whole,
        refused("3:17", 256, 0) + "\n  | expect a exited 256\n  |                 ^^^"
    );
    let text = "process a\n  n = 256\n  exit n\n\nexpect a exited 0\n";
    assert!(text.parse::<Scenario>().is_ok(), "the value of a variable is known only at run time");
    assert!("process a: exit 255\nexpect a exited 255\n".parse::<Scenario>().is_ok());
}

#[test]
fn negative_repeat_count_is_refused() {
    let never = "expected a count of at least 0; found -3: write 0, or remove what is never done";
    assert_eq!(about("repeat -3: n = 1"), format!("2:10: {never}"));
    assert!("process a\n  repeat 0: exit 1\n".parse::<Scenario>().is_ok());
}

/// Checks that the documentation of the language contains each of its words.
#[test]
fn every_word_of_language_is_documented() {
    use tontine_unix_lab::scenario::{
        ActionKind, BuiltinValue, CallName, LimitedResource, Relation, SignalCause, SignalField,
        StatusPattern,
    };

    let document = include_str!("../../../../../docs/reference/scenarios.md");
    let quoted: Vec<&str> = document.split('`').skip(1).step_by(2).collect();
    let families = [
        SignalCause::WORDS,
        ActionKind::WORDS,
        SignalField::WORDS,
        LimitedResource::WORDS,
        BuiltinValue::WORDS,
    ];
    let more = [Relation::WORDS, StatusPattern::WORDS];
    let words = families.into_iter().chain(more).flatten().copied().chain(CallName::words());
    for word in words {
        let is_there = quoted.iter().any(|text| text.split([' ', '[', ']']).any(|w| w == word));
        assert!(is_there, "docs/reference/scenarios.md lacks `{word}`");
    }
    let example = document.split("```").nth(1).expect("an example");
    assert!(example.parse::<Scenario>().is_ok(), "{example}");
}
