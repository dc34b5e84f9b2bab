//! The text of `tontine explain core-to-core`: [`EXPLANATION`].

use tontine_bench::about::Explanation;

pub(super) const EXPLANATION: Explanation = Explanation {
    about: &[
        "Two processors exchange data by passing cache lines. How long a line takes depends on \
         the way between them: two hardware threads of one core share its caches, two cores may \
         share the last-level cache or lie on different dies, and two sockets are connected by a \
         link. A program that places its processes well can be several times as fast as one that \
         does not.",
        "This experiment measures every pair of processors: a flag that both ends write (one \
         line), a flag for each direction (two lines), and the mailbox. A mailbox cannot use one \
         line, because each process may write only its own memory, so the second flag is its \
         floor.",
    ],
    steps: &[
        "For each pair of processors that this process may use: fork, and pin each end to its \
         processor. A quick run takes at most eight processors, at even distances.",
        "Each flag tries its loop with and without a pause, and times the faster one.",
        "One message there and one back; half of that time is `one_way`.",
    ],
    timing: "As in `round-trip`: every hundredth round is stamped. A round trip crosses the pair \
             in both directions, so each pair is measured once.",
    found: "No source measured it.",
    reading: "The maps in the report show which processors are near each other. The run also \
              writes `core-to-core-VARIANT.csv`: a table without a header, whose line i and column \
              j have the latency in nanoseconds between the i-th and the j-th processor, below the \
              diagonal. The notebook of the project core-to-core-latency reads this form. In a \
              virtual machine the hypervisor may move its processors at any time, so that a pair \
              is near in one run and far in the next.",
    calls: &[
        ("flag-one-line, flag-two-lines", "none: both ends only read and write memory"),
        ("mailbox-spin", "none to pass a message; one epoll_pwait per some hundred polls"),
    ],
};
