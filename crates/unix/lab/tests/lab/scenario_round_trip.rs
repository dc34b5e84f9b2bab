//! A printed scenario parses to the same scenario.

use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use tontine_unix::{ActionFlags, Errno, Modes, SigSet, Signal, SpawnGroup, WaitOptions};
use tontine_unix_lab::scenario::{
    ActionKind, Argument, ArgumentKind, BlockKind, Bounds, BuiltinValue, CallName, CallStatement,
    Condition, Count, ExecTarget, Expectation, Expected, Expression, HandlerStatement,
    LimitedResource, NotePart, Pattern, Relation, RunExpectation, Scenario, ScenarioBlock,
    SignalCause, SignalField, SourceLine, Spawning, Statement, StatementKind, StatusPattern,
    SystemCall, TakenPattern, TargetKind, Term, TraceRequest,
};

const VARIABLES: &[&str] = &["a", "child-2", "got_it"];
const PROCESSES: &[&str] = &["main", "parent", "worker-1"];
const ERRORS: &[Errno] = &[Errno::ESRCH, Errno::E2BIG, Errno::EINTR, Errno::ECHILD, Errno::EPERM];

fn variable() -> impl Strategy<Value = String> {
    select(VARIABLES).prop_map(str::to_owned)
}

fn process() -> impl Strategy<Value = String> {
    select(PROCESSES).prop_map(str::to_owned)
}

fn signal() -> impl Strategy<Value = Signal> + Clone {
    select(Signal::all().collect::<Vec<_>>())
}

fn set() -> impl Strategy<Value = SigSet> {
    let some = subsequence(Signal::all().collect::<Vec<_>>(), 0..6);
    prop_oneof![Just(SigSet::ALL), some.prop_map(|signals| signals.into_iter().collect())]
}

fn number() -> impl Strategy<Value = i32> {
    prop_oneof![-3..9i32, any::<i32>()]
}

/// Generates a status with which a process can exit.
fn exit_status() -> impl Strategy<Value = i32> {
    0..=255i32
}

/// Generates a value; a numeric value comes from `number`.
fn term_of(number: impl Strategy<Value = i32> + 'static, handler: bool) -> BoxedStrategy<Term> {
    let others = term(handler).prop_filter("not a number", |term| !matches!(term, Term::Number(_)));
    prop_oneof![number.prop_map(Term::Number), others].boxed()
}

/// Generates a value; in a handler, also a field of its signal.
fn term(handler: bool) -> BoxedStrategy<Term> {
    let plain = prop_oneof![
        number().prop_map(Term::Number),
        variable().prop_map(Term::Variable),
        select(BuiltinValue::ALL).prop_map(Term::Own),
    ];
    if handler {
        prop_oneof![3 => plain, 1 => select(SignalField::ALL).prop_map(Term::Info)].boxed()
    } else {
        plain.boxed()
    }
}

fn expression(handler: bool) -> impl Strategy<Value = Expression> {
    let pair = (term(handler), term(handler));
    prop_oneof![
        term(handler).prop_map(Expression::Term),
        pair.clone().prop_map(|(left, right)| Expression::Sum(left, right)),
        pair.prop_map(|(left, right)| Expression::Difference(left, right)),
    ]
}

fn condition(handler: bool) -> impl Strategy<Value = Condition> {
    (expression(handler), select(Relation::ALL), expression(handler))
        .prop_map(|(left, relation, right)| Condition { left, relation, right })
}

/// Generates any characters, including those that need a backslash.
fn text() -> impl Strategy<Value = String> {
    "([ a-z{}\"\\\\\n\t\r\u{3}\u{1c}\u{7f}#;é]|->){0,9}"
}

fn duration() -> impl Strategy<Value = Duration> {
    (0..5000u64, select(vec![1u64, 1_000, 1_000_000, 1_000_000_000]))
        .prop_map(|(n, unit)| Duration::from_nanos(n * unit))
}

fn modes() -> impl Strategy<Value = Modes> {
    (0..=Modes::all().bits()).prop_map(Modes::from_bits_truncate)
}

fn wait_options() -> impl Strategy<Value = WaitOptions> {
    (0..=WaitOptions::all().bits()).prop_map(WaitOptions::from_bits_truncate)
}

fn action_flags() -> impl Strategy<Value = ActionFlags> {
    (0..=ActionFlags::all().bits()).prop_map(ActionFlags::from_bits_truncate)
}

fn bounds() -> impl Strategy<Value = Bounds> {
    any::<(Option<u32>, Option<u32>)>().prop_map(|(soft, hard)| Bounds { soft, hard })
}

fn spawning(h: bool) -> impl Strategy<Value = Argument> {
    let group = prop_oneof![
        Just(SpawnGroup::Parents),
        Just(SpawnGroup::Own),
        term(h).prop_map(SpawnGroup::Of),
    ];
    let descriptors = proptest::collection::vec((term(h), term(h)), 0..3);
    let mask = proptest::option::of(set());
    (group, any::<bool>(), mask, set(), descriptors).prop_map(
        |(group, session, mask, defaults, descriptors)| {
            Argument::Spawning(Spawning { group, session, mask, defaults, descriptors })
        },
    )
}

/// Generates a target: one of `bare` without a value, or one of `valued` with a value.
fn target(
    bare: &'static [TargetKind],
    valued: &'static [TargetKind],
    h: bool,
) -> BoxedStrategy<Argument> {
    let with_value = (select(valued), term(h)).prop_map(|(kind, term)| (kind, Some(term)));
    let all = match bare {
        [] => with_value.boxed(),
        bare => prop_oneof![select(bare).prop_map(|kind| (kind, None)), with_value].boxed(),
    };
    all.prop_map(|(kind, value)| Argument::Target(kind, value)).boxed()
}

fn argument(kind: ArgumentKind, h: bool) -> BoxedStrategy<Argument> {
    use TargetKind::{Any, Everyone, Group, One, OwnGroup, Process, User};
    let maybe_signal = proptest::option::of(signal());
    match kind {
        ArgumentKind::Value => term(h).prop_map(Argument::Value).boxed(),
        ArgumentKind::Status => term_of(exit_status(), h).prop_map(Argument::Value).boxed(),
        ArgumentKind::MaybeValue => {
            proptest::option::of(term(h)).prop_map(Argument::MaybeValue).boxed()
        }
        ArgumentKind::AnyOrValue => {
            proptest::option::of(term(h)).prop_map(Argument::AnyOrValue).boxed()
        }
        ArgumentKind::Set => set().prop_map(Argument::Set).boxed(),
        ArgumentKind::Signal => signal().prop_map(Argument::Signal).boxed(),
        ArgumentKind::MaybeSignal => maybe_signal.prop_map(Argument::MaybeSignal).boxed(),
        ArgumentKind::Flags => action_flags().prop_map(Argument::Flags).boxed(),
        ArgumentKind::Options => wait_options().prop_map(Argument::Options).boxed(),
        ArgumentKind::Children => target(&[Any, OwnGroup], &[One, Group], h),
        ArgumentKind::Receivers => target(&[Everyone, OwnGroup], &[One, Group], h),
        ArgumentKind::Owner => target(&[], &[Process, Group, User], h),
        ArgumentKind::Process => process().prop_map(Argument::Block).boxed(),
        ArgumentKind::Thread => Just(Argument::Block("helper".into())).boxed(),
        ArgumentKind::Path => {
            prop_oneof![process().prop_map(ExecTarget::Process), text().prop_map(ExecTarget::Other)]
                .prop_map(Argument::Path)
                .boxed()
        }
        ArgumentKind::Spawning => spawning(h).boxed(),
        ArgumentKind::Duration => duration().prop_map(Argument::Duration).boxed(),
        ArgumentKind::Variable => variable().prop_map(Argument::Variable).boxed(),
        ArgumentKind::Text => text().prop_map(Argument::Text).boxed(),
        ArgumentKind::ModeChanges => {
            (modes(), modes()).prop_map(|(on, off)| Argument::ModeChanges(on, off)).boxed()
        }
        ArgumentKind::Resource => select(LimitedResource::ALL).prop_map(Argument::Resource).boxed(),
        ArgumentKind::Bounds => bounds().prop_map(Argument::Bounds).boxed(),
        ArgumentKind::Request => (select(TraceRequest::ALL), term(h), maybe_signal)
            .prop_map(|(request, who, signal)| {
                let who = (request != TraceRequest::TraceMe).then_some(who);
                let takes = matches!(request, TraceRequest::Continue | TraceRequest::Detach);
                Argument::Request(request, who, signal.filter(|_| takes))
            })
            .boxed(),
    }
}

/// Generates any call; in a handler, a call that a handler may make.
fn call(h: bool) -> impl Strategy<Value = SystemCall> {
    let names = CallName::ALL.iter().filter(|name| !h || name.is_for_handlers());
    select(names.copied().collect::<Vec<_>>()).prop_flat_map(move |name| {
        let arguments: Vec<_> = name.kinds().iter().map(|kind| argument(*kind, h)).collect();
        arguments.prop_map(move |arguments| SystemCall { name, arguments })
    })
}

fn status() -> impl Strategy<Value = StatusPattern> {
    prop_oneof![
        proptest::option::of(exit_status()).prop_map(StatusPattern::Exited),
        (signal(), any::<bool>()).prop_map(|(signal, core)| StatusPattern::Killed(signal, core)),
        signal().prop_map(StatusPattern::Stopped),
        signal().prop_map(StatusPattern::Trapped),
        Just(StatusPattern::Continued),
    ]
}

fn expected(h: bool) -> impl Strategy<Value = Expected> {
    let optional = || proptest::option::of(term(h));
    let taken = (signal(), optional(), optional(), proptest::option::of(select(SignalCause::ALL)));
    let taken = taken.prop_map(|(signal, from, value, code)| {
        Pattern::Taken(TakenPattern { signal, from, value, code })
    });
    let pattern = prop_oneof![
        Just(Pattern::Anything),
        Just(Pattern::Ok),
        Just(Pattern::Nothing),
        select(ERRORS).prop_map(Pattern::Errno),
        term(h).prop_map(Pattern::Value),
        text().prop_map(Pattern::Text),
        set().prop_map(Pattern::Set),
        (optional(), status()).prop_map(|(who, status)| Pattern::Status(who, status)),
        taken,
        select(ActionKind::ALL).prop_map(Pattern::Done),
        bounds().prop_map(Pattern::Limit),
        modes().prop_map(Pattern::Modes),
    ];
    proptest::collection::vec(pattern, 1..4).prop_map(Expected)
}

/// Generates the parts of a note: no empty text, and no two adjacent texts.
fn parts(h: bool) -> impl Strategy<Value = Vec<NotePart>> {
    proptest::collection::vec((text(), proptest::option::of(term(h))), 0..3).prop_map(|pairs| {
        let mut parts = Vec::new();
        for (text, value) in pairs {
            if !text.is_empty() && !matches!(parts.last(), Some(NotePart::Text(_))) {
                parts.push(NotePart::Text(text));
            }
            parts.extend(value.map(NotePart::Value));
        }
        parts
    })
}

fn statement(kind: StatementKind) -> Statement {
    Statement { source: SourceLine::default(), kind }
}

fn call_step(h: bool) -> impl Strategy<Value = StatementKind> {
    (proptest::option::of(variable()), call(h), proptest::option::of(expected(h))).prop_map(
        |(into, call, expected)| StatementKind::Call(CallStatement { into, call, expected }),
    )
}

fn body(h: bool, depth: u32) -> BoxedStrategy<Vec<Statement>> {
    let simple = prop_oneof![
        4 => call_step(h),
        1 => parts(h).prop_map(StatementKind::Note),
        1 => (variable(), expression(h)).prop_map(|(name, value)| StatementKind::Set(name, value)),
        1 => condition(h).prop_map(StatementKind::Check),
    ];
    let step = if depth == 0 {
        simple.boxed()
    } else {
        let inner = body(h, depth - 1);
        let nested = prop_oneof![
            (term_of(0..=i32::MAX, h), inner.clone())
                .prop_map(|(times, body)| StatementKind::Repeat(times, body)),
            (condition(h), inner)
                .prop_map(|(condition, body)| StatementKind::While(condition, body)),
        ];
        if h {
            prop_oneof![4 => simple, 1 => nested].boxed()
        } else {
            prop_oneof![5 => simple, 1 => nested, 1 => handler(depth - 1)].boxed()
        }
    };
    proptest::collection::vec(step.prop_map(statement), 0..4).boxed()
}

fn handler(depth: u32) -> impl Strategy<Value = StatementKind> {
    let optional = proptest::option::of(expected(false));
    (any::<bool>(), signal(), action_flags(), set(), optional, body(true, depth)).prop_map(
        |(bsd, signal, flags, mask, expected, body)| {
            StatementKind::Handler(HandlerStatement { bsd, signal, flags, mask, expected, body })
        },
    )
}

fn count() -> impl Strategy<Value = Count> {
    (0..4u32, 0..4u32).prop_map(|(least, more)| Count { min: least, max: least + more })
}

fn expectation() -> impl Strategy<Value = Expectation> {
    let of = || proptest::option::of(process());
    let ways = proptest::collection::vec(status(), 1..3);
    let texts = proptest::collection::vec(text(), 0..3);
    let sequences = proptest::collection::vec(texts, 1..3);
    let what = prop_oneof![
        (proptest::option::of(count()), process(), ways)
            .prop_map(|(count, name, ways)| RunExpectation::Ended { count, name, ways }),
        (text(), of(), count()).prop_map(|(text, of, count)| RunExpectation::Note {
            text,
            of,
            count
        }),
        (of(), any::<bool>(), sequences)
            .prop_map(|(of, ordered, sequences)| RunExpectation::Notes { of, ordered, sequences }),
        (text(), text()).prop_map(|(first, then)| RunExpectation::Before(first, then)),
    ];
    what.prop_map(|what| Expectation { source: SourceLine::default(), what })
}

/// Generates a scenario: one process for each name, a thread, and all variables set somewhere.
fn scenario() -> impl Strategy<Value = Scenario> {
    let bodies = proptest::collection::vec(body(false, 2), PROCESSES.len() + 1);
    (bodies, proptest::collection::vec(expectation(), 0..4)).prop_map(|(bodies, expectations)| {
        let names = PROCESSES.iter().map(|name| (BlockKind::Process, *name));
        let names = names.chain([(BlockKind::Thread, "helper")]);
        let mut blocks: Vec<ScenarioBlock> = names
            .zip(bodies)
            .map(|((kind, name), body)| ScenarioBlock {
                source: SourceLine::default(),
                kind,
                name: name.to_owned(),
                body,
            })
            .collect();
        let zero = Expression::Term(Term::Number(0));
        let set = VARIABLES
            .iter()
            .map(|name| statement(StatementKind::Set((*name).into(), zero.clone())));
        blocks[0].body.splice(0..0, set);
        Scenario { blocks, expectations }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn printed_scenario_parses_to_same_scenario(scenario in scenario()) {
        let text = scenario.to_string();
        let read: Scenario = text.parse().map_err(|error| {
            TestCaseError::fail(format!("{error}\n{text}"))
        })?;
        prop_assert_eq!(&read, &scenario, "{}", text);
        prop_assert_eq!(read.to_string(), text);
    }

    #[test]
    fn any_text_parses_or_fails_with_valid_position(text in "([a-zA-Z0-9{}\":;=>. \n-]|\n  )*") {
        if let Err(error) = text.parse::<Scenario>() {
            prop_assert!(error.line <= text.lines().count().max(1));
            prop_assert!(error.column <= error.text.chars().count() + 1);
            prop_assert!(error.width >= 1);
        }
    }
}
