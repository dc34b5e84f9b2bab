//! A headless Chromium, driven through a pipe: [`Chromium`].
//!
//! It shows one page at a time, uses the DevTools protocol as JSON, and downloads nothing. This
//! module does not depend on the report, unlike the tests.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Names under which to search for the executable.
const NAMES: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// Timeout for a reply; long enough for a heavily loaded machine.
const TIMEOUT: Duration = Duration::from_secs(120);

/// A browser with one page.
pub(crate) struct Chromium {
    child: Child,
    orders: ChildStdin,
    answers: Receiver<Value>,
    last: u64,
    session: Option<String>,
    /// Events on the page since it was opened, in order.
    pub(crate) events: Vec<Value>,
    _profile: tempfile::TempDir,
}

impl Chromium {
    /// Starts a browser; if none is installed, prints a line and returns `None`.
    pub(crate) fn start() -> Option<Self> {
        let found = NAMES.into_iter().find(|name| {
            let paths = std::env::var_os("PATH").unwrap_or_default();
            std::env::split_paths(&paths).any(|folder| folder.join(name).is_file())
        });
        let Some(name) = found else {
            println!("skipped: no chromium");
            return None;
        };
        let profile = tempfile::tempdir().expect("a temporary folder");
        let mut command = Command::new("/bin/sh");
        // Chromium reads commands from descriptor 3 and replies on 4.
        command.args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 0</dev/null 1>&2", name]);
        command.args(["--headless", "--remote-debugging-pipe", "--disable-gpu"]);
        command.args(["--disable-3d-apis", "--disable-dev-shm-usage", "--no-first-run"]);
        command.args(["--disable-extensions", "--disable-background-networking"]);
        command.arg(format!("--user-data-dir={}", profile.path().display()));
        if rustix::process::geteuid().is_root() {
            command.arg("--no-sandbox");
        }
        command.arg("about:blank");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("start /bin/sh");
        let orders = child.stdin.take().expect("piped");
        let pipe = BufReader::new(child.stdout.take().expect("piped"));
        let (told, answers) = channel();
        thread::spawn(move || {
            for message in pipe.split(0).map_while(Result::ok) {
                let message = serde_json::from_slice(&message).expect("JSON from the browser");
                if told.send(message).is_err() {
                    break;
                }
            }
        });
        let (last, session, events) = (0, None, Vec::new());
        let mut browser = Self { child, orders, answers, last, session, events, _profile: profile };
        let page = browser.call("Target.createTarget", json!({"url": "about:blank"}));
        let page = json!({"targetId": page["targetId"], "flatten": true});
        let session = browser.call("Target.attachToTarget", page);
        browser.session = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network", "Accessibility", "DOM"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        Some(browser)
    }

    /// Opens a file and waits until it is loaded.
    pub(crate) fn open(&mut self, file: &Path) {
        self.events.clear();
        let url = format!("file://{}", file.display());
        let opened = self.call("Page.navigate", json!({"url": url}));
        assert!(opened["errorText"].is_null(), "{opened}");
        let deadline = Instant::now() + TIMEOUT;
        while !self.events.iter().any(|event| event["method"] == "Page.loadEventFired") {
            self.listen(deadline);
        }
    }

    /// Calls a method and returns its result.
    pub(crate) fn call(&mut self, method: &str, params: Value) -> Value {
        self.last += 1;
        let mut order = json!({"id": self.last, "method": method, "params": params});
        if let Some(session) = &self.session {
            order["sessionId"] = json!(session);
        }
        write!(self.orders, "{order}\0")
            .and_then(|()| self.orders.flush())
            .expect("the browser reads its pipe");
        let deadline = Instant::now() + TIMEOUT;
        loop {
            if let Some(mut answer) = self.listen(deadline) {
                assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
                return answer["result"].take();
            }
        }
    }

    /// Waits for the next message; returns the reply to the last call, or `None` after an event.
    fn listen(&mut self, deadline: Instant) -> Option<Value> {
        let left = deadline.saturating_duration_since(Instant::now());
        match self.answers.recv_timeout(left) {
            Ok(message) if message["id"] == self.last => Some(message),
            Ok(event) => {
                self.events.push(event);
                None
            }
            Err(RecvTimeoutError::Timeout) => panic!("the browser does not reply"),
            Err(RecvTimeoutError::Disconnected) => panic!("the browser ended"),
        }
    }

    /// Evaluates an expression on the page and returns its value.
    pub(crate) fn js(&mut self, expression: &str) -> Value {
        let asked = json!({"expression": expression, "returnByValue": true});
        let mut answer = self.call("Runtime.evaluate", asked);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
        answer["result"]["value"].take()
    }

    /// Waits until an expression is true, because input may take effect one frame later.
    pub(crate) fn until(&mut self, expression: &str) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while self.js(expression) != json!(true) {
            assert!(Instant::now() < deadline, "never true: {expression}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Evaluates an expression and returns its value as a number.
    pub(crate) fn number(&mut self, expression: &str) -> f64 {
        let value = self.js(expression);
        value.as_f64().unwrap_or_else(|| panic!("{expression}: {value}"))
    }

    /// Evaluates an expression and returns its value as text.
    pub(crate) fn text(&mut self, expression: &str) -> String {
        let value = self.js(expression);
        value.as_str().unwrap_or_else(|| panic!("{expression}: {value}")).to_owned()
    }

    /// Moves, presses or releases the mouse, or turns its wheel.
    pub(crate) fn mouse(&mut self, kind: &str, x: f64, y: f64) {
        let held = kind == "mousePressed" || kind == "mouseReleased";
        let button = if held { "left" } else { "none" };
        let order = json!({"type": kind, "x": x, "y": y, "button": button, "deltaX": 0,
            "deltaY": -120, "clickCount": i32::from(held)});
        self.call("Input.dispatchMouseEvent", order);
    }

    /// Presses and releases a key.
    pub(crate) fn key(&mut self, key: &str) {
        for kind in ["keyDown", "keyUp"] {
            self.call("Input.dispatchKeyEvent", json!({"type": kind, "key": key}));
        }
    }

    /// Returns exceptions, console output and log entries.
    pub(crate) fn complaints(&self) -> Vec<&Value> {
        let bad = ["Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"];
        let is_bad = |event: &&Value| bad.iter().any(|method| event["method"] == *method);
        self.events.iter().filter(is_bad).collect()
    }

    /// Returns the URL of every request of the page.
    pub(crate) fn requests(&self) -> Vec<&str> {
        let asked = self.events.iter().filter(|e| e["method"] == "Network.requestWillBeSent");
        asked.filter_map(|event| event["params"]["request"]["url"].as_str()).collect()
    }
}

impl Drop for Chromium {
    fn drop(&mut self) {
        let _ = write!(self.orders, "{{\"id\":0,\"method\":\"Browser.close\"}}\0");
        let _ = self.orders.flush();
        let deadline = Instant::now() + Duration::from_secs(10);
        while Instant::now() < deadline {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
