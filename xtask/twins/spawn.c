/* Creates a process or a thread that ends immediately, and waits for it, in plain C.
 *
 * Prints the nanoseconds per process or thread. The fifth argument is the file that posix-spawn
 * starts; for the other methods it is the number of bytes that the parent touches, in small pages.
 * Usage: spawn COUNT PROCESSOR_HERE PROCESSOR_THERE WAY [FILE | BYTES]; pinned if HERE is THERE. */
#include "tools.h"
#include <linux/sched.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/syscall.h>

static char *file;

static pid_t by_fork(void)
{
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    return pid;
}

static pid_t by_vfork(void)
{
    pid_t pid = vfork();
    if (pid == 0)
        _exit(0);
    return pid;
}

static pid_t by_clone3(void)
{
    struct clone_args how = {.exit_signal = SIGCHLD};
    pid_t pid = (pid_t)syscall(SYS_clone3, &how, sizeof how);
    if (pid == 0)
        _exit(0);
    return pid;
}

static pid_t by_posix_spawn(void)
{
    char *arguments[] = {file, NULL}, *environment[] = {NULL};
    pid_t pid;
    return posix_spawn(&pid, file, NULL, NULL, arguments, environment) == 0 ? pid : -1;
}

static void *nothing(void *argument) { return argument; }

static void process(pid_t (*make)(void))
{
    int status;
    pid_t pid = make();
    need(pid > 0, "making a process");
    need(waitpid(pid, &status, 0) == pid && status == 0, "a process");
}

static void thread(void)
{
    pthread_t handle;
    need(pthread_create(&handle, NULL, nothing, NULL) == 0, "pthread_create");
    need(pthread_join(handle, NULL) == 0, "pthread_join");
}

static void touch(size_t bytes)
{
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    need(memory != MAP_FAILED, "mmap");
    madvise(memory, bytes, MADV_NOHUGEPAGE);
    memset(memory, 1, bytes);
}

static const struct {
    const char *name;
    pid_t (*make)(void);
} ways[] = {
    {"fork", by_fork},
    {"vfork", by_vfork},
    {"posix-spawn", by_posix_spawn},
    {"clone3", by_clone3},
    {"thread", NULL},
};

int main(int count, char **arguments)
{
    need(count == 5 || count == 6, "usage: spawn COUNT HERE THERE WAY [FILE | BYTES]");
    long times = atol(arguments[1]);
    int known = 0;
    char *more = count == 6 ? arguments[5] : NULL;
    if (strcmp(arguments[2], arguments[3]) == 0)
        pin(atoi(arguments[2]));
    alarm(60);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        if (strcmp(ways[i].name, arguments[4]) != 0)
            continue;
        known = 1;
        if (ways[i].make == by_posix_spawn)
            file = more;
        else if (more != NULL)
            touch((size_t)atol(more));
        double began = 0;
        for (long made = -times / 10; made < times; made++) {
            if (made == 0)
                began = now_ns();
            if (ways[i].make != NULL)
                process(ways[i].make);
            else
                thread();
        }
        printf("%.3f\n", (now_ns() - began) / (double)times);
    }
    need(known, "a way that is known");
    return 0;
}
