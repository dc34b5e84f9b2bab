#include "twin.h"
#include <pthread.h>

struct monitor {
    pthread_mutex_t mutex;
    pthread_cond_t turned;
    int turn;
};
static struct monitor *monitor;

static void give(int to)
{
    pthread_mutex_lock(&monitor->mutex);
    monitor->turn = to;
    pthread_cond_signal(&monitor->turned);
    pthread_mutex_unlock(&monitor->mutex);
}
static void await(int mine)
{
    pthread_mutex_lock(&monitor->mutex);
    while (monitor->turn != mine)
        pthread_cond_wait(&monitor->turned, &monitor->mutex);
    pthread_mutex_unlock(&monitor->mutex);
}
static void set_up(void)
{
    pthread_mutexattr_t mutex;
    pthread_condattr_t turned;
    monitor = shared_memory(sizeof *monitor);
    pthread_mutexattr_init(&mutex);
    pthread_mutexattr_setpshared(&mutex, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(&monitor->mutex, &mutex);
    pthread_condattr_init(&turned);
    pthread_condattr_setpshared(&turned, PTHREAD_PROCESS_SHARED);
    pthread_cond_init(&monitor->turned, &turned);
}
static void ping_send(void) { give(1); }
static void ping_wait(void) { await(0); }
static void echo_wait(void) { await(1); }
static void echo_send(void) { give(0); }
