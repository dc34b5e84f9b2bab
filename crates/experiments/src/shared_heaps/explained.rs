//! `shared-heaps` in words.

use tontine_bench::about::Explanation;

pub(super) const EXPLANATION: Explanation = Explanation {
    about: &[
        "A heap in shared memory hands out blocks that every process of a program may read, pass \
         on and free. The usual one is Boost.Interprocess's `managed_shared_memory`: a tree of \
         free pieces, and one mutex that lies beside it in the shared memory. All processes queue \
         for the mutex, and one that is killed while it has it takes it along: it is never given \
         back, and whoever allocates next waits for ever.",
        "`tontine::heap::shared` has no lock: each thread of each process allocates from slabs of \
         its own, and one word for each block, outside of it, says whose it is. What a killed \
         process had is freed by whoever is told of its end.",
        "An allocator of one process, such as mimalloc or jemalloc, has no such peers: its threads \
         die together. It is what a shared heap is compared with by those who think of threads \
         instead of processes.",
        "The benchmarks are those by which the literature compares allocators, written anew after \
         what their authors say of them. They ask for different things: how fast blocks come and \
         go with one owner (`threadtest`), whether small blocks of two owners share a cache line \
         (`cache-thrash`, `cache-scratch`), and what it costs when somebody else frees a block \
         (`larson`, `xmalloc-test`, `producer-consumer`, `mstress`).",
    ],
    steps: &[
        "`threadtest` (Berger and others, Hoard, 2000): allocate 10,000 blocks of 64 bytes, free \
         them all, and again.",
        "`cache-thrash` (the same): allocate a block of 16 bytes, write a word of it 1,000 times, \
         free it, and again. `cache-scratch`: the same, but the first worker has allocated a block \
         for each of them, one after the other, and each begins with writing and freeing the one \
         that it got.",
        "`larson` (Larson and Krishnan, 1998): a set of 1,000 blocks of 8 to 999 bytes; free one \
         drawn at random and allocate another in its place. After 10,000 of these the whole set \
         goes to the next worker, and the worker goes on with the set of the one before. In the \
         original a new thread takes it over.",
        "`xmalloc-test` (Lever and Boreham, 2000): half of the workers allocate blocks of 16 to \
         512 bytes and pass them on, 64 at a time; the other half free them.",
        "`mstress` (Leijen and others, mimalloc, 2019): 1,000 places, of which one drawn at random \
         is filled or emptied; sizes from 8 bytes to 64 KiB, each doubling half as likely as the \
         one before; of four blocks that are emptied out one goes to a worker drawn at random, who \
         keeps it in turn.",
        "`producer-consumer` (Michael, 2004): one worker allocates tasks, blocks of 80 to 160 \
         bytes, and fills them; the others in turn read and free them.",
        "A worker is a process, or a thread where the variant says so, number i on processor i, \
         and so round. What is passed on goes through rings in shared memory with 1,024 places, \
         one from each worker to each, the same for all heaps.",
        "Each block's first word says whose it is, or which entry of which ring, and is read \
         before the block is freed or passed on: a heap that hands out one piece of memory twice \
         fails the row.",
        "`-killed`: in each second, at a random moment, a worker drawn at random is killed with \
         SIGKILL and reaped, and another process takes its place. Where nobody frees a block for \
         400 ms after that, the heap is wedged: the row says since when, and the rest of its time \
         counts as nothing done.",
        "Behind what is timed, `shared-killed` stops all workers, kills one of them, and looks at \
         the heap with `check`, before and after it has called `recover_and_trim`: the maps in \
         the report.",
        "`shared-reclaim`: a process allocates 1,000,000 blocks of 64 bytes and is killed and \
         reaped; another one calls `recover`, then `recover_and_trim`. The row fails where not all \
         blocks are free behind the first call, or not all memory is given back behind the second.",
        "At the end of every row of tontine's heap all processes have ended, the dead are looked \
         after, and `check` has to find every block free and nothing wrong.",
        "Boost's part is compiled by the machine's `c++` when it is measured, and loaded by the \
         processes. mimalloc and jemalloc are there only in a program built with the feature \
         `allocators`.",
    ],
    timing: "`freed` is how many blocks all workers together have freed in a tenth of the time \
             (in 100 ms, if that is less), by CLOCK_MONOTONIC; the mean stands for the invocation. \
             A quarter of the time goes before it. Drawing sizes and places, writing and reading \
             the first word, and the rings are inside, the same for all heaps. `wedged` is 1 \
             where the heap wedged, else 0. `reclaimed` is the time of one call of `recover`, by \
             fenced readings of the time-stamp counter: the proof that the process has ended, and \
             all its blocks; `given_back` that of `recover_and_trim` behind it: the kernel takes \
             the memory.",
    found: "",
    reading: "More is better. Compare rows of the same benchmark and as many workers. \
             `cache-thrash` and `cache-scratch` are bound by their writes: where a row is far \
             below the others, two workers write into one cache line. With a kill a second some \
             of the blocks are missing because one worker of all is away until its successor has \
             sat down, and what it had is looked after; a wedged row shows how long the heap \
             lived, which is chance: the kill has to meet the lock. The figures say nothing of \
             how much memory is held back.",
    calls: &[
        ("boost, boost-killed", "futex, where processes contend for the mutex"),
        (
            "shared, shared-killed, shared-threads",
            "fallocate, for slabs that are taken or given back; with a kill a second fcntl, by \
             which the end of a process is proved",
        ),
        ("shared-reclaim", "fcntl, to prove the end; fallocate, to give slabs back"),
        (
            "others",
            "none most of the time; now and then memory is asked for or given back: mmap, munmap, \
             madvise, brk",
        ),
        ("all, waiting for room in a ring", "sched_yield"),
    ],
};
