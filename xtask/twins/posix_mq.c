#include "twin.h"
#include <mqueue.h>

static mqd_t ask, answer;

static mqd_t queue(const char *kind)
{
    char name[64];
    struct mq_attr attributes = {.mq_maxmsg = 1, .mq_msgsize = 1};
    snprintf(name, sizeof name, "/tontine-twin-%d-%s", (int)getpid(), kind);
    mqd_t made = mq_open(name, O_CREAT | O_EXCL | O_RDWR, 0600, &attributes);
    need(made >= 0, "mq_open");
    mq_unlink(name);
    return made;
}
static void get(mqd_t from)
{
    char message[1];
    if (mq_receive(from, message, 1, NULL) != 1)
        _exit(1);
}
static void set_up(void)
{
    ask = queue("ask");
    answer = queue("answer");
}
static void ping_send(void) { mq_send(ask, "a", 1, 0); }
static void ping_wait(void) { get(answer); }
static void echo_wait(void) { get(ask); }
static void echo_send(void) { mq_send(answer, "a", 1, 0); }
