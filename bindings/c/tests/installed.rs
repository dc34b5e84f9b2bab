//! Installs the library as a programmer in C does, compiles programs against its header, and runs
//! them.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tontine_gateway::config::{Config, ExportConfig, ImportConfig, PeerConfig};
use tontine_gateway::gateway::Gateway;
use tontine_gateway::link::HostId;
use tontine_gateway::memory::{Faults, MemoryLink};

/// Maximum time for one command.
const AMPLE: Duration = Duration::from_secs(60);

fn here() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The library, installed into its own folder.
struct Installed(tempfile::TempDir);

impl Installed {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        // Cargo puts the library, on which these tests depend, into the same folder.
        let test = std::env::current_exe().expect("this program");
        let mut make = Command::new("make");
        make.arg("-C").arg(here()).arg("install");
        make.arg(format!("PREFIX={}", folder.path().display()));
        make.arg(format!("BUILT={}", test.parent().expect("a folder").display()));
        succeed(&mut make);
        Self(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Returns the flags that pkg-config would print for the installed file.
    fn flags(&self, names: &[&str]) -> Vec<String> {
        let text = fs::read_to_string(self.path("lib/pkgconfig/tontine.pc")).expect("tontine.pc");
        let mut flags = Vec::new();
        for name in names {
            let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
            let prefix = self.0.path().display().to_string();
            let line = line.expect("a line of that name").replace("${libdir}", "${prefix}/lib");
            let line = line.replace("${includedir}", "${prefix}/include");
            flags.extend(line.replace("${prefix}", &prefix).split(' ').map(str::to_owned));
        }
        flags
    }

    fn compile(&self, source: &Path, to: &str, flags: &[String]) -> PathBuf {
        let program = self.path(to);
        let mut cc = Command::new("cc");
        cc.args(["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O1"]);
        cc.arg(source).arg("-o").arg(&program).args(flags);
        succeed(&mut cc);
        program
    }

    fn run(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env("LD_LIBRARY_PATH", self.path("lib"));
        command
    }
}

/// Runs a command until it ends; panics if it takes longer than [`AMPLE`].
fn finish(command: &mut Command) -> Output {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let until = Instant::now() + AMPLE;
    let status = loop {
        if let Some(status) = child.try_wait().expect("a status") {
            break status;
        }
        if Instant::now() > until {
            let _ = child.kill();
            panic!("{command:?} hangs");
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    child.stdout.take().expect("piped").read_to_end(&mut stdout).expect("read");
    child.stderr.take().expect("piped").read_to_end(&mut stderr).expect("read");
    Output { status, stdout, stderr }
}

fn succeed(command: &mut Command) -> String {
    let output = finish(command);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{command:?}: {}\n{}", output.status, text(&output.stderr));
    text(&output.stdout)
}

const HELLO: &str = "\
read: hello
the receiver is dead: EOWNERDEAD
not read: are you
not read: there?
";

#[test]
fn hello_example_kills_receiver_and_takes_messages_back() {
    let installed = Installed::new();
    let source = here().join("examples/hello.c");
    let shared = installed.compile(&source, "shared", &installed.flags(&["Libs", "Cflags"]));
    assert_eq!(succeed(&mut installed.run(&shared)), HELLO);

    let mut flags = installed.flags(&["Cflags", "Libs.private"]);
    flags.insert(0, installed.path("lib/libtontine.a").display().to_string());
    let statically = installed.compile(&source, "static", &flags);
    assert_eq!(succeed(&mut Command::new(statically)), HELLO);
}

#[test]
fn every_function_matches_header_comments() {
    let installed = Installed::new();
    let flags = installed.flags(&["Libs", "Cflags"]);
    let flags = [flags, vec!["-pthread".into()]].concat();
    let program = installed.compile(&here().join("tests/installed.c"), "installed", &flags);
    succeed(installed.run(&program).arg(installed.path("mailbox")));
}

/// Turns a gateway in a thread of its own until `stop` is set.
fn gateway(config: Config, link: MemoryLink, stop: &Arc<AtomicBool>) -> JoinHandle<()> {
    let stop = Arc::clone(stop);
    let mut gateway = Gateway::new(&config, link).expect("a gateway");
    std::thread::spawn(move || {
        while !stop.load(Ordering::Relaxed) {
            gateway.turn(Some(Duration::from_millis(20))).expect("a turn");
        }
    })
}

#[test]
fn programs_exchange_messages_through_two_gateways() {
    let installed = Installed::new();
    let flags = installed.flags(&["Libs", "Cflags"]);
    let program = installed.compile(&here().join("tests/far.c"), "far", &flags);
    let (jobs, import) = (installed.path("jobs"), installed.path("far-jobs"));
    let config = |name: &str, peer: &str| {
        let mut config = Config::new(name);
        let name = peer.into();
        config.peers.push(PeerConfig { name, connect: None, unreachable_after: None });
        config
    };
    let (mut near, mut far) = (config("near", "far"), config("far", "near"));
    let (host, name) = (HostId(0), "jobs".to_owned());
    near.imports.push(ImportConfig { host, name: name.clone(), address: import.clone().into() });
    far.exports.push(ExportConfig { name, address: jobs.clone().into() });
    let (near_link, far_link, _) = MemoryLink::pair(Faults::default()).expect("a link");

    let mut receiver = installed.run(&program);
    receiver.arg("receive").arg(&jobs).arg("2").stdout(Stdio::piped());
    let receiver = receiver.spawn().expect("a receiver");
    let until = Instant::now() + AMPLE;
    while !jobs.exists() {
        assert!(Instant::now() < until, "the receiver does not start");
        std::thread::sleep(Duration::from_millis(5));
    }
    let stop = Arc::new(AtomicBool::new(false));
    let threads = [gateway(near, near_link, &stop), gateway(far, far_link, &stop)];
    succeed(installed.run(&program).arg("send").arg(&import).args(["hello", "there"]));
    let output = receiver.wait_with_output().expect("it ends");
    stop.store(true, Ordering::Relaxed);
    for thread in threads {
        thread.join().expect("no panic");
    }
    assert_eq!(String::from_utf8_lossy(&output.stdout), "hello\nthere\n");
}

#[test]
fn header_compiles_in_every_standard_of_cpp() {
    let installed = Installed::new();
    let source = installed.path("header.cpp");
    let text = "#include <tontine.h>\n\
                static const tontine_options defaults = TONTINE_OPTIONS_INIT;\n\
                static void take(void *count, const tontine_message *) {\n\
                    ++*static_cast<int *>(count);\n\
                }\n\
                int main() {\n\
                    tontine_options options = TONTINE_OPTIONS_INIT;\n\
                    options.lane_cap = 1 << 20;\n\
                    tontine_mailbox *mailbox = tontine_mailbox_bind(\"@none\", &options);\n\
                    tontine_sender *sender = tontine_sender_connect(\"@none\", &defaults);\n\
                    int count = tontine_sender_send(sender, \"a\", 1);\n\
                    tontine_mailbox_recv_batch(mailbox, 1, take, &count);\n\
                    tontine_sender_close(sender);\n\
                    tontine_mailbox_close(mailbox);\n\
                    return count != 1;\n\
                }\n";
    fs::write(&source, text.replace("@none", &format!("@tontine-cpp-{}", std::process::id())))
        .expect("written");
    let program = installed.path("header");
    for name in ["g++", "clang++"] {
        if Command::new(name).arg("--version").output().is_err() {
            println!("without {name}, which is not installed");
            continue;
        }
        // The last is C++23, by the name that older compilers also know.
        for standard in ["-std=c++17", "-std=c++20", "-std=c++2b"] {
            let mut compiler = Command::new(name);
            compiler.args([standard, "-Wall", "-Wextra", "-Wpedantic", "-Werror"]).arg(&source);
            compiler.arg("-o").arg(&program).args(installed.flags(&["Libs", "Cflags"]));
            succeed(&mut compiler);
            succeed(&mut installed.run(&program));
        }
    }
}

/// Checks that a program that links the library has no other global names from it, which could be
/// another library's: the static library contains Rust's standard library.
#[test]
fn libraries_define_only_names_of_header() {
    let installed = Installed::new();
    let header = fs::read_to_string(installed.path("include/tontine.h")).expect("the header");
    for (library, options) in [("lib/libtontine.so", &["-D"][..]), ("lib/libtontine.a", &["-g"])] {
        let mut nm = Command::new("nm");
        nm.args(options).args(["--defined-only", "--format=posix"]).arg(installed.path(library));
        let text = succeed(&mut nm);
        let names = text.lines().filter_map(|line| line.split_once(' ').map(|(name, _)| name));
        let mut count = 0;
        for name in names.filter(|name| !name.ends_with(']')) {
            assert!(header.contains(&format!("{name}(")), "{library} defines {name}");
            count += 1;
        }
        let functions = header.lines().filter(|line| line.contains("tontine_") && is_start(line));
        assert_eq!(count, functions.count(), "{library}");
    }
}

/// Returns `true` if a line of the header begins the declaration of a function.
fn is_start(line: &str) -> bool {
    let is_code = line.starts_with(|first: char| first.is_ascii_lowercase());
    is_code && line.contains('(') && !line.starts_with("typedef")
}

#[test]
fn shared_library_has_versioned_soname() {
    let installed = Installed::new();
    let lib = |name: &str| installed.path("lib").join(name);
    let to = |name: &str| fs::read_link(lib(name)).expect("a link").display().to_string();
    assert_eq!(to("libtontine.so"), "libtontine.so.1");
    assert_eq!(to("libtontine.so.1"), concat!("libtontine.so.1.", env!("CARGO_PKG_VERSION")));
    let bytes = fs::read(lib("libtontine.so.1")).expect("the library");
    let soname = b"\0libtontine.so.1\0";
    assert!(bytes.windows(soname.len()).any(|window| window == soname), "no soname");
}
