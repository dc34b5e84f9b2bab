//! The text of `tontine explain shared-heaps`: [`EXPLANATION`].

use tontine_bench::about::Explanation;

pub(super) const EXPLANATION: Explanation = Explanation {
    about: &[
        "A heap in shared memory hands out blocks that every process of a program may read, pass \
         on and free. The usual one is Boost.Interprocess's `managed_shared_memory`: a tree of \
         free pieces, and one mutex next to it in the shared memory. All processes queue for the \
         mutex, and if one is killed while it holds it, the mutex is never released: the next \
         process that allocates waits indefinitely.",
        "`tontine::heap::shared` has no lock: each thread of each process allocates from its own \
         slabs, and one word for each block, outside of it, names its owner. A process that is \
         notified of the end of a killed one frees its blocks.",
        "An allocator of one process, such as mimalloc or jemalloc, has no such peers: its threads \
         die together. It is the comparison for programs that could use threads instead of \
         processes.",
        "The benchmarks are those by which the literature compares allocators, written again from \
         the descriptions of their authors. They measure different things: how fast blocks are \
         allocated and freed by one owner (`threadtest`), whether small blocks of two owners share \
         a cache line (`cache-thrash`, `cache-scratch`), and what it costs when another worker \
         frees a block (`larson`, `xmalloc-test`, `producer-consumer`, `mstress`).",
    ],
    steps: &[
        "`threadtest` (Berger and others, Hoard, 2000): allocate 10,000 blocks of 64 bytes, free \
         them all, and again.",
        "`cache-thrash` (the same): allocate a block of 16 bytes, write a word of it 1,000 times, \
         free it, and again. `cache-scratch`: the same, but the first worker has allocated a block \
         for each of them, one after the other, and each begins by writing and freeing the one \
         that it got.",
        "`larson` (Larson and Krishnan, 1998): a set of 1,000 blocks of 8 to 999 bytes; free one \
         drawn at random and allocate another in its place. After 10,000 of these the whole set \
         goes to the next worker, and the worker continues with the set of the previous one. In \
         the original a new thread takes it over.",
        "`xmalloc-test` (Lever and Boreham, 2000): half of the workers allocate blocks of 16 to \
         512 bytes and pass them on, 64 at a time; the other half free them.",
        "`mstress` (Leijen and others, mimalloc, 2019): 1,000 slots, of which one drawn at random \
         is filled or emptied; sizes from 8 bytes to 64 KiB, each doubling half as likely as the \
         one before; of four blocks that are emptied out one goes to a worker drawn at random, \
         which keeps it in turn.",
        "`producer-consumer` (Michael, 2004): one worker allocates tasks, blocks of 80 to 160 \
         bytes, and fills them; the others in turn read and free them.",
        "A worker is a process, or a thread where the variant says so, number i on processor i, \
         modulo their number. Blocks are passed on through rings in shared memory with 1,024 \
         slots, one from each worker to each, the same for all heaps.",
        "Each block's first word names its owner, or its entry of a ring, and is read before the \
         block is freed or passed on: if a heap hands out one piece of memory twice, the row \
         fails.",
        "`-killed`: in each second, at a random moment, a worker drawn at random is killed with \
         SIGKILL and reaped, and another process takes its place. If no block is freed for 400 ms \
         after that, the heap is wedged: the row says since when, and counts nothing for the rest \
         of its time.",
        "After the timed part, `shared-killed` stops all workers, kills one of them, and inspects \
         the heap with `check`, before and after it has called `recover_and_trim`: the maps in \
         the report.",
        "`shared-reclaim`: a process allocates 1,000,000 blocks of 64 bytes and is killed and \
         reaped; another one calls `recover`, then `recover_and_trim`. The row fails unless all \
         blocks are free after the first call, and all memory is given back after the second.",
        "At the end of every row of tontine's heap all processes have ended, dead members are \
         recovered, and `check` must find every block free and no error.",
        "Boost's part is compiled by the machine's `c++` when it is measured, and loaded by the \
         processes. mimalloc and jemalloc exist only in a program built with the feature \
         `allocators`.",
    ],
    timing: "`freed` is how many blocks all workers together have freed in a tenth of the time \
             (in 100 ms, if that is less), by CLOCK_MONOTONIC; the mean stands for the \
             invocation. A quarter of the time is warm-up before it. Drawing sizes and slots, \
             writing and reading the first word, and the rings are inside, the same for all \
             heaps. `wedged` is 1 if the heap wedged, else 0. `reclaimed` is the time of one call \
             of `recover`, by fenced readings of the time-stamp counter: the proof that the \
             process has ended, and all its blocks; `given_back` that of the `recover_and_trim` \
             after it: the kernel takes the memory.",
    found: "",
    reading: "More is better. Compare rows of the same benchmark and number of workers. \
              `cache-thrash` and `cache-scratch` are bound by their writes: if a row is far below \
              the others, two workers write into one cache line. With a kill per second some of \
              the blocks are missing because one worker is absent until its successor has started \
              and its blocks are recovered; a wedged row shows how long the heap lived, which is \
              chance: the kill has to hit while the lock is held. The figures do not show how much \
              memory is held back.",
    calls: &[
        ("boost, boost-killed", "futex, if processes contend for the mutex"),
        (
            "shared, shared-killed, shared-threads",
            "fallocate, for slabs that are taken or given back; with a kill per second fcntl, \
             which proves the end of a process",
        ),
        ("shared-reclaim", "fcntl, to prove the end; fallocate, to give slabs back"),
        (
            "others",
            "none most of the time; now and then memory is asked for or given back: mmap, munmap, \
             madvise, brk",
        ),
        ("all, waiting for space in a ring", "sched_yield"),
    ],
};
