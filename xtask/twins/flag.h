/* A flag on LINES cache lines, polled with or without PAUSE. */
#include <stdatomic.h>
#include "twin.h"

struct board {
    _Alignas(128) _Atomic uint32_t ask;
#if LINES == 2
    _Alignas(128)
#endif
    _Atomic uint32_t answer;
};

static struct board *board;
static uint32_t pings, echoes;

#if LINES == 2
#define ANSWER board->answer
#else
#define ANSWER board->ask
#endif

static void await(_Atomic uint32_t *word, uint32_t value)
{
    while (atomic_load_explicit(word, memory_order_acquire) != value)
        if (PAUSE)
            relax();
}

static void set_up(void) { board = shared_memory(sizeof *board); }
static void ping_send(void)
{
    atomic_store_explicit(&board->ask, ++pings * 2 - 1, memory_order_release);
}
static void ping_wait(void) { await(&ANSWER, pings * 2); }
static void echo_wait(void) { await(&board->ask, ++echoes * 2 - 1); }
static void echo_send(void) { atomic_store_explicit(&ANSWER, echoes * 2, memory_order_release); }
