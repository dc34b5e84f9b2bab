//! Three network namespaces: host A, a router between them, host B.

use std::process::{Command, Stdio};

/// The namespaces of one run, removed when dropped.
pub(crate) struct Network {
    prefix: String,
}

/// A namespace of a [`Network`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    A,
    Router,
    B,
}

impl Place {
    fn suffix(self) -> char {
        match self {
            Self::A => 'a',
            Self::Router => 'r',
            Self::B => 'b',
        }
    }
}

/// Address of host A.
pub(crate) const HOST_A: &str = "10.77.1.2";
/// Address of host B.
pub(crate) const HOST_B: &str = "10.77.2.2";
/// Address of the router on the side of host A.
pub(crate) const ROUTER_A: &str = "10.77.1.1";
/// Address of the router on the side of host B.
pub(crate) const ROUTER_B: &str = "10.77.2.1";

impl Network {
    /// Makes the namespaces.
    ///
    /// # Errors
    /// Returns the reason why this process cannot.
    pub(crate) fn new() -> Result<Self, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("network namespaces need root".into());
        }
        let network = Self { prefix: format!("tontine-{}", std::process::id()) };
        for place in [Place::A, Place::Router, Place::B] {
            network.ip_outside(&["netns", "add", &network.name(place)])?;
            network.ip(place, &["link", "set", "lo", "up"])?;
        }
        network.join(Place::A, HOST_A, ROUTER_A)?;
        network.join(Place::B, HOST_B, ROUTER_B)?;
        network.run(Place::Router, "sysctl", &["-q", "-w", "net.ipv4.ip_forward=1"])?;
        Ok(network)
    }

    /// Connects a host with the router by a pair of interfaces, and makes the router its gateway.
    fn join(&self, host: Place, address: &str, router: &str) -> Result<(), String> {
        let inside = format!("to-{}", host.suffix());
        let there = self.name(Place::Router);
        self.ip(host, &["link", "add", "eth0", "type", "veth", "peer", "name", &inside])?;
        self.ip(host, &["link", "set", &inside, "netns", &there])?;
        self.ip(host, &["addr", "add", &format!("{address}/24"), "dev", "eth0"])?;
        self.ip(Place::Router, &["addr", "add", &format!("{router}/24"), "dev", &inside])?;
        self.ip(host, &["link", "set", "eth0", "up"])?;
        self.ip(Place::Router, &["link", "set", &inside, "up"])?;
        self.ip(host, &["route", "add", "default", "via", router])
    }

    fn name(&self, place: Place) -> String {
        format!("{}{}", self.prefix, place.suffix())
    }

    /// Runs a command of `ip` in a namespace.
    pub(crate) fn ip(&self, place: Place, arguments: &[&str]) -> Result<(), String> {
        self.ip_outside(&[&["-n", &self.name(place)], arguments].concat())
    }

    fn ip_outside(&self, arguments: &[&str]) -> Result<(), String> {
        finished(Command::new("ip").args(arguments))
    }

    /// Runs a program in a namespace to its end.
    pub(crate) fn run(&self, place: Place, program: &str, args: &[&str]) -> Result<(), String> {
        finished(self.command(place, program).args(args))
    }

    /// Returns a command that runs in a namespace. Its process is the program's own.
    pub(crate) fn command(&self, place: Place, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name(place), program]);
        command
    }

    /// Cuts or restores the link of host B to the router.
    pub(crate) fn set_link(&self, up: bool) {
        let state = if up { "up" } else { "down" };
        self.ip(Place::Router, &["link", "set", "to-b", state]).expect("ip link set");
    }

    /// Loses everything that the router would send to host B, in that direction alone, or stops to.
    pub(crate) fn set_blackhole(&self, on: bool) {
        let change = if on { "add" } else { "del" };
        let route = format!("{HOST_B}/32");
        self.ip(Place::Router, &["route", change, "blackhole", &route]).expect("ip route");
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for place in [Place::A, Place::Router, Place::B] {
            let _ = self.ip_outside(&["netns", "del", &self.name(place)]);
        }
    }
}

fn finished(command: &mut Command) -> Result<(), String> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("cannot start {command:?}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(format!("{command:?} failed: {}", text.trim()))
}
