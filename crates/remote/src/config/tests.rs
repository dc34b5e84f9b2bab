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

#[test]
fn empty_file_and_missing_name_are_mistakes() {
    let empty = "1:1: name: expected a configuration, found an empty file; begin with name = \
                 \"hostA\"";
    assert_mistake("", empty);
    assert_mistake("# nothing\n", empty);
    let text = "1:1: name: expected the name of this host, found none; add name = \"hostA\"";
    assert_mistake("realm = \"plant\"", text);
}

#[test]
fn every_mistake_is_reported_in_order() {
    let found = mistakes("nam = \"a\"\nmode = \"9\"\n[peers.b]\n[exports]\nx = 1\n");
    let starts = ["1:1: nam: ", "1:1: name: ", "2:8: mode: ", "3:8: peers.b: ", "5:5: exports.x: "];
    assert_eq!(found.len(), starts.len(), "{found:?}");
    for (mistake, start) in found.iter().zip(starts) {
        assert!(mistake.starts_with(start), "{mistake} does not start with {start}");
    }
}

#[test]
fn unknown_key_names_known_ones() {
    let text = "2:1: listn: expected one of name, realm, listen, status, mode, allow, owners, \
                lane_cap, max_lanes, peers, exports, imports, zenoh; found the unknown key listn; \
                write listen";
    assert_mistake(&with("listn = \"127.0.0.1:1\""), text);
    let text = "4:1: peers.hostB.\"un known\": expected one of connect, unreachable_after; found \
                the unknown key \"un known\"; remove it";
    assert_mistake(&with_peer("\"un known\" = 1"), text);
    let found = mistakes(&with("[zenoh]\nkey = \"/k\""));
    assert!(found[0].starts_with("3:1: zenoh.key: expected one of ca, certificate"), "{found:?}");
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
fn wrong_types_are_named() {
    let found = mistakes(
        "name = 1\nrealm = [\"a\"]\nlisten = 1.5\nstatus = true\nmode = 660\nallow = \"root\"\n\
         lane_cap = \"1\"\npeers = 2020-01-01\nexports = []\nimports = {a = {}}\nzenoh = \"\"",
    );
    let expected = [
        "1:8: name: expected a string, found the integer 1; write it like \"hostA\"",
        "2:9: realm: expected a string, found a list; write it like \"plant\"",
        "3:10: listen: expected a string, found the number 1.5; write it like \"127.0.0.1:7447\"",
        "4:10: status: expected a string, found true; write it like \"/run/tontine/bridge.status\"",
        "5:8: mode: expected a string, found the integer 660; write it like \"0660\"",
        "6:9: allow: expected a list, found \"root\"; write it in [ ]",
        "7:12: lane_cap: expected an integer from 4096 to 1099511627776, found \"1\"; change it",
        "8:9: peers: expected a table, found the time 2020-01-01; write [peers] above its keys",
        "9:11: exports: expected a table, found a list; write [exports] above its keys",
        "10:12: imports.a: expected PEER/NAME, found \"a\"; write it in quotes, like \
         \"hostB/jobs\"",
        "10:16: imports.a: expected a string, found a table; write it like \
         \"/run/tontine/hostB/jobs\"",
        "11:9: zenoh: expected a table, found \"\"; write [zenoh] above its keys",
    ];
    assert_eq!(found, expected);
}

#[test]
fn invalid_names_are_refused() {
    let rule = "expected 1 to 63 of the characters a-z, A-Z, 0-9, `.`, `_` and `-`; found";
    assert_mistake("name = \"a b\"", &format!("1:8: name: {rule} \"a b\"; change it"));
    assert_mistake(&with("realm = \"\""), &format!("2:9: realm: {rule} \"\"; change it"));
    let long = "a".repeat(64);
    let text = format!("5:1: exports.{long}: {rule} {long:?}; change it");
    assert_mistake(&with_peer(&format!("[exports]\n{long} = \"@a\"")), &text);
    let text = format!("5:1: imports.\"hostB/a/b\": {rule} \"a/b\"; change it");
    assert_mistake(&with_peer("[imports]\n\"hostB/a/b\" = \"@a\""), &text);
    let text = format!("2:8: peers.\"ü\": {rule} \"ü\"; change it");
    assert_mistake(&with("[peers.\"ü\"]\nconnect = \"a:1\""), &text);
    assert!(Config::parse(&with(&format!("realm = {:?}", "a".repeat(63)))).is_ok());
}

#[test]
fn addresses_of_the_network_are_checked() {
    let text = "2:10: listen: expected an IP address and a port from 1 to 65535, found \"a:1\"; \
                write it like \"127.0.0.1:7447\"";
    assert_mistake(&with("listen = \"a:1\""), text);
    let text = "2:11: listen: expected an IP address and a port from 1 to 65535, found port 0; \
                peers need a fixed port";
    assert_mistake(&with("listen = [\"[::1]:0\"]"), text);
    let text = "2:21: listen: expected each address once, found 0.0.0.0:1 again; remove it";
    assert_mistake(&with("listen=[\"0.0.0.0:1\",\"0.0.0.0:1\"]"), text);
    let text = "2:10: listen: expected an address at least, found an empty list; remove the key";
    assert_mistake(&with("listen = []"), text);
    let text = "3:11: peers.b.connect: expected a host and a port from 1 to 65535, found \
                \"127.0.0.2\"; write it like \"192.0.2.7:7447\"";
    assert_mistake(&with("[peers.b]\nconnect = \"127.0.0.2\""), text);
    let text = "4:11: peers.b.connect: expected the peer's address, found 127.0.0.1:1, at which \
                this gateway listens; change one of them";
    let lines = "listen = \"127.0.0.1:1\"\n[peers.b]\nconnect = \"127.0.0.1:1\"";
    assert_mistake(&with(lines), text);
    let text = "5:11: peers.c.connect: expected an address of its own, found that of the peer \
                hostB; change one of them";
    assert_mistake(&with_peer("[peers.c]\nconnect = \"127.0.0.2:1\""), text);
}

#[test]
fn peers_are_checked() {
    let text = "2:8: peers.hostA: expected another host, found this host's own name; rename one of \
                them";
    assert_mistake(&with("[peers.hostA]\nconnect = \"b:1\""), text);
    let text = "2:8: peers.b: expected `connect`, because this gateway does not listen; found \
                none; add connect = \"HOST:PORT\" here, or listen = \"ADDRESS:PORT\" above";
    assert_mistake(&with("[peers.b]"), text);
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
fn imports_need_a_known_peer() {
    let text = "5:1: imports.\"hostC/jobs\": expected a host of [peers], found \"hostC\"; write \
                hostB";
    assert_mistake(&with_peer("[imports]\n\"hostC/jobs\" = \"@a\""), text);
    let text = "5:1: imports.\"x/jobs\": expected a host of [peers], found \"x\"; add [peers.x]";
    assert_mistake(&with_peer("[imports]\n\"x/jobs\" = \"@a\""), text);
}

#[test]
fn addresses_of_mailboxes_are_checked() {
    for address in ["", "@", "jobs", "./jobs", "/run/", "/a\\u0000b"] {
        let found = mistakes(&with_peer(&format!("[exports]\njobs = \"{address}\"")));
        let start = "5:8: exports.jobs: expected an absolute path, or @ and a name; found ";
        assert!(found.len() == 1 && found[0].starts_with(start), "{found:?}");
    }
    let text = "4:15: imports.\"hostB/a\": expected an address of its own, found that of \
                exports.jobs; change one of them";
    let lines = "exports.jobs = \"/run/jobs\"\n[imports]\n \"hostB/a\"  = \"/run/./jobs\"\n\
                 [peers.hostB]\nconnect = \"b:1\"";
    assert_mistake(&with(lines), text);
    let text = "5:5: exports.a: expected an address of its own, found that of the status socket; \
                change one of them";
    assert_mistake(&with_peer("[exports]\na = \"/run/tontine/bridge.status\""), text);
}

#[test]
fn modes_users_caps_and_paths_are_checked() {
    for mode in ["1777", "0o660", "rw", "", "+660"] {
        let text = format!(
            "2:8: mode: expected octal permissions up to 0777, found {mode:?}; write \"0660\""
        );
        assert_mistake(&with(&format!("mode = {mode:?}")), &text);
    }
    let text = "2:10: allow: expected a user of /etc/passwd, found \"no such user\"; create it or \
                write its uid";
    assert_mistake(&with("allow = [\"no such user\"]"), text);
    let text = "2:13: allow: expected an integer from 0 to 4294967294, found -1; change it";
    assert_mistake(&with("allow = [0, -1]"), text);
    let text = "2:12: lane_cap: expected an integer from 4096 to 1099511627776, found 4095; change \
                it";
    assert_mistake(&with("lane_cap = 4095"), text);
    let text = "2:13: max_lanes: expected an integer from 1 to 1000000, found 0; change it";
    assert_mistake(&with("max_lanes = 0"), text);
    let text = "2:10: status: expected an absolute path, found \"bridge.status\"; write it like \
                \"/run/tontine/bridge.status\"";
    assert_mistake(&with("status = \"bridge.status\""), text);
    let long = format!("/{}", "a".repeat(107));
    let text = "2:10: status: expected a path of at most 107 bytes, found 108; shorten it";
    assert_mistake(&with(&format!("status = {long:?}")), text);
}

#[test]
fn zenoh_credentials_belong_together() {
    let text = "2:2: zenoh: expected ca, certificate and private_key together, found no \
                certificate and private_key; add it";
    assert_mistake(&with("[zenoh]\nca = \"/ca.pem\""), text);
    let found = mistakes(&with("[zenoh]\nca = \"a\"\ncertificate = \"/b\"\nprivate_key = \"/c\""));
    let text = "3:6: zenoh.ca: expected an absolute path, found \"a\"; write it like \
                \"/etc/tontine/ca.pem\"";
    assert_eq!(found, [text]);
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

#[test]
fn listen_and_connect_with_routers_are_refused() {
    let routers = "[zenoh.routers]\nhub = \"10.0.0.1:7447\"\n";
    let replaced = "because this gateway reaches all peers through [zenoh.routers]; remove one of \
                    them";
    let text = format!("2:1: listen: expected no `listen`, {replaced}");
    assert_mistake(&with(&format!("listen = \"127.0.0.1:1\"\n[peers.hostB]\n{routers}")), &text);
    let text = format!("3:1: peers.hostB.connect: expected no `connect`, {replaced}");
    assert_mistake(&with_peer(routers), &text);
}

#[test]
fn router_with_the_name_of_a_host_is_refused() {
    let routers = |name| with(&format!("[peers.hostB]\n[zenoh.routers]\n{name} = \"10.0.0.1:1\""));
    let start = "4:1: zenoh.routers";
    let text = "expected a name of its own, found that of";
    let peer = format!("{start}.hostB: {text} the peer hostB; rename one of them");
    assert_mistake(&routers("hostB"), &peer);
    let own = format!("{start}.hostA: {text} this host; rename one of them");
    assert_mistake(&routers("hostA"), &own);
    assert!(Config::parse(&routers("hub")).is_ok());
}

#[test]
fn dotted_names_with_certificates_are_refused() {
    let hosts = "name = \"a.b\"\n[peers.\"c.d\"]\n[zenoh.routers]\n\"e.f\" = \"10.0.0.1:1\"\n";
    assert!(Config::parse(hosts).is_ok());
    let files = "[zenoh]\nca = \"/ca\"\ncertificate = \"/c\"\nprivate_key = \"/k\"\n";
    let text = |name: &str| {
        format!(
            "expected a name without dots, because certificates prove it; found {name:?}; rename \
             the host"
        )
    };
    let expected = [
        format!("1:8: name: {}", text("a.b")),
        format!("2:8: peers.\"c.d\": {}", text("c.d")),
        format!("4:1: zenoh.routers.\"e.f\": {}", text("e.f")),
    ];
    assert_eq!(mistakes(&format!("{hosts}{files}")), expected);
}
