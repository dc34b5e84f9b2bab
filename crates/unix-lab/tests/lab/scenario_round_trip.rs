//! A printed scenario parses to the same scenario.

use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use tontine_unix::{ActionFlags, Errno, Modes, SigSet, Signal, SpawnGroup, WaitOptions};
use tontine_unix_lab::scenario::{
    ActionKind, BlockKind, Bounds, BuiltinValue, CallStatement, Condition, Count, ExecTarget,
    Expectation, Expected, Expression, HandlerStatement, KillTarget, LimitedResource, NotePart,
    Pattern, PlainCall, PriorityTarget, Relation, RunExpectation, Scenario, ScenarioBlock, SetCall,
    SignalCall, SignalCause, SignalField, SimpleAction, SourceLine, Spawning, Statement,
    StatementKind, StatusPattern, SystemCall, TakenPattern, Term, Tracing, TwoValueCall, ValueCall,
    WaitCall, WaitTarget,
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

fn path() -> impl Strategy<Value = ExecTarget> {
    prop_oneof![process().prop_map(ExecTarget::Process), text().prop_map(ExecTarget::Other)]
}

fn spawning(h: bool) -> impl Strategy<Value = Spawning> {
    let group = prop_oneof![
        Just(SpawnGroup::Parents),
        Just(SpawnGroup::Own),
        term(h).prop_map(SpawnGroup::Of),
    ];
    let descriptors = proptest::collection::vec((term(h), term(h)), 0..3);
    let mask = proptest::option::of(set());
    (path(), group, any::<bool>(), mask, set(), descriptors).prop_map(
        |(path, group, session, mask, defaults, descriptors)| Spawning {
            path,
            group,
            session,
            mask,
            defaults,
            descriptors,
        },
    )
}

fn whom(h: bool) -> impl Strategy<Value = WaitTarget> {
    prop_oneof![
        Just(WaitTarget::Any),
        Just(WaitTarget::OwnGroup),
        term(h).prop_map(WaitTarget::One),
        term(h).prop_map(WaitTarget::Group),
    ]
}

fn aim(h: bool) -> impl Strategy<Value = KillTarget> {
    prop_oneof![
        Just(KillTarget::Everyone),
        Just(KillTarget::OwnGroup),
        term(h).prop_map(KillTarget::One),
        term(h).prop_map(KillTarget::Group),
    ]
}

fn owner(h: bool) -> impl Strategy<Value = PriorityTarget> {
    prop_oneof![
        term(h).prop_map(PriorityTarget::Process),
        term(h).prop_map(PriorityTarget::Group),
        term(h).prop_map(PriorityTarget::User),
    ]
}

fn tracing(h: bool) -> impl Strategy<Value = Tracing> {
    let with_signal = (term(h), proptest::option::of(signal()));
    prop_oneof![
        Just(Tracing::TraceMe),
        term(h).prop_map(Tracing::Attach),
        term(h).prop_map(Tracing::Kill),
        with_signal.clone().prop_map(|(who, signal)| Tracing::Continue(who, signal)),
        with_signal.prop_map(|(who, signal)| Tracing::Detach(who, signal)),
    ]
}

/// Generates any call; in a handler, a call that a handler may make.
fn call(h: bool) -> BoxedStrategy<SystemCall> {
    let maybe = proptest::option::of(signal());
    let wait =
        (select(WaitCall::ALL), whom(h), wait_options()).prop_map(|(call, whom, options)| {
            SystemCall::Wait(
                call,
                if call == WaitCall::Wait3 { WaitTarget::Any } else { whom },
                options,
            )
        });
    let signals = prop_oneof![
        (select(SetCall::ALL), set()).prop_map(|(call, set)| SystemCall::Set(call, set)),
        (select(SignalCall::ALL), signal())
            .prop_map(|(call, signal)| SystemCall::Signal(call, signal)),
        (select(SimpleAction::ALL), signal(), action_flags())
            .prop_map(|(a, b, c)| SystemCall::Action(a, b, c)),
        (aim(h), maybe.clone()).prop_map(|(aim, signal)| SystemCall::Kill(aim, signal)),
        (term(h), maybe.clone()).prop_map(|(group, signal)| SystemCall::Killpg(group, signal)),
        (term(h), term(h), maybe.clone()).prop_map(|(a, b, c)| SystemCall::Tgkill(a, b, c)),
        (term(h), maybe, term(h)).prop_map(|(a, b, c)| SystemCall::Sigqueue(a, b, c)),
        (set(), duration()).prop_map(|(set, timeout)| SystemCall::Sigtimedwait(set, timeout)),
        duration().prop_map(SystemCall::Sleep),
        duration().prop_map(SystemCall::Compute),
    ];
    let processes = prop_oneof![
        wait,
        select(PlainCall::ALL).prop_map(SystemCall::Plain),
        (select(ValueCall::ALL), term(h), term_of(exit_status(), h)).prop_map(
            |(call, value, status)| {
                SystemCall::Value(call, if call == ValueCall::Exit { status } else { value })
            }
        ),
        (select(TwoValueCall::ALL), term(h), term(h))
            .prop_map(|(a, b, c)| SystemCall::Values(a, b, c)),
        process().prop_map(SystemCall::Fork),
        Just(SystemCall::Thread("helper".into())),
        path().prop_map(SystemCall::Exec),
        spawning(h).prop_map(SystemCall::Spawn),
        tracing(h).prop_map(SystemCall::Ptrace),
    ];
    let descriptors = prop_oneof![
        (variable(), variable()).prop_map(|(a, b)| SystemCall::Pipe(a, b)),
        (variable(), variable()).prop_map(|(a, b)| SystemCall::Openpty(a, b)),
        (term(h), proptest::option::of(term(h))).prop_map(|(a, b)| SystemCall::Read(a, b)),
        (any::<bool>(), term(h), text()).prop_map(|(typed, descriptor, text)| {
            SystemCall::Write { typed, descriptor, text }
        }),
        (term(h), modes(), modes()).prop_map(|(terminal, on, off)| SystemCall::Tcsetattr {
            terminal,
            on,
            off
        }),
        select(LimitedResource::ALL).prop_map(SystemCall::Getrlimit),
        (select(LimitedResource::ALL), bounds()).prop_map(|(a, b)| SystemCall::Setrlimit(a, b)),
        owner(h).prop_map(SystemCall::Getpriority),
        (owner(h), term(h)).prop_map(|(a, b)| SystemCall::Setpriority(a, b)),
        proptest::option::of(term(h)).prop_map(SystemCall::Place),
        proptest::option::of(term(h)).prop_map(SystemCall::Sigstack),
    ];
    let all = prop_oneof![signals, processes, descriptors];
    if h {
        all.prop_filter("a handler may make it", SystemCall::is_for_handlers).boxed()
    } else {
        all.boxed()
    }
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
