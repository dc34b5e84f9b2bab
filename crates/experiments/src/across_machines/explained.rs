//! The text of `tontine explain across-machines`: [`EXPLANATION`].

use tontine_bench::about::Explanation;

/// Explanation of `across-machines`.
pub(super) const EXPLANATION: Explanation = Explanation {
    about: &[
        "A mailbox lies in memory that sender and receiver share, which two hosts do not have. A \
         gateway on each host closes the gap: a program sends into a mailbox of the gateway on its \
         own host, and that gateway carries the message to the gateway on the other host, which \
         sends it into the receiver's mailbox. The receiver's acknowledgement takes the same path \
         back, so a message that no process has acknowledged stays in the sender's memory.",
        "A program that opens a TCP connection itself reaches the other host without these two \
         steps, but its `write` only says that the kernel has taken the bytes. This experiment \
         shows the price of the difference: in the latency of one message, and in the number of \
         small messages per second.",
    ],
    steps: &[
        "Two network namespaces are created on this machine, and a veth pair joins them. Each \
         contains a program, and for `tontine` and `tontine-zenoh` a gateway, which is a process \
         of its own. For `nats` and `redis-stream`, host B contains the server too. The machine's \
         real network is not changed, and the namespaces end with their processes.",
        "`one by one`: the program on host A sends a message of 64 bytes, and the program on host \
         B sends one back. After a warm-up of a tenth as many, each of these round trips is timed. \
         For gateways, the same two programs first do so on one host, each sending into the \
         other's mailbox.",
        "`stream`: host A sends numbered messages of 64 bytes for a fixed time and waits until \
         host B has received them all: for gateways until the last one is acknowledged, for the \
         others until B's answer to the last one arrives. A quarter of this time is streamed \
         before, as a warm-up. B checks every number: if a message is lost, duplicated or out of \
         order, the row fails.",
    ],
    timing: "CLOCK_MONOTONIC, read between two round trips: `one_way` is half of each, \
             `one_way_local` the same on one host without gateways. `rate` is the number of \
             messages of the stream, divided by the time from the first send until all have \
             arrived. Creating the hosts, connecting and warming up are left out. No process is \
             pinned. One by one, every program sleeps while it waits; in a stream, mailboxes wait \
             as they do by default.",
    found: "",
    reading: "Compare the rows with each other, not with a network: the veth pair passes a packet \
              in the kernel without delay, so a real network adds the same time to every row, and \
              the ratios to `tcp` become smaller. `one_way_local` is the cost of a hop from one \
              process to another on one host, and a message through gateways takes two such hops \
              more. The path has four processes: on two processors they take turns, and other load \
              makes them wait for each other. In a stream, `tcp` makes a system call for each \
              message, which all other rows avoid; `tcp-buffered` is the ceiling, and its messages \
              wait until the buffer is full. The programs that talk to NATS and Redis collect \
              60 KiB in the same way, and spend less time than the clients of these projects: \
              their rows show the servers. Neither server writes to a disk; core NATS forgets a \
              message that it has forwarded, and no reader of the stream acknowledges an entry, so \
              both promise less than a mailbox. A server on a third host would add a hop.",
    calls: &[
        (
            "tontine",
            "in the programs as in `mailbox-sleep` of round-trip; in each gateway epoll_wait to \
             sleep, read and write on the TCP socket for each batch of messages and of \
             acknowledgements, and the doorbells of the mailboxes",
        ),
        (
            "tontine-zenoh",
            "as `tontine`, and futex to pass frames between the threads of the gateway; the \
             carrier's threads call epoll_wait, sendto and recvfrom",
        ),
        ("tcp", "write to send, read to wait"),
        ("tcp-buffered", "write for each 60 KiB of messages, read to wait"),
        (
            "zeromq-tcp",
            "poll to wait, and the eventfds by which the library wakes its thread; in this thread \
             epoll_wait, sendto and recvfrom",
        ),
        ("nats", "as `tcp-buffered`; in the server epoll_wait, read and write"),
        ("redis-stream", "as `tcp-buffered`; in the server epoll_wait, read and write"),
    ],
};
