//! The text of `tontine explain reentrancy`.

use tontine_bench::about::Explanation;

pub(super) const EXPLANATION: Explanation = Explanation {
    about: &[
        "A function is reentrant if it may be called again before an earlier call has returned: by \
         another thread that runs at the same time, or by a signal handler that interrupts the \
         call in its own thread. It is thread-safe if the first is allowed, and async-signal-safe \
         if the second is. A reentrant function is both; the two are not the same.",
        "strtok splits a text word by word and keeps its position in a static variable. Any other \
         caller moves that position. strtok_r does the same work, but its caller provides the \
         variable, so that nothing is shared.",
        "The functions of stdio share the buffer of their FILE and are thread-safe because each \
         call takes a lock that belongs to the FILE. One call is whole; a line printed in several \
         calls is not, unless flockfile holds the lock over all of them. That works because the \
         lock is recursive: its owner may take it again.",
        "A lock makes nothing async-signal-safe. The handler runs in the thread that it \
         interrupted; if that thread holds a plain lock, the handler waits for a thread that waits \
         for the handler: a deadlock. A recursive lock lets the handler in, and so exposes data \
         that is half updated. Blocking the signal while the lock is held avoids both, for two \
         system calls. Or no handler runs at all: a thread takes the signal as a value and waits \
         for the lock as any other thread does.",
    ],
    steps: &[
        "From two threads: a child process runs two threads on the two processors of the \
         placement. For strtok each splits a text of its own and compares the words with what they \
         should be. For stdio each prints numbered lines of seven calls of fputs into one file; \
         afterwards the parent looks for each line.",
        "From a handler: a child repeats one operation; the parent waits until it is at work and \
         sends it SIGUSR1 after a pause of random length, up to 4 µs. The handler does the same \
         operation once more: another text, a line of its own, or taking the lock and comparing \
         two words that belong together. Half of an operation lies between the change of the first \
         word and that of the second.",
        "An operation that a handler interrupted is checked: were the words right, is the line \
         whole in the file? With the locks the handler checks. Checking takes longer than the \
         operation, so the parent waits until it is over. A signal that still arrives between two \
         operations does nothing, is not counted, and is sent again.",
        "In thread-plain-lock the child has no handler: tontine::signal's thread takes SIGUSR1 \
         and, if it arrived during an operation, takes the lock and compares the words.",
        "If a handler interrupted a child, and the child is asleep at every check for a \
         millisecond before its next operation, it counts as deadlocked; it is killed and \
         replaced. Everything that is undefined or may hang happens in such children; the parent \
         reads only their counters.",
        "Last, in the first cell of each variant, the cost of an undisturbed operation is \
         measured: a hundred at a time, pinned, in the presence of a sleeping second thread, \
         because in a process of one thread the C library leaves locks out.",
    ],
    timing: "Only operation is timed: fenced stamps around a hundred operations, divided by a \
             hundred, in one thread on the first processor of the placement. It has one row per \
             variant, in the cell that is listed first, since nothing is entered again here. For \
             strtok an operation is a text of eight words copied, split and compared; for stdio a \
             line of seven fputs to /dev/null; for the locks a change of both words without work \
             between, with its lock and, masked, its two changes of the mask.",
    found: "The source (003) names strtok and strtok_r as a function that is not reentrant and its \
            reentrant version; says that stdio is thread-safe by a recursive lock, which flockfile \
            exposes, and for that reason does not deadlock in a handler, but is not \
            async-signal-safe because of its static buffers; that a handler which takes a plain \
            lock deadlocks; and that blocking the signals makes a function async-signal-safe. It \
            gives no figures.",
    reading: "corrupted: from two threads, the share of all operations that came out wrong; from a \
              handler, the share of interrupted ones, or with locks, of the handlers that got the \
              lock. deadlocked: share of the signals that interrupted an operation after which it \
              never ended, because the handler did not. An event that did not occur is shown as 0 \
              of N, which promises nothing: undefined behaviour may give another result elsewhere, \
              and a narrow window is seldom hit. A plain lock deadlocks in proportion to the time \
              for which it is held, here by design about half. glibc's recursive lock of a FILE is \
              no exception: between taking it and recording its owner there are a few \
              instructions, and a handler that arrives there and prints deadlocks too. A line \
              under flockfile is safe from other threads and not from a handler in its own.",
    calls: &[
        ("strtok, strtok-r", "none"),
        ("stdio, stdio-flockfile", "write, once per buffer of output, about 100 lines"),
        ("handler-plain-lock, handler-recursive-lock", "none: the lock is free"),
        ("thread-plain-lock", "none: the signal is blocked, always"),
        ("handler-masked", "rt_sigprocmask twice per operation"),
    ],
};
