//! The text of `tontine explain false-sharing`: [`EXPLANATION`].

use tontine_bench::about::Explanation;

pub(super) const EXPLANATION: Explanation = Explanation {
    about: &[
        "A processor does not fetch single words from memory but whole cache lines, 64 bytes on \
         most machines. Each core keeps copies of lines in its own caches, and a protocol keeps \
         the copies alike: before a core may write to a line, it must hold the only valid copy, \
         and all others are invalidated.",
        "Two threads that write to one word pass its line back and forth: true sharing, which is \
         unavoidable. Two threads that write to different words pass the line back and forth as \
         well if both words happen to lie in it. The threads share no data, but the hardware \
         cannot know: false sharing. It can make a program slower with two threads than with one, \
         and nothing in its source shows why. An allocator that hands neighbouring blocks to \
         different threads causes it; so does a structure with a counter for each thread.",
        "The cure is distance: counters that are a line apart do not disturb each other. Some \
         processors fetch lines in pairs, so that 128 bytes may be better than 64; `distance` \
         shows it.",
    ],
    steps: &[
        "`one-line`: on the source's heap (`tontine::heap::classic`) allocate a block of 32 bytes, \
         which stays unused, then two of 8, a counter each. `two-lines`: the same with two blocks \
         of 64 bytes. `no-unused`: like `one-line` without the unused block, so that the line ends \
         between the two. `distance`: two words of one piece of memory that is aligned to 256 \
         bytes.",
        "`serial`: one thread, pinned, increments the first counter to the end, then the second.",
        "All others: first `serial`, for comparison; then two threads, each pinned to its own \
         processor, increment one counter each, at the same time. The second thread is started and \
         spins before the clock is read.",
        "`shared-heap`: the same by two processes, members of one `tontine::heap::shared`, which \
         allocate eight bytes each, one right after the other. The row fails if both blocks are in \
         one line.",
        "Check both counters: a lost increment fails the row. The quotient of the two times is \
         the ratio that is printed.",
    ],
    timing: "From just before the first increment of either counter to just after the last of \
             both, by fenced readings of the time-stamp counter on the first thread's processor. \
             Starting and joining the second thread is left out; the source times the whole \
             program. An increment is a relaxed load, an addition and a relaxed store of an \
             atomic word, all in one function that every variant calls: on x86-64 one `inc` on \
             memory, without a lock prefix. An invocation makes one pass; in a quick or a full \
             run five.",
    found: "Source 003 allocates the counters on its own heap and increments each 10,000,000 \
            times: 57 ms with one thread, 63 ms with two threads and both counters in one line, 33 \
            ms with two threads and a line for each. It says that without the unused block the \
            counters fall on separate lines, without a time. It does not name its machine; its \
            figures are shown next to these only if these count as far.",
    reading: "Without false sharing the ratio to `serial` is 0.5: two threads need half the time. \
              A ratio above 1 means that the second thread made it slower. A core that holds a \
              line makes many increments before the other one gets it, and the caches' protocol \
              decides how many, so the figures of a shared line vary more than the others, from \
              run to run and from machine to machine. `serial` itself is bound by the time from a \
              store to the load that needs its value, a few cycles, less on processors that pass \
              it on inside the core. In a virtual machine two processors may be two threads of one \
              core, which share its caches: then nothing is passed, and the ratio shows it. A \
              neighbour that uses one of the two processors doubles a figure.",
    calls: &[("all", "none")],
};
