//! Frames in the network, in an order that does not depend on the order of sending: [`Packet`].

use std::rc::Rc;

use tontine_gateway::frame::Header;

use super::setting::digest;

/// A frame in the network.
#[derive(Debug)]
pub(crate) struct Packet {
    digest: u64,
    pub(crate) header: Header,
    pub(crate) payload: Vec<u8>,
}

impl std::hash::Hash for Packet {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        state.write_u64(self.digest);
    }
}

/// Inserts a frame in an order that depends on the frames only, so that worlds which differ in the
/// order of sending are the same.
pub(crate) fn insert(packets: &mut Vec<Rc<Packet>>, header: Header, payload: &[u8]) {
    let digest = digest(&(header, payload));
    let at = packets.partition_point(|packet| packet.digest <= digest);
    packets.insert(at, Rc::new(Packet { digest, header, payload: payload.to_vec() }));
}

/// Returns a frame, which stays in the network if `keep`.
pub(crate) fn take(packets: &mut Vec<Rc<Packet>>, index: usize, keep: bool) -> Rc<Packet> {
    if keep { Rc::clone(&packets[index]) } else { packets.remove(index) }
}

/// Returns the indices of the packets, without a second packet of the same contents.
pub(crate) fn distinct(packets: &[Rc<Packet>]) -> impl Iterator<Item = usize> + '_ {
    let differs =
        |index: &usize| *index == 0 || packets[*index].digest != packets[index - 1].digest;
    (0..packets.len()).filter(differs)
}
