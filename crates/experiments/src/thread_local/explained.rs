//! The text of `tontine explain thread-local`: [`EXPLANATION`].

use tontine_bench::about::Explanation;

/// Explanation of `thread-local`.
pub(super) const EXPLANATION: Explanation = Explanation {
    about: &[
        "Threads of one process share its global variables. To add one to a variable the processor \
         loads it, adds, and stores the sum. When two threads do that at the same time, both can \
         load the same value, and one of the two stores overwrites the other: an increment is lost \
         without any notice. That is a data race.",
        "There are two ways out. The threads take turns: an atomic instruction makes the three \
         steps one, a mutex lets one thread at a time through. Or they do not share: each thread \
         has its own copy of the variable, and the copies are added up at the end. Such a copy is \
         thread-local. C declares it with __thread (thread_local in C11), and on x86-64 it is an \
         ordinary memory access relative to the register FS, which points to another place in each \
         thread. POSIX has an older way: a key, and pthread_getspecific, a function call that \
         returns the calling thread's pointer for that key. errno is a thread-local variable.",
    ],
    steps: &[
        "One or two threads are started and pinned: two of them to two processors (cross-core) or \
         both to one (same-core).",
        "They wait for each other, so that none starts early.",
        "Each increments 10 million times, as in the source, with nothing else in its loop but a \
         counter in a register. A run with --quick does a tenth of that, the mutex always a tenth \
         of the others, and atomic and pthread-key a quarter in a run of default size.",
        "The increments that arrived are added up: in the variable that all share, or in each \
         thread's own.",
    ],
    timing: "One sample per invocation: from the moment at which the first thread starts counting \
             to the one at which the last has ended, divided by the increments of one thread. Two \
             threads on one processor therefore take at least twice the time of one. Starting and \
             joining the threads is outside. lost is the share of all increments that are missing \
             at the end.",
    found: "Source 003 (lecture notes, no machine named) has a program and no figures: two threads \
            that add 10 million times to a global variable and to a __thread variable. It says \
            that the global one ends with an unpredictable value and that the other one is always \
            right.",
    reading: "On two processors the shared variables are expensive because their cache line has to \
              travel from one processor's cache to the other's; thread-local and pthread-key cost \
              as much as with one thread, because their lines stay where they are. shared is not \
              cheap: it is wrong, by the share that lost says. On one processor only a switch \
              between a load and its store loses, but then all that the other thread has counted \
              meanwhile: lost goes from nothing to a half from one invocation to the next (to \
              nothing at all where the compiler makes one instruction of the three). That a test \
              on one processor loses nothing proves nothing. The counters of one invocation run \
              once, so p99 has no meaning here.",
    calls: &[
        ("shared, thread-local, pthread-key, atomic", "none"),
        (
            "mutex",
            "none if no thread waits; with two threads futex, to sleep until the lock is free and \
             to wake the one that sleeps",
        ),
    ],
};
