//! The library's mailbox, one at each end, with a sender to the other.
//!
//! A `recv` waits for whoever sends next and says nothing of a sender that died, so who waits for
//! an answer waits on the mailbox's descriptor and looks whether the lane is still there. What the
//! dead one had not acknowledged is taken back.

use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::SocketType;
use tontine::Error;
use tontine::mailbox::{Mailbox, Options, Sender, Waiting};
use tontine_host::peer::Peer;
use tontine_host::trouble::{During, Result, Trouble};
use tontine_mechanisms::descriptor::unix_pair;
use tontine_mechanisms::mailbox::{
    announced, failed, life, refused, until_announced, until_welcome,
};

use super::message::{Claim, Message, claim};
use super::player::{End, Ended};

/// Both ends.
pub(super) fn pair() -> Result<(Correspondent, Correspondent)> {
    let (ask, asked) = unix_pair(SocketType::SEQPACKET)?;
    let (answer, answered) = unix_pair(SocketType::SEQPACKET)?;
    let end = |out, back| Correspondent::Sockets(Some((out, back)));
    Ok((end(ask, answered), end(answer, asked)))
}

pub(super) enum Correspondent {
    /// Before the fork: what it sends over, what it receives from.
    Sockets(Option<(OwnedFd, OwnedFd)>),
    /// After it.
    Open(Box<(Sender, Mailbox)>),
}

impl Correspondent {
    fn ends(&mut self) -> std::result::Result<(&mut Sender, &mut Mailbox), Ended> {
        match self {
            Self::Open(ends) => Ok((&mut ends.0, &mut ends.1)),
            Self::Sockets(_) => Err(Trouble::fail("the mailbox is not open").into()),
        }
    }
}

impl End for Correspondent {
    fn open(&mut self) -> Result<()> {
        let Self::Sockets(sockets) = self else { return Ok(()) };
        let (out, back) = sockets.take().ok_or_else(|| Trouble::fail("opened twice"))?;
        let options = Options::new().waiting(Waiting::Sleep);
        life()?;
        let mut mailbox = options.unbound().map_err(refused)?;
        let mut sender = announced(&options, out)?;
        mailbox.adopt(back).map_err(refused)?;
        until_announced(&mut mailbox, &[])?;
        until_welcome(&mut sender, Peer::Parent)?;
        *self = Self::Open(Box::new((sender, mailbox)));
        Ok(())
    }

    fn send(&mut self, _: u64, message: &Message) -> std::result::Result<(), Ended> {
        match self.ends()?.0.send(message) {
            Ok(()) => Ok(()),
            Err(Error::OwnerDied { .. }) => Err(Ended::Gone),
            Err(error) => Err(failed("send")(error).into()),
        }
    }

    fn receive(&mut self) -> std::result::Result<Claim, Ended> {
        let (_, mailbox) = self.ends()?;
        loop {
            match mailbox.try_recv() {
                Ok(message) => return Ok(claim(&message)),
                Err(Error::WouldBlock) => {}
                Err(error) => return Err(failed("recv")(error).into()),
            }
            if mailbox.lanes() == 0 {
                return Err(Ended::Gone);
            }
            if mailbox.arm().map_err(failed("arm"))? {
                let descriptor = mailbox.descriptor();
                match poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], None) {
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(error) => return Err(error).during("poll").map_err(Ended::from),
                }
            }
        }
    }

    fn take_back(&mut self) -> bool {
        let unread = self.ends().ok().and_then(|(sender, _)| sender.unread().ok());
        unread.is_some_and(|unread| !unread.is_empty())
    }
}
