/* A bit under a spinlock that two processes share. With TTAS, the lock is read before the swap. */
#include <stdatomic.h>
#include "twin.h"

struct locked {
    _Alignas(128) _Atomic uint32_t lock;
    uint32_t bit;
};

static struct locked *state;

static void lock(void)
{
    while (atomic_exchange_explicit(&state->lock, 1, memory_order_acquire))
        while (TTAS && atomic_load_explicit(&state->lock, memory_order_relaxed))
            relax();
}
static void unlock(void) { atomic_store_explicit(&state->lock, 0, memory_order_release); }

static void obtain(uint32_t bit)
{
    for (;;) {
        lock();
        if (state->bit == bit)
            return;
        unlock();
    }
}
static void release_with(uint32_t bit)
{
    state->bit = bit;
    unlock();
}

static int started;
static void set_up(void) { state = shared_memory(sizeof *state); }
static void ping_send(void)
{
    if (!started) {
        started = 1;
        lock();
    }
    release_with(1);
}
static void ping_wait(void) { obtain(0); }
static void echo_wait(void) { obtain(1); }
static void echo_send(void) { release_with(0); }
