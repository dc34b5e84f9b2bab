#include "twin.h"
#include <semaphore.h>

struct pair {
    _Alignas(128) sem_t ask;
    _Alignas(128) sem_t answer;
};
static struct pair *pair;

static void set_up(void)
{
    pair = shared_memory(sizeof *pair);
    need(sem_init(&pair->ask, 1, 0) == 0 && sem_init(&pair->answer, 1, 0) == 0, "sem_init");
}
static void ping_send(void) { sem_post(&pair->ask); }
static void ping_wait(void) { sem_wait(&pair->answer); }
static void echo_wait(void) { sem_wait(&pair->ask); }
static void echo_send(void) { sem_post(&pair->answer); }
