//! `allocators` in words.

use tontine_bench::about::Explanation;

pub(super) const EXPLANATION: Explanation = Explanation {
    about: &[
        "`malloc` hands out blocks of memory, `free` takes them back. Behind them lies a data \
         structure that all threads of a process share: which pieces are free, and how large they \
         are. With one lock around it every call is correct, and all threads queue for the lock. \
         The source's own heap (`classic`) is such a one, from a textbook: blocks in the order of \
         their addresses, each with its size at both ends. To find a free one it goes from block \
         to block: to the first that is large enough, to the next one from where it was, or to \
         the smallest of all.",
        "Modern allocators therefore give each thread something of its own. glibc keeps several \
         arenas, each a heap with its own lock, and spreads the threads over them; in front of \
         that, a small cache for each thread (seven blocks of each size) needs no lock at all. \
         jemalloc has arenas and larger caches. mimalloc and snmalloc give whole pages to a \
         thread, which then allocates from them without asking anybody.",
        "What is one thread's own gets difficult when another thread frees it: a remote free, \
         usual where one thread makes messages and another consumes them. The block has to go \
         back to where it came from (mimalloc, and snmalloc by a queue of messages), or the \
         memory wanders from the producer's share to the consumer's (caches), or a lock is taken \
         after all (glibc's arenas).",
        "`tontine::heap::shared` is made for many processes, of which any may be killed; here its \
         price stands beside that of allocators which die with their process. Whose a block is \
         says a word outside of it; one that another thread frees goes home by that word.",
    ],
    steps: &[
        "`glibc-one-arena` calls mallopt(M_ARENA_MAX, 1) before the first thread is started. The \
         peers are called by the names of their own functions (mi_malloc, _rjem_malloc, \
         sn_malloc); the process's own malloc stays glibc's. mimalloc \
         and jemalloc are there only in a program built with the feature `allocators`: they set \
         themselves up before main, and a program that merely contains them pays for it in every \
         fork.",
        "`shared` is `tontine::heap::shared`, here with one process. What it gives is a value of \
         two words and no bare address; that value lies in the block itself, behind the first \
         word, from where `free` takes it.",
        "`pair`: every thread is pinned, number i to processor i and so round, and holds 1,024 \
         blocks. Again and again it draws one of them at random, frees it, allocates another in \
         its place, of 16, 32, 48 … 512 bytes, evenly drawn, and writes the first word: about \
         270 kB alive a thread, of 32 sizes, in random order.",
        "`remote_free`, where there are two threads or more: half of them allocate blocks of the \
         same sizes, write the first word, and put them into a queue of 1,024 places; the other \
         half take them out, one queue for each two, and free them.",
        "Each block's first word says whose it is and is read before the block is freed: a block \
         that was handed out twice fails the row.",
        "All threads are released together and work for the same time, the first quarter of which \
         is not timed.",
    ],
    timing: "Batches of 256 operations between two fenced readings of the time-stamp counter on \
             the thread itself: for `pair` of one free and one malloc, for `remote_free` of one \
             block through the queue, as the freeing thread sees it. The samples are those of all \
             threads. Inside as well: drawing size and place (about a nanosecond), writing and \
             reading the first word, and for `remote_free` the queue itself, which takes a line \
             from processor to processor. They are the same for all allocators.",
    found: "Source 003 describes why one lock does not scale and what glibc does instead; it \
            measures nothing.",
    reading: "Compare a variant with itself at another number of threads: an allocator that scales \
              shows the same figure with as many threads as processors as with one. With more \
              threads than processors that are another regime: some wait for their turn, the \
              median batch is one that was not interrupted, and the tail (p99, the mean) has the \
              waiting. A thread that is interrupted with the lock of an arena in hand makes all \
              others wait. `remote_free` is the slower of the two ends: where allocating takes \
              longer than freeing, that is what it shows. It says nothing of large blocks, nor of \
              how much memory an allocator holds back, for which some of the speed is bought. The \
              allocators are as their packages build them, with their defaults.",
    calls: &[
        (
            "all",
            "most batches have none. Now and then memory is asked for or given back: brk, mmap, \
             munmap, mprotect, madvise",
        ),
        ("shared", "fallocate, for a slab that is taken or given back"),
        (
            "classic, glibc-one-arena, glibc",
            "futex, where threads contend for a lock; mprotect, by which a heap or an arena grows",
        ),
        ("all, with more threads than processors", "sched_yield, where an end of a queue waits"),
    ],
};
