/*
 * A receiver that is killed, and a sender that notices and takes its messages back.
 *
 *     cc hello.c $(pkg-config --cflags --libs tontine) -o hello && ./hello
 */
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <tontine.h>

static void fail(const char *what)
{
    fprintf(stderr, "%s: %s: %s\n", what, strerror(errno), tontine_last_error());
    exit(1);
}

/* Receives one message, then sleeps until it is killed. */
static void receive_one(const char *address)
{
    char text[64];
    ssize_t length;
    tontine_mailbox *mailbox = tontine_mailbox_bind(address, NULL);

    if (mailbox == NULL)
        fail("bind");
    length = tontine_mailbox_recv(mailbox, text, sizeof text);
    if (length < 0)
        fail("recv");
    printf("read: %.*s\n", (int)length, text);
    fflush(stdout);
    tontine_mailbox_ack(mailbox);
    for (;;)
        pause();
}

static tontine_sender *connect_when_bound(const char *address)
{
    const struct timespec pause_10_ms = {.tv_sec = 0, .tv_nsec = 10000000};
    tontine_options options = {.struct_size = sizeof options, .lane_cap = 1 << 20};

    for (int try = 0; try < 1000; try++) {
        tontine_sender *sender = tontine_sender_connect(address, &options);
        if (sender != NULL)
            return sender;
        if (errno != ECONNREFUSED)
            fail("connect");
        nanosleep(&pause_10_ms, NULL);
    }
    fail("connect");
    return NULL;
}

int main(void)
{
    char address[64];
    char text[64];
    ssize_t length;
    tontine_sender *sender;
    pid_t child;

    snprintf(address, sizeof address, "@tontine-hello-%ld", (long)getpid());
    child = fork();
    if (child < 0)
        fail("fork");
    if (child == 0)
        receive_one(address);

    sender = connect_when_bound(address);
    if (tontine_sender_send(sender, "hello", 5) < 0)
        fail("send");
    if (tontine_sender_wait_acked(sender, 20000) < 0)
        fail("wait_acked");
    /* The receiver does not read these messages. */
    if (tontine_sender_send(sender, "are you", 7) < 0 || tontine_sender_send(sender, "there?", 6) < 0)
        fail("send");

    kill(child, SIGKILL);
    waitpid(child, NULL, 0);

    if (tontine_sender_send(sender, "hello?", 6) == 0) {
        fprintf(stderr, "sent to a dead receiver\n");
        return 1;
    }
    if (errno != EOWNERDEAD)
        fail("send");
    printf("the receiver is dead: EOWNERDEAD\n");
    while ((length = tontine_sender_take_unread(sender, text, sizeof text)) >= 0)
        printf("not read: %.*s\n", (int)length, text);
    if (errno != ENODATA)
        fail("take_unread");
    tontine_sender_close(sender);
    return 0;
}
