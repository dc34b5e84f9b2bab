//! `mailbox-causal`: a mailbox that receives in causal order, by the stamp of each message.

use tontine::mailbox::{Mailbox, Options, Order, Sender, WaitStrategy};
use tontine_bench::about::Idling;
use tontine_bench::error::Result;

use super::ends::{ByPath, KILLED, path, two_posts};
use super::{Correspondent, Post, refused};
use crate::about::{Explored, Listing, Mechanism, RowKind};
use crate::driver::{NamedDriver, PairDriver, PairHalves};
use crate::end::Peers;
use crate::location::Location;
use crate::operation::Operation;

/// Like [`super::ends::FIRST_CHUNK`], with a stamp of 8 bytes before each message.
const FIRST_CHUNK: u32 = 48;

pub const CAUSAL: Mechanism = Mechanism {
    idle: Idling::Spins,
    shared_up_to: usize::MAX,
    explored: Some(Explored {
        own: true,
        delivers_again: true,
        ..Explored::new(
            "mailbox-causal",
            "Tontine's mailbox, whose receiver keeps the order between senders",
            &[
                Operation::Send,
                Operation::SendWaking,
                Operation::Grow,
                Operation::Receive,
                Operation::ReceiveEmpty,
            ],
            || FIRST_CHUNK,
        )
    }),
    ..Mechanism::new(
        "mailbox-causal",
        KILLED,
        &[
            Listing::new(
                RowKind::RoundTrip,
                "a tontine mailbox at each end that receives in causal order, 8 bytes per message, \
                 both processes spin",
            ),
            Listing::new(
                RowKind::Throughput,
                "a tontine mailbox that receives in causal order, copied in and out; processes",
            ),
        ],
    )
};

pub struct Causal;

impl PairDriver for Causal {
    type Half = Post;
    type End<const BYTES: usize> = Correspondent;

    fn pair(_: usize) -> Result<PairHalves<Post>> {
        two_posts()
    }

    fn open<const BYTES: usize>(post: Post, peers: Peers<'_>) -> Result<Correspondent> {
        let options = Options::new().wait_strategy(WaitStrategy::Spin);
        post.open_in_order(&options, Order::Causal, peers)
    }
}

impl NamedDriver for Causal {
    type Out = Sender;
    type In = Mailbox;

    fn sender(at: &Location) -> Result<Sender> {
        ByPath::<false>::sender(at)
    }

    fn receiver(at: &Location) -> Result<Mailbox> {
        ByPath::<false>::options().order(Order::Causal).bind(path(at)).map_err(refused)
    }
}
