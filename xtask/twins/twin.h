/* The common part of all round trips: two pinned processes, a warm-up, one loop timed by two clock
 * readings.
 *
 * A twin defines set_up(), and for each end functions that send and wait. The program prints the
 * nanoseconds of one way. Usage: twin ROUNDS PROCESSOR_HERE PROCESSOR_THERE VARIANT; the variant is
 * for programs with several variants. */
#include "tools.h"

static void set_up(void);
static void ping_send(void);
static void ping_wait(void);
static void echo_wait(void);
static void echo_send(void);

static pid_t parent_pid, child_pid;

int main(int count, char **arguments)
{
    need(count == 5, "usage: twin ROUNDS PROCESSOR_HERE PROCESSOR_THERE VARIANT");
    long rounds = atol(arguments[1]), warm_up = rounds / 10;
    parent_pid = getpid();
    set_up();
    child_pid = fork();
    need(child_pid >= 0, "fork");
    if (child_pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        pin(atoi(arguments[3]));
        for (long i = 0; i < warm_up + rounds; i++) {
            echo_wait();
            echo_send();
        }
        _exit(0);
    }
    pin(atoi(arguments[2]));
    /* If the child dies, this alarm terminates the twin, which would otherwise hang. */
    alarm(60);
    for (long i = 0; i < warm_up; i++) {
        ping_send();
        ping_wait();
    }
    double began = now_ns();
    for (long i = 0; i < rounds; i++) {
        ping_send();
        ping_wait();
    }
    double ended = now_ns();
    waitpid(child_pid, NULL, 0);
    printf("%.3f\n", (ended - began) / (double)rounds / 2.0);
    return 0;
}
