#include "twin.h"

static sigset_t usr1;

static void await(void)
{
    while (sigwaitinfo(&usr1, NULL) < 0)
        if (errno != EINTR)
            _exit(1);
}
static void set_up(void)
{
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    sigprocmask(SIG_BLOCK, &usr1, NULL);
}
static void ping_send(void) { kill(child_pid, SIGUSR1); }
static void ping_wait(void) { await(); }
static void echo_wait(void) { await(); }
static void echo_send(void) { kill(parent_pid, SIGUSR1); }
