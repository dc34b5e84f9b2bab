//! What `many-senders` is, for somebody who meets it for the first time.

use tontine_bench::about::Explanation;

/// The explanation of `many-senders`.
pub(super) const EXPLANATION: Explanation = Explanation {
    about: &[
        "A mailbox has one reader and many senders. However many have connected, the reader \
         should not pay for those that are silent: were it to ask a thousand connections one by \
         one, every message would cost a thousand questions.",
        "And a sender should learn at once that the reader has died, rather than fill memory \
         that nobody will ever read.",
    ],
    steps: &[
        "`mailbox-idle`: two mailboxes are joined for a round trip, both ends spin; so many more \
         senders as `idle` says are connected to each and stay silent. The same is timed in the \
         same process without them.",
        "`mailbox-streams`: one process holds as many senders as `senders` says, goes round and \
         sends a burst of 16 messages of 8 bytes on each; the reader takes them all.",
        "`dead-send`: the reader dies; then a sender sends to it over and over, and each `send` \
         must answer EOWNERDEAD.",
    ],
    timing: "Time stamp counter. `mailbox-idle` as in `round-trip`, half a round, every hundredth \
             round stamped. The others by batches of 4,096 messages or sends, after a tenth as \
             many for warming up. Connecting is left out.",
    found: "",
    reading: "The line over `idle` should be level: then silence is free. The ratio beside it \
              compares both figures of one invocation. In `mailbox-streams` all senders belong to \
              one process, so that no switching between processes is in the figure; what grows \
              with their number is the memory that is touched. Needs two processors.",
    calls: &[
        (
            "mailbox-idle, mailbox-streams",
            "none to pass a message: both ends spin; an epoll_pwait now and then, for newcomers",
        ),
        ("dead-send", "none: the library has seen the death and remembers it"),
    ],
};
