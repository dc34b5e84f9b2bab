//! Creation of network devices by messages to the kernel: [`Netlink`].
//!
//! The `ip` command is not needed, because some machines lack it. Requests act on the network
//! namespace in which the socket was opened. Only the requests that connect two namespaces are
//! implemented: create a bridge, create a veth pair with one end elsewhere, add an address, enable
//! a device. [`super::namespaces`] creates the namespaces. No request removes a device, because
//! devices are removed with their namespace.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::OwnedFd;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use rustix::net::netdevice::name_to_index;
use rustix::net::{RecvFlags, SendFlags, SocketFlags, SocketType, recv, send};
use rustix::process::Pid;

use crate::error::{ErrorContext, Result};

/// Maximum length of a reply: an error and the request that caused it.
const LONGEST_ANSWER: usize = 8 << 10;

/// A socket for the kernel's network configuration.
#[derive(Debug)]
pub struct Netlink {
    socket: OwnedFd,
    sequence: u32,
}

impl Netlink {
    /// Opens a socket for the network namespace of the calling thread.
    ///
    /// # Errors
    /// Returns `Skipped` if the system has no such sockets.
    pub fn open() -> Result<Self> {
        let socket = rustix::net::socket_with(
            rustix::net::AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            // NETLINK_ROUTE is protocol 0, the default.
            None,
        )
        .setting_up("socket(AF_NETLINK)")?;
        Ok(Self { socket, sequence: 0 })
    }

    /// Creates a bridge.
    ///
    /// # Errors
    /// Returns `Skipped` if the kernel has no bridges or forbids creating one.
    pub fn add_bridge(&mut self, name: &str) -> Result<()> {
        let mut bridge = LinkMessage::default();
        let kind = vec![LinkInfo::Kind(InfoKind::Bridge)];
        bridge.attributes = vec![LinkAttribute::IfName(name.into()), LinkAttribute::LinkInfo(kind)];
        self.create(RouteNetlinkMessage::NewLink(bridge)).setting_up("netlink: creating a bridge")
    }

    /// Creates a veth pair: one end, `name`, is a port of `bridge` here; the other end, `far`, is
    /// in the network namespace of a process.
    ///
    /// # Errors
    /// Returns `Skipped` if the kernel has no such pairs or forbids creating one.
    pub fn add_pair(&mut self, name: &str, bridge: &str, far: &str, process: Pid) -> Result<()> {
        let bridge = self.index(bridge)?;
        self.add_veth(name, far, process, Some(bridge))
    }

    /// Creates a veth pair: one end, `name`, is here; the other end, `far`, is in the network
    /// namespace of a process.
    ///
    /// # Errors
    /// Returns `Skipped` if the kernel has no such pairs or forbids creating one.
    pub fn add_cable(&mut self, name: &str, far: &str, process: Pid) -> Result<()> {
        self.add_veth(name, far, process, None)
    }

    fn add_veth(&mut self, name: &str, far: &str, process: Pid, bridge: Option<u32>) -> Result<()> {
        let mut peer = LinkMessage::default();
        let pid = process.as_raw_nonzero().get().cast_unsigned();
        peer.attributes = vec![LinkAttribute::IfName(far.into()), LinkAttribute::NetNsPid(pid)];
        let mut pair = LinkMessage::default();
        let kind = vec![
            LinkInfo::Kind(InfoKind::Veth),
            LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
        ];
        pair.attributes = vec![LinkAttribute::IfName(name.into()), LinkAttribute::LinkInfo(kind)];
        pair.attributes.extend(bridge.map(LinkAttribute::Controller));
        self.create(RouteNetlinkMessage::NewLink(pair)).setting_up("netlink: creating a veth pair")
    }

    /// Adds an address in a /24 network to a device.
    ///
    /// # Errors
    /// Returns `Skipped` if the kernel refuses it.
    pub fn add_address(&mut self, name: &str, address: Ipv4Addr) -> Result<()> {
        let mut message = AddressMessage::default();
        message.header.family = AddressFamily::Inet;
        message.header.prefix_len = 24;
        message.header.index = self.index(name)?;
        let address = IpAddr::V4(address);
        message.attributes =
            vec![AddressAttribute::Local(address), AddressAttribute::Address(address)];
        self.create(RouteNetlinkMessage::NewAddress(message))
            .setting_up("netlink: adding an address")
    }

    /// Enables a device.
    ///
    /// # Errors
    /// Returns `Skipped` if the kernel refuses it.
    pub fn up(&mut self, name: &str) -> Result<()> {
        let mut device = LinkMessage::default();
        device.header.index = self.index(name)?;
        device.header.flags = LinkFlags::Up;
        device.header.change_mask = LinkFlags::Up;
        self.ask(0, RouteNetlinkMessage::SetLink(device)).setting_up("netlink: enabling a device")
    }

    fn index(&self, name: &str) -> Result<u32> {
        name_to_index(&self.socket, name).during("ioctl(SIOCGIFINDEX)")
    }

    fn create(&mut self, message: RouteNetlinkMessage) -> io::Result<()> {
        self.ask(NLM_F_CREATE | NLM_F_EXCL, message)
    }

    /// Sends one request and waits for its acknowledgement, which the kernel sends immediately.
    fn ask(&mut self, flags: u16, message: RouteNetlinkMessage) -> io::Result<()> {
        self.sequence += 1;
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
        header.sequence_number = self.sequence;
        let mut request = NetlinkMessage::new(header, NetlinkPayload::from(message));
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        send(&self.socket, &bytes, SendFlags::empty())?;
        let mut answer = vec![0_u8; LONGEST_ANSWER];
        let (length, _) = recv(&self.socket, &mut answer[..], RecvFlags::empty())?;
        let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&answer[..length])
            .map_err(io::Error::other)?;
        match answer.payload {
            NetlinkPayload::Error(told) => match told.code {
                None => Ok(()),
                Some(code) => Err(io::Error::from_raw_os_error(code.get().saturating_neg())),
            },
            other => Err(io::Error::other(format!(
                "expected an acknowledgement of the kernel, found {other:?}"
            ))),
        }
    }
}
