//! The text of `tontine explain allocators`: [`EXPLANATION`].

use tontine_bench::about::Explanation;

pub(super) const EXPLANATION: Explanation = Explanation {
    about: &[
        "`malloc` hands out blocks of memory, `free` takes them back. Both use a data structure \
         that all threads of a process share: which pieces are free, and how large they are. With \
         one lock around it every call is correct, and all threads queue for the lock. The \
         source's own heap (`classic`) is of this kind, from a textbook: blocks in the order of \
         their addresses, each with its size at both ends. To find a free one it walks from block \
         to block: to the first that is large enough, to the next one from its last position, or \
         to the smallest sufficient one.",
        "Modern allocators therefore give each thread its own memory. glibc keeps several \
         arenas, each a heap with its own lock, and spreads the threads over them; in front of \
         that, a small cache for each thread (seven blocks of each size) needs no lock at all. \
         jemalloc has arenas and larger caches. mimalloc and snmalloc give whole pages to a \
         thread, which then allocates from them without synchronisation.",
        "Memory of one thread becomes a problem when another thread frees it: a remote free, usual \
         when one thread produces messages and another consumes them. The block has to return to \
         its origin (mimalloc, and snmalloc by a queue of messages), or the memory moves from the \
         producer's share to the consumer's (caches), or a lock is taken after all (glibc's \
         arenas).",
        "`tontine::heap::shared` is made for many processes, any of which may be killed; here its \
         cost is compared with that of allocators that die with their process. A word outside of \
         each block names its owner; a block that another thread frees returns to its owner by \
         that word.",
    ],
    steps: &[
        "`glibc-one-arena` calls mallopt(M_ARENA_MAX, 1) before the first thread is started. The \
         peers are called by the names of their own functions (mi_malloc, _rjem_malloc, \
         sn_malloc); the process's own malloc stays glibc's. mimalloc and jemalloc exist only in a \
         program built with the feature `allocators`: they initialise themselves before main, and \
         a program that merely contains them pays for it in every fork.",
        "`shared` is `tontine::heap::shared`, here with one process. It returns a value of two \
         words instead of an address; the benchmark stores that value in the block itself, after \
         the first word, and `free` reads it there.",
        "`pair`: every thread is pinned, number i to processor i modulo their number, and holds \
         1,024 blocks. Again and again it draws one of them at random, frees it, allocates another \
         in its place, of 16, 32, 48 … 512 bytes, evenly drawn, and writes the first word: about \
         270 kB allocated per thread, of 32 sizes, in random order.",
        "`remote_free`, if there are two threads or more: half of them allocate blocks of the \
         same sizes, write the first word, and put them into a queue of 1,024 slots; the other \
         half take them out, one queue for each two, and free them.",
        "Each block's first word names its owner and is read before the block is freed: if a block \
         was handed out twice, the row fails.",
        "All threads are released together and work for the same time, the first quarter of which \
         is not timed.",
    ],
    timing: "Batches of 256 operations between two fenced readings of the time-stamp counter on \
             the thread itself: for `pair` of one free and one malloc, for `remote_free` of one \
             block through the queue, as the freeing thread sees it. The samples are those of all \
             threads. They include drawing size and slot (about a nanosecond), writing and \
             reading the first word, and for `remote_free` the queue itself, which takes a line \
             from processor to processor. They are the same for all allocators.",
    found: "Source 003 describes why one lock does not scale and what glibc does instead; it \
            measures nothing.",
    reading: "Compare a variant with itself at another number of threads: an allocator that scales \
              shows the same figure with as many threads as processors as with one. With more \
              threads than processors the regime differs: some wait for their turn, the median \
              batch is one that was not interrupted, and the tail (p99, the mean) contains the \
              waiting. A thread that is interrupted while it holds the lock of an arena makes all \
              others wait. `remote_free` is the slower of the two ends: if allocating takes longer \
              than freeing, it shows the allocation. The figures do not cover large blocks, nor \
              how much memory an allocator holds back in exchange for speed. The allocators are \
              built by their packages, with default settings.",
    calls: &[
        (
            "all",
            "most batches have none. Now and then memory is asked for or given back: brk, mmap, \
             munmap, mprotect, madvise",
        ),
        ("shared", "fallocate, for a slab that is taken or given back"),
        (
            "classic, glibc-one-arena, glibc",
            "futex, if threads contend for a lock; mprotect, by which a heap or an arena grows",
        ),
        ("all, with more threads than processors", "sched_yield, if an end of a queue waits"),
    ],
};
