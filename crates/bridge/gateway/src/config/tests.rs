//! Tests of configuration files: each mistake, with its line, column, key and fix.

use super::*;

const EXAMPLE: &str = r#"
name = "hostA"
realm = "plant"
listen = "127.0.0.1:7447"
status = "/run/a.status"
mode = "0660"
allow = ["root", 1000]
owners = [1001]
lane_cap = 65536
max_lanes = 16

[peers.hostB]
connect = "127.0.0.2:7447"
unreachable_after = "1m 5s"
[peers.a]

[exports]
jobs = "/run/jobs"
log = "@log"

[imports]
"hostB/jobs" = "/run/tontine/hostB/jobs"
"a/x.y" = "@x"

[zenoh]
ca = "/etc/tontine/ca.pem"
certificate = "/etc/tontine/a.pem"
private_key = "/etc/tontine/a.key"
"#;

/// Returns the mistakes of a text, each as it is printed.
fn mistakes(text: &str) -> Vec<String> {
    match Config::parse(text) {
        Ok(config) => panic!("expected a mistake, found {config:?}"),
        Err(mistakes) => mistakes.iter().map(ToString::to_string).collect(),
    }
}

/// Checks that a text has this mistake alone.
#[track_caller]
fn assert_mistake(text: &str, mistake: &str) {
    assert_eq!(mistakes(text), [mistake]);
}

/// Returns a valid configuration with these lines below its first.
fn with(lines: &str) -> String {
    format!("name = \"hostA\"\n{lines}")
}

/// Returns a valid configuration with the peer `hostB` and these lines below it, from line 4.
fn with_peer(lines: &str) -> String {
    with(&format!("[peers.hostB]\nconnect = \"127.0.0.2:1\"\n{lines}"))
}

#[test]
fn whole_file_is_read() {
    let config = Config::parse(EXAMPLE).expect("valid");
    let peer = |name: &str, connect: Option<&str>, seconds| PeerConfig {
        name: name.into(),
        connect: connect.map(|text| text.parse().expect("an address")),
        unreachable_after: Option::map(seconds, Duration::from_secs),
    };
    let export =
        |name: &str, address: &str| ExportConfig { name: name.into(), address: address.into() };
    let import = |host, name: &str, address: &str| {
        let (name, address) = (name.into(), address.into());
        ImportConfig { host: HostId(host), name, address }
    };
    let expected = Config {
        name: "hostA".into(),
        realm: "plant".into(),
        listen: vec![([127, 0, 0, 1], 7447).into()],
        status: "/run/a.status".into(),
        mode: 0o660,
        allowed_uids: vec![0, 1000],
        owner_uids: vec![1001],
        lane_cap: Some(65536),
        max_lanes: Some(16),
        // In the order of the file, and not of the alphabet.
        peers: vec![peer("hostB", Some("127.0.0.2:7447"), Some(65)), peer("a", None, None)],
        exports: vec![export("jobs", "/run/jobs"), export("log", "@log")],
        imports: vec![import(0, "jobs", "/run/tontine/hostB/jobs"), import(1, "x.y", "@x")],
        zenoh: ZenohConfig {
            ca: Some("/etc/tontine/ca.pem".into()),
            certificate: Some("/etc/tontine/a.pem".into()),
            private_key: Some("/etc/tontine/a.key".into()),
            routers: Vec::new(),
        },
        warnings: Vec::new(),
    };
    assert_eq!(config, expected);
    assert_eq!(config.host("a"), Some(HostId(1)));
    assert_eq!(config.peer(HostId(0)).name, "hostB");
}

#[test]
fn file_with_a_name_alone_has_defaults_and_a_warning() {
    let config = Config::parse("name = \"hostA\"").expect("valid");
    let text = "neither [exports] nor [imports] names a mailbox, so the gateway carries nothing";
    assert_eq!(config, Config { warnings: vec![text.into()], ..Config::new("hostA") });
    let config = Config::parse(&with("[exports]\njobs = \"@jobs\"")).expect("valid");
    assert_eq!(config.warnings, ["[peers] names no host, so the gateway carries nothing"]);
}

/// Each file of `mistakes.txt` has the mistakes that follow it, and no others.
#[test]
fn invalid_file_has_exactly_the_listed_mistakes() {
    for case in include_str!("mistakes.txt").split("\n---\n") {
        let is_mistake = |line: &&str| line.starts_with("=> ");
        let text: Vec<&str> = case.lines().filter(|line| !is_mistake(line)).collect();
        let expected: Vec<&str> = case.lines().filter(is_mistake).map(|line| &line[3..]).collect();
        assert!(!expected.is_empty(), "{case}");
        assert_eq!(mistakes(&text.join("\n")), expected, "{case}");
    }
}

#[test]
fn longest_names_and_routers_with_own_names_are_valid() {
    let long = "a".repeat(63);
    let routers = "[peers.\"c.d\"]\n[zenoh.routers]\n\"e.f\" = \"10.0.0.1:1\"";
    assert!(Config::parse(&with(&format!("realm = \"{long}\"\n{routers}"))).is_ok());
}

#[test]
fn syntax_errors_have_positions() {
    let found = mistakes("name = \"hostA\"\nrealm = plant\nmode = \n");
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].starts_with("2:9: expected TOML, found an error of syntax: "), "{found:?}");
    assert!(found[1].starts_with("3:"), "{found:?}");
    let found = mistakes("name = \"a\"\nname = \"b\"");
    assert!(found[0].starts_with("2:1: ") && found[0].contains("duplicate"), "{found:?}");
}

#[test]
fn durations_and_number_of_peers_are_checked() {
    for duration in ["60", "0s", "-1s", "soon"] {
        let text = format!(
            "4:21: peers.hostB.unreachable_after: expected a duration above 0, found \
             {duration:?}; write it like \"60s\""
        );
        assert_mistake(&with_peer(&format!("unreachable_after = {duration:?}")), &text);
    }
    let many: String =
        (0..=MAX_PEERS).map(|peer| format!("[peers.p{peer}]\nconnect = \"p{peer}:1\"\n")).collect();
    let text = "2:2: peers: expected at most 1000 peers, found 1001; remove some";
    assert_mistake(&with(&many), text);
}

#[test]
fn addresses_of_mailboxes_are_checked() {
    for address in ["", "@", "jobs", "./jobs", "/run/", "/a\\u0000b"] {
        let found = mistakes(&with_peer(&format!("[exports]\njobs = \"{address}\"")));
        let start = "5:8: exports.jobs: expected an absolute path, or @ and a name; found ";
        assert!(found.len() == 1 && found[0].starts_with(start), "{found:?}");
    }
}

#[test]
fn modes_and_long_paths_are_checked() {
    for mode in ["1777", "0o660", "rw", "", "+660"] {
        let text = format!(
            "2:8: mode: expected octal permissions up to 0777, found {mode:?}; write \"0660\""
        );
        assert_mistake(&with(&format!("mode = {mode:?}")), &text);
    }
    let long = format!("/{}", "a".repeat(107));
    let text = "2:10: status: expected a path of at most 107 bytes, found 108; shorten it";
    assert_mistake(&with(&format!("status = {long:?}")), text);
}

#[test]
fn unreadable_and_binary_files_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("bridge.toml");
    let error = Config::read(&path).expect_err("no file").to_string();
    let start = format!("cannot read {}: No such file", path.display());
    assert!(error.starts_with(&start) && error.ends_with("a readable configuration file"));
    let error = Config::read(folder.path()).expect_err("a folder").to_string();
    assert!(error.contains("Is a directory"), "{error}");
    std::fs::write(&path, b"name = \"a\"\nrealm = \"\xff\"").expect("written");
    let error = Config::read(&path).expect_err("not UTF-8").to_string();
    let text = "2:10: expected UTF-8, found a byte that is not; save the file as UTF-8";
    assert_eq!(error, format!("{}:{text}", path.display()));
    std::fs::write(&path, vec![b'#'; MAX_FILE as usize + 1]).expect("written");
    let error = Config::read(&path).expect_err("too long").to_string();
    assert!(error.contains("the file has more than 1048576 bytes"), "{error}");
}

#[test]
fn error_has_one_line_per_mistake() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("bridge.toml");
    std::fs::write(&path, "name = \"\"\nmode = \"\"").expect("written");
    let error = Config::read(&path).expect_err("mistakes").to_string();
    assert_eq!(error.lines().count(), 2, "{error}");
    assert!(error.lines().all(|line| line.starts_with(&*path.to_string_lossy())), "{error}");
    std::fs::write(&path, EXAMPLE).expect("written");
    assert_eq!(Config::read(&path).expect("valid").name, "hostA");
}

#[test]
fn routers_replace_listen_and_connect() {
    let text = "name = \"hostA\"\n[peers.hostB]\n[zenoh.routers]\nhub = \"10.0.0.1:7447\"\n";
    let config = Config::parse(text).expect("a configuration");
    assert_eq!(config.zenoh.routers.len(), 1);
    assert_eq!(config.zenoh.routers[0].0, "hub");
    let mistakes = Config::parse(&text.replace(":7447", "")).expect_err("no port");
    assert!(mistakes.iter().any(|mistake| mistake.key == "zenoh.routers.hub"), "{mistakes:?}");
}
