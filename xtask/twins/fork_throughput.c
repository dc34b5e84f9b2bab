/* Forks FORKS times in one process, whose children sleep until all exist, in plain C.
 *
 * Prints the nanoseconds per fork, from the mean of the rounds' rates. Each round is a fresh process.
 * Usage: fork_throughput ROUNDS PROCESSOR_HERE PROCESSOR_THERE FORKS; no process is pinned, so the
 * processors are ignored. */
#include "tools.h"
#include <linux/futex.h>
#include <sys/syscall.h>

struct page {
    volatile int all_forked;
    volatile double took_ns;
};

static struct page *page;

static void child(pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    while (!page->all_forked)
        syscall(SYS_futex, &page->all_forked, FUTEX_WAIT, 0, NULL, NULL, 0);
    _exit(0);
}

static void fork_all(long forks)
{
    pid_t *children = calloc((size_t)forks, sizeof *children), self = getpid();
    need(children != NULL, "calloc");
    double began = now_ns();
    for (long i = 0; i < forks; i++) {
        children[i] = fork();
        need(children[i] >= 0, "fork");
        if (children[i] == 0)
            child(self);
    }
    page->took_ns = now_ns() - began;
    page->all_forked = 1;
    syscall(SYS_futex, &page->all_forked, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
    for (long i = 0; i < forks; i++) {
        int status;
        need(waitpid(children[i], &status, 0) == children[i] && status == 0, "a child");
    }
    _exit(0);
}

static double one_round(long forks)
{
    memset(page, 0, sizeof *page);
    pid_t parent = fork();
    need(parent >= 0, "fork");
    if (parent == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        fork_all(forks);
    }
    int status;
    need(waitpid(parent, &status, 0) == parent && status == 0, "the process that forks");
    return page->took_ns;
}

int main(int count, char **arguments)
{
    need(count == 5, "usage: fork_throughput ROUNDS PROCESSOR_HERE PROCESSOR_THERE FORKS");
    long rounds = atol(arguments[1]), forks = atol(arguments[4]);
    double rates = 0;
    page = shared_memory(sizeof *page);
    alarm(60);
    one_round(forks);
    for (long i = 0; i < rounds; i++)
        rates += (double)forks / one_round(forks);
    printf("%.3f\n", (double)rounds / rates);
    return 0;
}
