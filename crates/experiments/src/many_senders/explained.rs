//! The text of `tontine explain many-senders`: [`EXPLANATION`].

use tontine_bench::about::Explanation;

/// Explanation of `many-senders`.
pub(super) const EXPLANATION: Explanation = Explanation {
    about: &[
        "A mailbox has one receiver and many senders. However many are connected, the receiver \
         should not pay for silent ones: if it polled a thousand connections one by one, every \
         message would cost a thousand polls.",
        "And a sender should learn immediately that the receiver has died, rather than fill memory \
         that no process will ever read.",
    ],
    steps: &[
        "`mailbox-idle`: two mailboxes are connected for a round trip, and both ends spin; `idle` \
         more senders connect to each and stay silent. The same is timed in the same process \
         without them.",
        "`mailbox-streams`: one process holds as many senders as `senders` says, and sends a burst \
         of 16 messages of 8 bytes on each in turn; the receiver takes them all.",
        "`dead-send`: the receiver dies; then a sender sends to it over and over, and each `send` \
         must return EOWNERDEAD.",
    ],
    timing: "Time stamp counter. `mailbox-idle` as in `round-trip`, half a round, every hundredth \
             round stamped. The others in batches of 4,096 messages or sends, after a tenth as \
             many for warm-up. Connecting is left out.",
    found: "",
    reading: "The line over `idle` should be level: then silent senders cost nothing. The ratio \
              next to it compares both figures of one invocation. In `mailbox-streams` all senders \
              belong to one process, so that no switching between processes is in the figure. What \
              grows with their number is the touched memory. Needs two processors.",
    calls: &[
        (
            "mailbox-idle, mailbox-streams",
            "none to pass a message: both ends spin; an epoll_pwait now and then, for new senders",
        ),
        ("dead-send", "none: the library has seen the death and remembers it"),
    ],
};
