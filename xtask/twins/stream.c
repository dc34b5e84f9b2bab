/* Streams records from one process to another through a ring in shared memory, with the record format
 * and the checks of a lane: a zero in place of the following header, then the header with release; the
 * sender loads the receiver's life and its sleep at each record; the receiver checks the length against
 * the ring, copies the payload, stores its position at each record, and announces free space a quarter
 * of the ring at a time.
 *
 * The receiver is pinned HERE, the sender THERE. Prints the nanoseconds per record.
 * Usage: stream RECORDS PROCESSOR_HERE PROCESSOR_THERE BYTES; BYTES is a multiple of 8. */
#include <stdatomic.h>
#include "tools.h"

enum { RING = 1 << 16, LINE = 64 };

typedef _Atomic uint64_t word;

struct page {
    _Alignas(LINE) word life;
    _Alignas(LINE) word sleeping;
    _Alignas(LINE) word position;
    _Alignas(LINE) word room;
};

static struct page *page;
static char *ring;

static inline word *at(size_t offset)
{
    return (word *)(void *)(ring + offset);
}
static inline uint64_t get(word *from)
{
    return atomic_load_explicit(from, memory_order_relaxed);
}
static inline void put(word *to, uint64_t value)
{
    atomic_store_explicit(to, value, memory_order_relaxed);
}

static void stream(long records, size_t bytes, size_t lap)
{
    size_t next = 0, record = 8 + bytes;
    uint64_t tail = 0, free_bytes = lap / 2;
    char *payload = malloc(bytes);
    need(payload != NULL, "malloc");
    memset(payload, 0x5a, bytes);
    for (long number = 0; number < records; number++) {
        need(get(&page->life) != 0, "the receiver");
        while (free_bytes < record + 8) {
            free_bytes = lap - (tail - atomic_load_explicit(&page->room, memory_order_acquire));
            relax();
        }
        size_t after = next + record == lap ? 0 : next + record;
        memcpy(payload, &number, sizeof number);
        memcpy(ring + next + 8, payload, bytes);
        put(at(after), 0);
        atomic_store_explicit(at(next), UINT64_C(1) << 32 | bytes, memory_order_release);
        need(get(&page->sleeping) == 0, "a sleeping receiver");
        next = after;
        tail += record;
        free_bytes -= record;
    }
}

static void receive(long from, long records, size_t *next, uint64_t *told, char *copy, size_t lap)
{
    for (long number = from; number < from + records; number++) {
        uint64_t header;
        while ((header = atomic_load_explicit(at(*next), memory_order_acquire)) == 0)
            relax();
        size_t length = header & UINT32_MAX;
        need(header >> 32 == 1 && length + 8 <= lap - *next, "a record");
        memcpy(copy, ring + *next + 8, length);
        need(memcmp(copy, &number, sizeof number) == 0, "the order");
        uint64_t position = get(&page->position) + 8 + length;
        *next = *next + 8 + length == lap ? 0 : *next + 8 + length;
        put(&page->position, position);
        if (position - *told >= lap / 4) {
            *told = position;
            atomic_store_explicit(&page->room, position, memory_order_release);
        }
    }
}

int main(int count, char **arguments)
{
    need(count == 5, "usage: stream RECORDS PROCESSOR_HERE PROCESSOR_THERE BYTES");
    long records = atol(arguments[1]), warm_up = records / 10;
    size_t bytes = (size_t)atol(arguments[4]), lap = RING / (8 + bytes) * (8 + bytes), next = 0;
    need(bytes >= 8 && bytes % 8 == 0 && bytes <= RING / 4, "BYTES");
    page = shared_memory(sizeof *page);
    ring = shared_memory(RING);
    char *copy = malloc(bytes);
    need(copy != NULL, "malloc");
    put(&page->life, 1);
    pid_t child = fork();
    need(child >= 0, "fork");
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        pin(atoi(arguments[3]));
        stream(warm_up + records, bytes, lap);
        _exit(0);
    }
    pin(atoi(arguments[2]));
    /* If the child dies, this alarm terminates the twin, which would otherwise hang. */
    alarm(60);
    uint64_t told = 0;
    receive(0, warm_up, &next, &told, copy, lap);
    double began = now_ns();
    receive(warm_up, records, &next, &told, copy, lap);
    double ended = now_ns();
    waitpid(child, NULL, 0);
    printf("%.3f\n", (ended - began) / (double)records);
    return 0;
}
