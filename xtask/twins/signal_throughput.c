/* Sends signals from one process in a loop over kill to another, which receives them in a handler,
 * in a loop over sigsuspend, in plain C.
 *
 * Each round is a fresh pair. The pair is a process group that the receiver leads, so that the
 * receiver's number is not reused while the sender lives. Prints the nanoseconds per signal, from
 * the mean of the rounds' rates.
 * Usage: signal_throughput ROUNDS PROCESSOR_RECEIVER PROCESSOR_SENDER SIGNALS. */
#include "tools.h"
#include <linux/futex.h>
#include <sys/syscall.h>

struct page {
    _Alignas(128) volatile int arrived;
    _Alignas(128) volatile int open;
    _Alignas(128) volatile double took_ns;
    _Alignas(128) volatile long sent;
};

static struct page *page;
static volatile sig_atomic_t seen;

static void count(int number)
{
    (void)number;
    seen++;
}

static void wait_for_start(void)
{
    __atomic_add_fetch(&page->arrived, 1, __ATOMIC_RELEASE);
    while (!page->open)
        syscall(SYS_futex, &page->open, FUTEX_WAIT, 0, NULL, NULL, 0);
}

static void receive(int processor, long signals)
{
    sigset_t usr1, outside;
    struct sigaction action = {.sa_handler = count};
    pin(processor);
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    sigprocmask(SIG_BLOCK, &usr1, &outside);
    sigdelset(&outside, SIGUSR1);
    sigaction(SIGUSR1, &action, NULL);
    wait_for_start();
    double began = now_ns();
    while (seen < signals)
        sigsuspend(&outside);
    page->took_ns = now_ns() - began;
    _exit(0);
}

static void send_to(int processor, pid_t receiver)
{
    pin(processor);
    wait_for_start();
    while (kill(receiver, SIGUSR1) == 0)
        page->sent++;
    _exit(errno == ESRCH ? 0 : 1);
}

static double one_round(int here, int there, long signals)
{
    memset(page, 0, sizeof *page);
    pid_t receiver = fork();
    need(receiver >= 0, "fork");
    if (receiver == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        receive(here, signals);
    }
    need(setpgid(receiver, receiver) == 0, "setpgid");
    pid_t sender = fork();
    need(sender >= 0, "fork");
    if (sender == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        send_to(there, receiver);
    }
    need(setpgid(sender, receiver) == 0, "setpgid");
    while (page->arrived < 2)
        sched_yield();
    page->open = 1;
    syscall(SYS_futex, &page->open, FUTEX_WAKE, 2, NULL, NULL, 0);
    int status;
    need(waitpid(receiver, &status, 0) == receiver && status == 0, "the receiver");
    need(waitpid(sender, &status, 0) == sender && status == 0, "the sender");
    return page->took_ns;
}

int main(int count, char **arguments)
{
    need(count == 5, "usage: signal_throughput ROUNDS PROCESSOR_RECEIVER PROCESSOR_SENDER SIGNALS");
    long rounds = atol(arguments[1]), signals = atol(arguments[4]);
    int here = atoi(arguments[2]), there = atoi(arguments[3]);
    double rates = 0;
    page = shared_memory(sizeof *page);
    alarm(60);
    one_round(here, there, (signals + 9) / 10);
    for (long i = 0; i < rounds; i++)
        rates += (double)signals / one_round(here, there, signals);
    printf("%.3f\n", (double)rounds / rates);
    return 0;
}
