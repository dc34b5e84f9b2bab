//! Three network namespaces: host A, a router between them, host B.

use std::process::{Command, Stdio};

/// The namespaces of one run, removed when dropped.
pub(crate) struct Network {
    prefix: String,
}

/// A namespace of a [`Network`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HostNamespace {
    A,
    Router,
    B,
}

impl HostNamespace {
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
        for namespace in [HostNamespace::A, HostNamespace::Router, HostNamespace::B] {
            network.ip_outside(&["netns", "add", &network.name(namespace)])?;
            network.ip(namespace, &["link", "set", "lo", "up"])?;
        }
        network.join(HostNamespace::A, HOST_A, ROUTER_A)?;
        network.join(HostNamespace::B, HOST_B, ROUTER_B)?;
        network.run(HostNamespace::Router, "sysctl", &["-q", "-w", "net.ipv4.ip_forward=1"])?;
        Ok(network)
    }

    /// Connects a host with the router by a pair of interfaces, and makes the router its gateway.
    fn join(&self, host: HostNamespace, address: &str, router: &str) -> Result<(), String> {
        let inside = format!("to-{}", host.suffix());
        let there = self.name(HostNamespace::Router);
        self.ip(host, &["link", "add", "eth0", "type", "veth", "peer", "name", &inside])?;
        self.ip(host, &["link", "set", &inside, "netns", &there])?;
        self.ip(host, &["addr", "add", &format!("{address}/24"), "dev", "eth0"])?;
        self.ip(HostNamespace::Router, &["addr", "add", &format!("{router}/24"), "dev", &inside])?;
        self.ip(host, &["link", "set", "eth0", "up"])?;
        self.ip(HostNamespace::Router, &["link", "set", &inside, "up"])?;
        self.ip(host, &["route", "add", "default", "via", router])
    }

    fn name(&self, namespace: HostNamespace) -> String {
        format!("{}{}", self.prefix, namespace.suffix())
    }

    /// Runs a command of `ip` in a namespace.
    pub(crate) fn ip(&self, namespace: HostNamespace, arguments: &[&str]) -> Result<(), String> {
        self.ip_outside(&[&["-n", &self.name(namespace)], arguments].concat())
    }

    fn ip_outside(&self, arguments: &[&str]) -> Result<(), String> {
        finished(Command::new("ip").args(arguments))
    }

    /// Runs a program in a namespace to its end.
    pub(crate) fn run(
        &self,
        namespace: HostNamespace,
        program: &str,
        args: &[&str],
    ) -> Result<(), String> {
        finished(self.command(namespace, program).args(args))
    }

    /// Returns a command that runs in a namespace. Its process is the program's own.
    pub(crate) fn command(&self, namespace: HostNamespace, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name(namespace), program]);
        command
    }

    /// Cuts or restores the link of host B to the router.
    pub(crate) fn set_link(&self, up: bool) {
        let state = if up { "up" } else { "down" };
        self.ip(HostNamespace::Router, &["link", "set", "to-b", state]).expect("ip link set");
    }

    /// Loses everything that the router would send to host B, in that direction alone, or stops to.
    pub(crate) fn set_blackhole(&self, on: bool) {
        let change = if on { "add" } else { "del" };
        let route = format!("{HOST_B}/32");
        self.ip(HostNamespace::Router, &["route", change, "blackhole", &route]).expect("ip route");
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for namespace in [HostNamespace::A, HostNamespace::Router, HostNamespace::B] {
            let _ = self.ip_outside(&["netns", "del", &self.name(namespace)]);
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
