/* Checks whether a process is alive, in plain C: one loop per method, timed by two clock readings.
 *
 * The monitored child idles; it holds a robust mutex and one end of a connection. Prints the
 * nanoseconds per check. Usage: liveness CHECKS PROCESSOR_HERE PROCESSOR_THERE WAY. */
#include "tools.h"
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>

struct page {
    pthread_mutex_t mutex;
    volatile int registered;
    _Alignas(64) volatile uint32_t plain;
};

static struct page *page;
static pid_t child_pid;
static int line, monitored_line, set, directory, child_fd;

/* Each method has a separate loop, so that the compiler inlines the method. */
#define WAY(name, alive)                                                                           \
    static long name(long checks)                                                                  \
    {                                                                                              \
        long made = 0;                                                                             \
        while (made < checks) {                                                                    \
            if (!(alive))                                                                          \
                break;                                                                             \
            made++;                                                                                \
            __asm__ volatile("" : "+r"(made));                                                     \
        }                                                                                          \
        return made;                                                                               \
    }

static inline int loaded(void)
{
    (void)page->plain;
    return 1;
}
static inline int nothing_from_epoll(void)
{
    struct epoll_event event;
    return epoll_wait(set, &event, 1, 0) == 0;
}
static inline int nothing_from_poll(void)
{
    struct pollfd end = {.fd = line, .events = POLLRDHUP};
    return poll(&end, 1, 0) == 0;
}
static inline int nothing_from_select(void)
{
    fd_set readable;
    struct timeval at_once = {0, 0};
    FD_ZERO(&readable);
    FD_SET(line, &readable);
    return select(line + 1, &readable, NULL, NULL, &at_once) == 0;
}

WAY(dummy, 1)
WAY(load, loaded())
WAY(mutex_trylock, pthread_mutex_trylock(&page->mutex) == EBUSY)
WAY(epoll, nothing_from_epoll())
WAY(poll_socket, nothing_from_poll())
WAY(select_socket, nothing_from_select())
WAY(kill_0, kill(child_pid, 0) == 0)
WAY(pidfd_signal_0, syscall(SYS_pidfd_send_signal, child_fd, 0, NULL, 0) == 0)
WAY(procfs_faccessat, syscall(SYS_faccessat, directory, "stat", R_OK) == 0)

static const struct {
    const char *name;
    long (*run)(long checks);
} ways[] = {
    {"dummy", dummy},
    {"load", load},
    {"mutex-trylock", mutex_trylock},
    {"epoll-empty", epoll},
    {"epoll-socket", epoll},
    {"poll-socket", poll_socket},
    {"select-socket", select_socket},
    {"kill-0", kill_0},
    {"pidfd-signal-0", pidfd_signal_0},
    {"procfs-faccessat", procfs_faccessat},
};

static void prepare(void)
{
    pthread_mutexattr_t attributes;
    page = shared_memory(sizeof *page);
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    need(pthread_mutex_init(&page->mutex, &attributes) == 0, "pthread_mutex_init");
    int ends[2];
    need(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0, "socketpair");
    line = ends[0];
    monitored_line = ends[1];
}

static void be_monitored(int processor)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    pin(processor);
    close(line);
    pthread_mutex_lock(&page->mutex);
    page->registered = 1;
    for (;;)
        pause();
}

static void watch(int with_line)
{
    char path[64];
    close(monitored_line);
    snprintf(path, sizeof path, "/proc/%d", (int)child_pid);
    directory = open(path, O_RDONLY | O_DIRECTORY);
    child_fd = (int)syscall(SYS_pidfd_open, child_pid, 0);
    set = epoll_create1(0);
    need(directory >= 0 && child_fd >= 0 && set >= 0, "what the monitor holds");
    struct epoll_event hang_up = {.events = EPOLLRDHUP};
    need(!with_line || epoll_ctl(set, EPOLL_CTL_ADD, line, &hang_up) == 0, "epoll_ctl");
}

int main(int count, char **arguments)
{
    need(count == 5, "usage: liveness CHECKS PROCESSOR_HERE PROCESSOR_THERE WAY");
    long checks = atol(arguments[1]), made = -1;
    prepare();
    child_pid = fork();
    need(child_pid >= 0, "fork");
    if (child_pid == 0)
        be_monitored(atoi(arguments[3]));
    pin(atoi(arguments[2]));
    alarm(60);
    while (!page->registered)
        sched_yield();
    watch(strcmp(arguments[4], "epoll-empty") != 0);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        if (strcmp(ways[i].name, arguments[4]) != 0)
            continue;
        ways[i].run(checks / 10);
        double began = now_ns();
        made = ways[i].run(checks);
        printf("%.4f\n", (now_ns() - began) / (double)checks);
    }
    need(made == checks, "a living process must look alive, in a way that is known");
    kill(child_pid, SIGKILL);
    waitpid(child_pid, NULL, 0);
    return 0;
}
