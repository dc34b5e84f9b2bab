/* Copies memory that another process has just written: the least that a stream of records can cost.
 * The other process fills a buffer, then this one copies it record by record, again and again. Only the
 * copies are timed.
 *
 * The copying process is pinned HERE, the writing one THERE. Prints the nanoseconds per record.
 * Usage: fresh_copy RECORDS PROCESSOR_HERE PROCESSOR_THERE BYTES; BYTES is a multiple of 8. */
#include <stdatomic.h>
#include "tools.h"

enum { BUFFER = 1 << 15, LINE = 64 };

struct turn {
    _Alignas(LINE) _Atomic long filled;
    _Alignas(LINE) _Atomic long copied;
};

static struct turn *turn;
static char *buffer;

static void await(_Atomic long *word, long value)
{
    while (atomic_load_explicit(word, memory_order_acquire) != value)
        relax();
}

int main(int count, char **arguments)
{
    need(count == 5, "usage: fresh_copy RECORDS PROCESSOR_HERE PROCESSOR_THERE BYTES");
    size_t bytes = (size_t)atol(arguments[4]);
    need(bytes >= 8 && bytes % 8 == 0 && bytes <= BUFFER, "BYTES");
    long each = (long)(BUFFER / bytes), rounds = atol(arguments[1]) / each, warm_up = rounds / 10;
    turn = shared_memory(sizeof *turn);
    buffer = shared_memory(BUFFER);
    char *copy = malloc(bytes);
    need(copy != NULL && rounds > 0, "RECORDS");
    pid_t child = fork();
    need(child >= 0, "fork");
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        pin(atoi(arguments[3]));
        for (long round = 1; round <= warm_up + rounds; round++) {
            memset(buffer, (int)(round & 127), BUFFER);
            atomic_store_explicit(&turn->filled, round, memory_order_release);
            await(&turn->copied, round);
        }
        _exit(0);
    }
    pin(atoi(arguments[2]));
    /* If the child dies, this alarm terminates the twin, which would otherwise hang. */
    alarm(60);
    double took = 0;
    for (long round = 1; round <= warm_up + rounds; round++) {
        await(&turn->filled, round);
        double began = now_ns();
        for (long record = 0; record < each; record++) {
            memcpy(copy, buffer + (size_t)record * bytes, bytes);
            need(copy[bytes - 1] == (char)(round & 127), "the content");
        }
        if (round > warm_up)
            took += now_ns() - began;
        atomic_store_explicit(&turn->copied, round, memory_order_release);
    }
    waitpid(child, NULL, 0);
    printf("%.3f\n", took / (double)(rounds * each));
    return 0;
}
