//! The text of `tontine explain lost-signals`.

use tontine_bench::about::Explanation;

pub(super) const EXPLANATION: Explanation = Explanation {
    about: &[
        "A signal is a number that the kernel delivers to a process. While a thread blocks it, it \
         is pending; once no thread that may take it blocks it, it is delivered: the thread's \
         program is interrupted and a function, the handler, runs; or a thread takes it from the \
         pending ones, by sigwait or by reading a signalfd.",
        "Signals are lost in two ways. A standard signal, such as SIGUSR1, is pending or it is \
         not: sent again while pending, it is still one. The two have merged, and the number of \
         handler runs does not show the number sent. (Real-time signals queue instead.) That is \
         how signals are defined.",
        "The other loss is a bug of the program: a missed wake-up. A thread that checks whether a \
         signal has arrived, sees none, and then calls pause to wait for one, stays asleep if the \
         signal arrives between check and pause: the handler has run by then, and pause waits for \
         the next. sigsuspend unblocks and waits in one step, so a signal that is blocked at all \
         other times cannot arrive between. sigwait and signalfd take what is pending; they have \
         no gap either.",
        "In a process of several threads a signal may be sent to the process (kill) or to one \
         thread (tgkill). In the first case any thread that does not block it may take it. POSIX \
         leaves the choice open; here it is counted.",
    ],
    steps: &[
        "A child process is forked. Its main thread blocks SIGUSR1 and sleeps; a second thread \
         waits for SIGUSR1 in a loop, in the variant's way, and after each return writes a byte \
         into a pipe: what the source's program prints.",
        "Sending acknowledged: the parent sends one signal to the process by kill, reads the pipe \
         until the byte arrives, and sends the next one at once. With a window of 1 µs or 10 µs \
         the thread works for that long between the byte and its next wait; `as it is`, it does \
         not.",
        "The variant library is tontine::signal, whose thread takes SIGUSR1 and calls a function \
         that does the same. It also gets real-time signals (SIGRTMIN), which queue.",
        "If the thread is seen asleep, twice with 50 µs between, while its byte is missing, the \
         wake-up was missed: kill sets a waiting thread running before it returns. The parent then \
         sends the signal again to wake it, and continues.",
        "Sending in bursts: the parent calls kill twenty times without waiting, waits until the \
         thread sleeps, and reads how many signals reached it and how many turns the loop made.",
        "process-directed: a child of four threads that all handle the signal (main may block it; \
         one may spin instead of sleeping). Each handler records the thread in which it ran. \
         thread-directed: the same, and tgkill names the four threads in turn.",
        "The first ten signals, or bursts, of an invocation are not counted, because both \
         processes are still cold.",
    ],
    timing: "Nothing is timed; events are counted. Sender and receiver are pinned to the \
             processors of the placement, except the four threads, which run where the kernel puts \
             them. No count depends on a timeout: if a thread neither answers nor sleeps for five \
             seconds, the row fails.",
    found: "The source (003) says of its first program, a handler and a loop over pause, that a \
            signal can be missed after the thread has unblocked it and before it pauses, and \
            advises sigsuspend; it shows sigwait as the cleaner way. It quotes the manual: of \
            several threads that do not block a signal, the kernel picks an arbitrary one. It \
            gives no figures.",
    reading: "lost: share of the signals sent that the loop never announced, for whatever reason. \
              Acknowledged, that is a missed wake-up: the thread slept although the signal had \
              arrived, and another signal had to wake it. missed: share of bursts after which the \
              thread slept although a signal had arrived since its last check (acknowledged, it \
              would be lost once more, and has no row). Only handler-pause can miss any. In bursts \
              almost all loss is merging: merged is the share that reached no thread because the \
              same signal was pending already. lost beyond merged are handler runs that the loop \
              did not tell apart: the handler ran twice between two checks of the loop. A share of \
              0 for handler-pause `as it is` does not prove the program right, only that no signal \
              hit the gap of some tens of nanoseconds: the signal takes longer to arrive than the \
              thread to reach pause. The library cannot undo the kernel's merging of standard \
              signals either; it loses no real-time ones. main_thread: share of signals that the \
              main thread took; same_thread: share taken by the thread that took the one before; \
              own_thread: share taken by the thread that tgkill named. Linux tries the main thread \
              first, whichever threads are running; POSIX does not promise that.",
    calls: &[
        ("handler-pause", "none timed; per signal kill, pause, rt_sigreturn, write, read"),
        (
            "handler-sigsuspend",
            "none timed; per signal kill, rt_sigsuspend, rt_sigreturn, write, read",
        ),
        ("sigwait-thread", "none timed; per signal kill, rt_sigtimedwait, write, read"),
        ("library", "none timed; per signal kill, rt_sigtimedwait, write, read"),
        ("signalfd", "none timed; per signal kill, read of the signalfd, write, read of the pipe"),
        ("process-directed", "none timed; per signal kill, gettid, rt_sigreturn, pause"),
        ("thread-directed", "none timed; per signal tgkill, gettid, rt_sigreturn, pause"),
    ],
};
