//! A line of a list: an assertion and its verdict, [`Claim`].

/// Reason why an assertion does not apply.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Reason {
    pub(crate) key: &'static str,
    pub(crate) means: &'static str,
}

/// All reasons; their number must never exceed six.
pub(crate) const REASONS: [Reason; 6] = [
    Reason {
        key: "interface",
        means: "needs an interface that the crate lacks, or an argument or an error \
                that its types rule out",
    },
    Reason {
        key: "address",
        means: "pointers, address spaces and mappings: a program is a closure here",
    },
    Reason { key: "machine", means: "hardware faults, registers and machine contexts, core files" },
    Reason { key: "filesystem", means: "files, mounts and `/proc`" },
    Reason {
        key: "threads",
        means: "thread features that `Sys` lacks: cancellation, attributes, fork handlers",
    },
    Reason { key: "time", means: "clocks and timers other than `alarm` and waits with a timeout" },
];

/// The verdict on an assertion.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The tests that show that the assertion holds.
    Holds(Vec<String>),
    /// The assertion does not apply.
    NotApplicable(&'static Reason),
    /// The assertion does not hold, or no test shows it; the text is the reason.
    Open(String),
}

/// An assertion of a suite.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    /// File and line, for error messages.
    pub(crate) place: String,
    /// The group of the assertion: a directory or a file of tests.
    pub(crate) group: String,
    /// The name of the assertion in its group.
    pub(crate) name: String,
    /// The assertion, in our words.
    pub(crate) assertion: String,
    pub(crate) verdict: Verdict,
}

impl Claim {
    /// Returns the tests that show the assertion.
    pub(crate) fn tests(&self) -> &[String] {
        if let Verdict::Holds(tests) = &self.verdict { tests } else { &[] }
    }
}

/// Returns the claims of a list, or every error in it.
pub(crate) fn parse(file: &str, text: &str) -> Result<Vec<Claim>, String> {
    let mut claims = Vec::new();
    let mut complaints = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let place = format!("{file}:{number}");
        match parse_line(line, &place) {
            Ok(claim) => claims.push(claim),
            Err(why) => complaints.push(format!("{place}: {why}")),
        }
    }
    if complaints.is_empty() { Ok(claims) } else { Err(complaints.join("\n")) }
}

fn parse_line(line: &str, place: &str) -> Result<Claim, String> {
    let fields: Vec<_> = line.split(" | ").collect();
    let &[id, assertion, verdict] = fields.as_slice() else {
        return Err(format!("{} fields between ` | `, expected three", fields.len()));
    };
    if fields.iter().any(|field| field.trim() != *field || field.contains('|')) {
        return Err("a field begins or ends with a blank, or has a `|`".to_owned());
    }
    let (group, name) = match id.rsplit_once('/') {
        Some((group, name)) if !group.is_empty() && !name.is_empty() && !id.contains(' ') => {
            (group.to_owned(), name.to_owned())
        }
        _ => return Err(format!("`{id}` is not `group/number`")),
    };
    if assertion.is_empty() {
        return Err("the assertion is empty".to_owned());
    }
    let verdict = parse_verdict(verdict)?;
    Ok(Claim { place: place.to_owned(), group, name, assertion: assertion.to_owned(), verdict })
}

fn parse_verdict(text: &str) -> Result<Verdict, String> {
    let (kind, rest) = text.split_once(' ').unwrap_or((text, ""));
    if rest.is_empty() {
        return Err(format!("`{text}` is not a verdict: `holds test`, `n/a reason` or `open why`"));
    }
    match kind {
        "holds" => {
            let tests: Vec<_> = rest.split(", ").map(str::to_owned).collect();
            match tests.iter().find(|test| !is_path(test)) {
                Some(test) => Err(format!("`{test}` is not `target::module::test`")),
                None => Ok(Verdict::Holds(tests)),
            }
        }
        "n/a" => match REASONS.iter().find(|reason| reason.key == rest) {
            Some(reason) => Ok(Verdict::NotApplicable(reason)),
            None => {
                let known: Vec<_> = REASONS.iter().map(|reason| reason.key).collect();
                Err(format!("`{rest}` is not a reason, expected one of {}", known.join(", ")))
            }
        },
        "open" => Ok(Verdict::Open(rest.to_owned())),
        _ => Err(format!("`{kind}` is not a verdict, expected `holds`, `n/a` or `open`")),
    }
}

/// Returns `true` if `text` consists of at least two names separated by `::`.
fn is_path(text: &str) -> bool {
    let is_name = |name: &str| {
        let mut bytes = name.bytes();
        let first = bytes.next().is_some_and(|byte| byte.is_ascii_lowercase() || byte == b'_');
        first && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    text.contains("::") && text.split("::").all(is_name)
}

#[test]
fn list_line_parses_to_assertion_and_verdict() {
    let text = "# kill\n\nkill/2 | asks this | holds a::b, c::d::e\nk/i/3 | that | n/a time\n\
                k/x | more | open not examined\n";
    let claims = parse("f", text).expect("a well-formed list");
    let of = |nth: usize| (&*claims[nth].place, &*claims[nth].group, &*claims[nth].name);
    assert_eq!(
        [of(0), of(1), of(2)],
        [("f:3", "kill", "2"), ("f:4", "k/i", "3"), ("f:5", "k", "x")]
    );
    assert_eq!(claims[0].assertion, "asks this");
    assert_eq!(claims[0].tests(), ["a::b", "c::d::e"]);
    assert_eq!(claims[1].verdict, Verdict::NotApplicable(&REASONS[5]));
    assert_eq!(claims[2].verdict, Verdict::Open("not examined".to_owned()));
}

#[test]
fn malformed_list_line_is_refused_with_position() {
    for (line, why) in [
        ("kill/1 | asks", "2 fields"),
        ("kill/1 | asks | holds a::b | more", "4 fields"),
        ("kill/1 |  asks | open it", "begins or ends with a blank"),
        ("kill/1 | a|b | open it", "has a `|`"),
        ("kill | asks | open it", "`kill` is not `group/number`"),
        ("kill/ | asks | open it", "`kill/` is not"),
        ("ki ll/1 | asks | open it", "`ki ll/1` is not"),
        ("kill/1 |  | open it", "the assertion is empty"),
        ("kill/1 | asks | holds", "`holds` is not a verdict"),
        ("kill/1 | asks | holds kill", "`kill` is not `target::module::test`"),
        ("kill/1 | asks | holds a::b,c::d", "`a::b,c::d` is not"),
        ("kill/1 | asks | n/a because", "`because` is not a reason, expected one of interface, "),
        ("kill/1 | asks | maybe later", "`maybe` is not a verdict"),
    ] {
        let said = parse("list.txt", &format!("# head\n{line}\n")).expect_err(line);
        assert!(said.starts_with("list.txt:2: ") && said.contains(why), "{line}: {said}");
    }
    let two = parse("list.txt", "a\nb\n").expect_err("both lines are wrong");
    assert_eq!(two.lines().count(), 2, "{two}");
}
