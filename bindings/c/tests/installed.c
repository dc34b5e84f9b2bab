/* Calls every function of the header with the installed library. Exits with 0 if each does what the
 * header says. */
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tontine.h>

static int failures;

#define EXPECT(what) \
    do { \
        if (!(what)) { \
            fprintf(stderr, "line %d: false: %s; errno %s, %s\n", __LINE__, #what, \
                    strerror(errno), tontine_last_error()); \
            failures++; \
        } \
    } while (0)

#define EXPECT_ERROR(what, number) \
    do { \
        errno = 0; \
        EXPECT((what) < 0 && errno == (number)); \
        EXPECT(tontine_last_error()[0] != '\0'); \
    } while (0)

#define EXPECT_NULL(what, number) \
    do { \
        errno = 0; \
        EXPECT((what) == NULL && errno == (number)); \
    } while (0)

static void lives(void)
{
    tontine_watch *watch;

    EXPECT(strlen(tontine_version()) >= 5);
    EXPECT(tontine_last_error()[0] == '\0');
    EXPECT_ERROR(tontine_life_fd(), ENODATA);
    EXPECT(tontine_life_register() == 0);
    EXPECT(tontine_life_register() == 0);
    EXPECT(tontine_life_register_thread() == 0);
    EXPECT(tontine_life_register_anchor_thread() == 0);
    EXPECT(tontine_life_fd() >= 0);
    watch = tontine_watch_open(tontine_life_fd());
    EXPECT(watch != NULL);
    EXPECT(tontine_watch_is_alive(watch) == 1);
    tontine_watch_close(watch);
    EXPECT_NULL(tontine_watch_open(-1), EBADF);
    EXPECT_NULL(tontine_watch_open(0), EPROTO);
    EXPECT_ERROR(tontine_watch_is_alive(NULL), EINVAL);
    tontine_watch_close(NULL);
}

static void death_is_seen(void)
{
    int pipes[2], hands[2], status;
    char byte = 0;
    pid_t child;
    tontine_watch *watch;
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec one = {.iov_base = &byte, .iov_len = 1};
    struct msghdr message;
    struct cmsghdr *head;
    int fd;

    EXPECT(pipe(pipes) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, hands) == 0);
    memset(&message, 0, sizeof message);
    memset(&control, 0, sizeof control);
    message.msg_iov = &one;
    message.msg_iovlen = 1;
    message.msg_control = &control;
    message.msg_controllen = sizeof control;
    child = fork();
    if (child == 0) {
        if (tontine_life_register() != 0)
            _exit(1);
        head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(sizeof(int));
        fd = tontine_life_fd();
        memcpy(CMSG_DATA(head), &fd, sizeof fd);
        close(pipes[1]);
        if (sendmsg(hands[1], &message, 0) != 1)
            _exit(2);
        _exit(read(pipes[0], &byte, 1) == 0 ? 0 : 3);
    }
    close(pipes[0]);
    EXPECT(recvmsg(hands[0], &message, 0) == 1);
    head = CMSG_FIRSTHDR(&message);
    EXPECT(head != NULL);
    memcpy(&fd, CMSG_DATA(head), sizeof fd);
    watch = tontine_watch_open(fd);
    EXPECT(tontine_watch_is_alive(watch) == 1);
    close(pipes[1]);
    EXPECT(waitpid(child, &status, 0) == child && status == 0);
    EXPECT(tontine_watch_is_alive(watch) == 0);
    tontine_watch_close(watch);
    close(fd);
    close(hands[0]);
    close(hands[1]);
}

static void messages(const char *path)
{
    char text[32];
    static char large[1 << 20];
    void *room;
    uint64_t first = 0, second = 0, again = 0;
    uint32_t owners = 7;
    tontine_peer peer;
    tontine_options options = {.struct_size = sizeof options, .lane_cap = 65536, .mode = 0600};
    tontine_mailbox *mailbox = tontine_mailbox_bind(path, &options);
    tontine_sender *sender, *twin;
    struct pollfd wait;

    EXPECT(mailbox != NULL);
    EXPECT_NULL(tontine_mailbox_bind(path, NULL), EADDRINUSE);
    EXPECT(strstr(tontine_last_error(), "in use") != NULL);
    EXPECT_ERROR(tontine_mailbox_try_recv(mailbox, text, sizeof text), EAGAIN);
    EXPECT_ERROR(tontine_mailbox_recv_timeout(mailbox, text, sizeof text, 10), ETIMEDOUT);
    EXPECT_ERROR(tontine_mailbox_peer(mailbox, &peer), ENODATA);
    EXPECT_ERROR(tontine_mailbox_sender(mailbox, &first), ENODATA);
    EXPECT_ERROR(tontine_mailbox_redelivered(mailbox, &owners), ENODATA);
    EXPECT_ERROR(tontine_mailbox_next_length(mailbox), ENODATA);

    sender = tontine_sender_connect(path, &options);
    EXPECT(sender != NULL);
    EXPECT_ERROR(tontine_sender_peer(sender, &peer), ENODATA);
    EXPECT(tontine_sender_send(sender, "first", 5) == 0);
    EXPECT(tontine_sender_try_send(sender, NULL, 0) == 0);
    EXPECT(tontine_sender_send_timeout(sender, "a third message", 15, 40000) == 0);
    EXPECT_ERROR(tontine_sender_send(sender, NULL, 1), EINVAL);
    EXPECT_ERROR(tontine_sender_send(sender, large, sizeof large), EMSGSIZE);
    EXPECT(tontine_sender_max_message_length(sender) > 4096);

    EXPECT(tontine_mailbox_recv(mailbox, text, sizeof text) == 5 && memcmp(text, "first", 5) == 0);
    EXPECT(tontine_mailbox_peer(mailbox, &peer) == 0);
    EXPECT(peer.pid == (uint32_t)getpid() && peer.uid == getuid());
    EXPECT(tontine_mailbox_sender(mailbox, &first) == 0);
    EXPECT(tontine_mailbox_sender_count(mailbox) == 1);
    EXPECT(tontine_mailbox_redelivered(mailbox, &owners) == 0 && owners == 0);
    EXPECT(tontine_mailbox_requeue(mailbox) == 0);
    EXPECT(tontine_mailbox_recv(mailbox, text, sizeof text) == 5 && memcmp(text, "first", 5) == 0);
    EXPECT(tontine_mailbox_redelivered(mailbox, &owners) == 0 && owners == 1);
    EXPECT(tontine_mailbox_ack(mailbox) == 0);
    EXPECT(tontine_mailbox_recv(mailbox, NULL, 0) == 0);
    EXPECT_ERROR(tontine_mailbox_recv(mailbox, text, 3), EMSGSIZE);
    EXPECT(tontine_mailbox_next_length(mailbox) == 15);
    EXPECT(tontine_mailbox_recv_timeout(mailbox, text, sizeof text, -1) == 15);
    EXPECT(memcmp(text, "a third message", 15) == 0);
    EXPECT(tontine_mailbox_redelivered(mailbox, &owners) == 0 && owners == 0);
    EXPECT_ERROR(tontine_mailbox_next_length(mailbox), ENODATA);

    room = tontine_sender_reserve(sender, 4);
    EXPECT(room != NULL);
    memcpy(room, "room", 4);
    EXPECT_ERROR(tontine_sender_send(sender, "x", 1), EBUSY);
    EXPECT_NULL(tontine_sender_reserve(sender, 1), EBUSY);
    EXPECT(tontine_sender_commit(sender) == 0);
    EXPECT_ERROR(tontine_sender_commit(sender), ENODATA);
    EXPECT(tontine_sender_reserve(sender, 4) != NULL);
    EXPECT(tontine_sender_cancel(sender) == 0);
    EXPECT(tontine_mailbox_try_recv(mailbox, text, sizeof text) == 4);
    EXPECT(memcmp(text, "room", 4) == 0);
    EXPECT_ERROR(tontine_mailbox_try_recv(mailbox, text, sizeof text), EAGAIN);
    EXPECT(tontine_sender_service(sender) == 0);
    EXPECT(tontine_sender_peer(sender, &peer) == 0);
    EXPECT(tontine_sender_wait_acked(sender, 1000) == 0);
    EXPECT(tontine_sender_unread_bytes(sender) == 0);
    EXPECT_ERROR(tontine_sender_take_unread(sender, text, sizeof text), EAGAIN);
    EXPECT(tontine_sender_fd(sender) >= 0);

    twin = tontine_sender_clone(sender);
    EXPECT(twin != NULL);
    EXPECT(tontine_mailbox_arm(mailbox) == 1);
    EXPECT(tontine_sender_send(twin, "twin", 4) == 0);
    wait.fd = tontine_mailbox_fd(mailbox);
    wait.events = POLLIN;
    EXPECT(poll(&wait, 1, 40000) == 1);
    EXPECT(tontine_mailbox_recv_timeout(mailbox, text, sizeof text, 40000) == 4);
    /* One process has two lanes. */
    EXPECT(tontine_mailbox_sender(mailbox, &second) == 0 && second != first);
    EXPECT(tontine_mailbox_ack(mailbox) == 0);
    EXPECT(tontine_sender_send(sender, "first", 5) == 0);
    EXPECT(tontine_mailbox_recv_timeout(mailbox, text, sizeof text, 40000) == 5);
    EXPECT(tontine_mailbox_sender(mailbox, &again) == 0 && again == first);
    EXPECT(tontine_mailbox_ack(mailbox) == 0);
    EXPECT(tontine_mailbox_next_error(mailbox) == 0);

    /* The receiver closes, and two messages are unread. At first the buffer is too small. */
    EXPECT(tontine_sender_send(sender, "left over", 9) == 0);
    EXPECT(tontine_sender_send(sender, "", 0) == 0);
    EXPECT_ERROR(tontine_mailbox_recv(mailbox, text, 3), EMSGSIZE);
    tontine_mailbox_close(mailbox);
    EXPECT_ERROR(tontine_sender_send(sender, "x", 1), EPIPE);
    EXPECT_ERROR(tontine_sender_take_unread(sender, text, 3), EMSGSIZE);
    EXPECT(tontine_sender_next_unread_length(sender) == 9);
    EXPECT(tontine_sender_take_unread(sender, text, sizeof text) == 9);
    EXPECT(memcmp(text, "left over", 9) == 0);
    EXPECT(tontine_sender_take_unread(sender, text, sizeof text) == 0);
    EXPECT_ERROR(tontine_sender_take_unread(sender, text, sizeof text), ENODATA);
    /* Taking messages back does not change later errors. Regression: each was EPROTO. */
    EXPECT_ERROR(tontine_sender_next_unread_length(sender), ENODATA);
    EXPECT(tontine_sender_unread_bytes(sender) == 0);
    EXPECT_ERROR(tontine_sender_send(sender, "x", 1), EPIPE);
    EXPECT_ERROR(tontine_sender_service(sender), EPIPE);
    EXPECT_NULL(tontine_sender_reserve(sender, 1), EPIPE);
    tontine_sender_close(sender);
    tontine_sender_close(twin);
    EXPECT_NULL(tontine_sender_connect(path, NULL), ECONNREFUSED);
}

static void take_count(void *count, const tontine_message *message)
{
    *(uint32_t *)count = message->redelivered;
}

static void a_restart_is_waited_out(const char *path)
{
    char text[8];
    uint32_t owners = 7, in_batch = 7;
    tontine_options options = {.struct_size = sizeof options,
                               .on_death = TONTINE_ON_DEATH_WAIT_THROUGH_RESTARTS};
    tontine_mailbox *mailbox = tontine_mailbox_bind(path, NULL);
    tontine_sender *sender = tontine_sender_connect(path, &options);

    EXPECT(tontine_sender_send(sender, "one", 3) == 0);
    EXPECT_ERROR(tontine_mailbox_recv(mailbox, text, 1), EMSGSIZE);
    EXPECT_ERROR(tontine_mailbox_try_recv(mailbox, text, 1), EMSGSIZE);
    EXPECT_ERROR(tontine_mailbox_recv_timeout(mailbox, text, 1, 40000), EMSGSIZE);
    EXPECT(tontine_mailbox_next_length(mailbox) == 3);
    tontine_mailbox_close(mailbox);
    EXPECT(tontine_sender_send(sender, "three", 5) == 0);
    mailbox = tontine_mailbox_bind(path, NULL);
    EXPECT(tontine_sender_wait_acked(sender, 100) < 0);
    EXPECT(tontine_mailbox_recv_timeout(mailbox, text, sizeof text, 40000) == 3);
    /* The last owner could not receive it. */
    EXPECT(tontine_mailbox_redelivered(mailbox, &owners) == 0 && owners == 0);
    EXPECT(tontine_mailbox_recv_timeout(mailbox, text, sizeof text, 40000) == 5);
    EXPECT(tontine_mailbox_requeue(mailbox) == 0);
    tontine_mailbox_close(mailbox);
    mailbox = tontine_mailbox_bind(path, NULL);
    EXPECT(tontine_sender_wait_acked(sender, 100) < 0);
    EXPECT(tontine_mailbox_recv_batch(mailbox, 1, take_count, &in_batch) == 1);
    EXPECT(in_batch == 1);
    EXPECT(tontine_mailbox_redelivered(mailbox, &owners) == 0 && owners == 1);
    tontine_mailbox_close(mailbox);
    EXPECT(tontine_sender_wait_acked(sender, 40000) == 0);
    tontine_sender_close(sender);
}

static void *bind_later(void *path)
{
    /* The sender usually waits by now; if not, it finds the mailbox. */
    poll(NULL, 0, 20);
    return tontine_mailbox_bind(path, NULL);
}

static void an_owner_is_awaited(char *path)
{
    pthread_t thread;
    void *mailbox;
    tontine_options options = {.struct_size = sizeof options, .wait_for_owner_ms = 20};
    tontine_sender *sender;

    EXPECT_NULL(tontine_sender_connect(path, &options), ECONNREFUSED);
    options.wait_for_owner_ms = 40000;
    EXPECT(pthread_create(&thread, NULL, bind_later, path) == 0);
    sender = tontine_sender_connect(path, &options);
    EXPECT(sender != NULL);
    EXPECT(pthread_join(thread, &mailbox) == 0 && mailbox != NULL);
    tontine_sender_close(sender);
    tontine_mailbox_close(mailbox);
}

static void the_last_senders_end_is_reported(const char *path)
{
    char text[8];
    tontine_options options = {.struct_size = sizeof options,
                               .report_no_senders = TONTINE_REPORT_NO_SENDERS_YES};
    tontine_mailbox *mailbox = tontine_mailbox_bind(path, &options);
    tontine_sender *sender;

    EXPECT_ERROR(tontine_mailbox_recv_timeout(mailbox, text, sizeof text, 0), ETIMEDOUT);
    sender = tontine_sender_connect(path, NULL);
    EXPECT(tontine_sender_send(sender, "last", 4) == 0);
    tontine_sender_close(sender);
    EXPECT(tontine_mailbox_recv(mailbox, text, sizeof text) == 4);
    EXPECT_ERROR(tontine_mailbox_recv(mailbox, text, sizeof text), ENOTCONN);
    EXPECT_ERROR(tontine_mailbox_try_recv(mailbox, text, sizeof text), ENOTCONN);
    EXPECT_ERROR(tontine_mailbox_recv_timeout(mailbox, text, sizeof text, -1), ENOTCONN);
    EXPECT_ERROR(tontine_mailbox_recv_batch(mailbox, 1, take_count, NULL), ENOTCONN);
    tontine_mailbox_close(mailbox);
}

static void free_space_is_awaited(const char *path)
{
    int sent = 0;
    char text[512] = {0};
    struct pollfd wait;
    tontine_options options = {.struct_size = sizeof options, .lane_cap = 4096};
    tontine_mailbox *mailbox = tontine_mailbox_bind(path, NULL);
    tontine_sender *sender = tontine_sender_connect(path, &options);

    EXPECT(tontine_sender_arm(sender, sizeof text) == 0);
    while (tontine_sender_try_send(sender, text, sizeof text) == 0)
        sent++;
    EXPECT(errno == EAGAIN && sent > 0);
    EXPECT(tontine_sender_arm(sender, sizeof text) == 1);
    wait.fd = tontine_sender_fd(sender);
    wait.events = POLLIN;
    EXPECT(poll(&wait, 1, 0) == 0);
    while (sent-- > 0)
        EXPECT(tontine_mailbox_recv_timeout(mailbox, text, sizeof text, 40000) == sizeof text);
    EXPECT(tontine_mailbox_ack(mailbox) == 0);
    EXPECT(poll(&wait, 1, 40000) == 1);
    EXPECT(tontine_sender_arm(sender, sizeof text) == 0);
    EXPECT(tontine_sender_try_send(sender, text, sizeof text) == 0);
    EXPECT_ERROR(tontine_sender_arm(sender, 1 << 20), EMSGSIZE);
    tontine_sender_close(sender);
    tontine_mailbox_close(mailbox);
}

static void descriptor_limit_rises_unless_forbidden(const char *path)
{
    int next;
    struct rlimit before, low, after;
    tontine_options options = {.struct_size = sizeof options,
                               .raise_descriptor_limit = TONTINE_RAISE_DESCRIPTOR_LIMIT_NO};
    tontine_mailbox *mailbox = tontine_mailbox_bind(path, NULL);
    tontine_sender *sender;

    /* dup() returns the lowest number that is free, so this limit leaves none. */
    next = dup(0);
    EXPECT(next >= 0 && close(next) == 0);
    EXPECT(getrlimit(RLIMIT_NOFILE, &before) == 0);
    low = before;
    low.rlim_cur = next;
    EXPECT(setrlimit(RLIMIT_NOFILE, &low) == 0);
    EXPECT_NULL(tontine_sender_connect(path, &options), EMFILE);
    EXPECT(getrlimit(RLIMIT_NOFILE, &after) == 0 && after.rlim_cur == low.rlim_cur);
    sender = tontine_sender_connect(path, NULL);
    EXPECT(sender != NULL);
    EXPECT(getrlimit(RLIMIT_NOFILE, &after) == 0 && after.rlim_cur > low.rlim_cur);
    EXPECT(setrlimit(RLIMIT_NOFILE, &before) == 0);
    tontine_sender_close(sender);
    tontine_mailbox_close(mailbox);
}

static void sockets(void)
{
    int pair[2];
    char text[8];
    tontine_mailbox *mailbox = tontine_mailbox_unbound(NULL);
    tontine_sender *sender;

    EXPECT(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0);
    EXPECT(tontine_mailbox_adopt(mailbox, pair[0]) == 0);
    EXPECT_ERROR(tontine_mailbox_adopt(mailbox, 4711), EBADF);
    sender = tontine_sender_from_socket(pair[1], NULL);
    EXPECT(tontine_sender_send(sender, "pair", 4) == 0);
    EXPECT(tontine_mailbox_recv_timeout(mailbox, text, sizeof text, 40000) == 4);
    EXPECT_NULL(tontine_sender_clone(sender), ECONNREFUSED);
    EXPECT_NULL(tontine_sender_from_socket(-1, NULL), EBADF);
    tontine_sender_close(sender);
    tontine_mailbox_close(mailbox);
}

/* Messages of a batch, one character each. */
struct batch {
    char text[8];
    size_t count;
    uint64_t sender;
    tontine_peer peer;
};

static void take(void *context, const tontine_message *message)
{
    struct batch *batch = context;

    EXPECT(message->length == 1);
    memcpy(batch->text + batch->count, message->bytes, 1);
    batch->count += 1;
    batch->sender = message->sender;
    batch->peer = message->peer;
}

static void batch_passes_each_message(const char *path)
{
    struct batch batch = {.count = 0};
    uint64_t lane;
    tontine_mailbox *mailbox = tontine_mailbox_bind(path, NULL);
    tontine_sender *sender = tontine_sender_connect(path, NULL);

    for (const char *text = "abcde"; *text != '\0'; text++)
        EXPECT(tontine_sender_send(sender, text, 1) == 0);
    EXPECT(tontine_mailbox_recv_batch(mailbox, 0, take, &batch) == 0 && batch.count == 0);
    while (batch.count < 4) {
        size_t before = batch.count;
        ssize_t count = tontine_mailbox_recv_batch(mailbox, 4 - before, take, &batch);
        EXPECT(count > 0 && batch.count == before + (size_t)count);
    }
    EXPECT(memcmp(batch.text, "abcd", 4) == 0);
    EXPECT(tontine_mailbox_sender(mailbox, &lane) == 0 && batch.sender == lane);
    EXPECT(batch.peer.pid == (uint32_t)getpid());
    EXPECT_ERROR(tontine_mailbox_recv_batch(mailbox, 1, NULL, NULL), EINVAL);
    /* A wait for an acknowledgement ends only with the batch's own acknowledgements. */
    EXPECT(tontine_mailbox_recv_batch(mailbox, 9, take, &batch) == 1);
    EXPECT(tontine_sender_wait_acked(sender, 40000) == 0);
    tontine_sender_close(sender);
    tontine_mailbox_close(mailbox);
}

static void deaths_of_senders_are_reported(const char *path)
{
    char text[8];
    int status, found = 0;
    uint64_t lane, dead;
    tontine_peer peer;
    pid_t child;
    tontine_mailbox *mailbox = tontine_mailbox_bind(path, NULL);

    child = fork();
    if (child == 0) {
        tontine_sender *sender = tontine_sender_connect(path, NULL);
        EXPECT(tontine_sender_send(sender, "last", 4) == 0);
        EXPECT(tontine_sender_wait_acked(sender, 40000) == 0);
        raise(SIGKILL);
    }
    EXPECT(tontine_mailbox_next_death(mailbox, &dead, &peer) == 0);
    EXPECT(tontine_mailbox_recv_timeout(mailbox, text, sizeof text, 40000) == 4);
    EXPECT(tontine_mailbox_sender(mailbox, &lane) == 0);
    EXPECT(tontine_mailbox_is_alive(mailbox, lane) == 1);
    EXPECT_ERROR(tontine_mailbox_is_alive(mailbox, lane + 1), ENODATA);
    EXPECT(tontine_mailbox_ack(mailbox) == 0);
    EXPECT(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
    while (found == 0) {
        ssize_t none = tontine_mailbox_recv_timeout(mailbox, text, sizeof text, 5);
        EXPECT(none < 0 && errno == ETIMEDOUT);
        found = tontine_mailbox_next_death(mailbox, &dead, &peer);
    }
    EXPECT(found == 1 && dead == lane && peer.pid == (uint32_t)child && peer.uid == getuid());
    EXPECT_ERROR(tontine_mailbox_is_alive(mailbox, lane), ENODATA);
    EXPECT(tontine_mailbox_next_death(mailbox, &dead, &peer) == 0);
    tontine_mailbox_close(mailbox);
}

static void unread_messages_in_doubt_are_told_apart(const char *path)
{
    char text[8];
    tontine_mailbox *mailbox = tontine_mailbox_bind(path, NULL);
    tontine_sender *sender = tontine_sender_connect(path, NULL);

    for (const char *digit = "123"; *digit != '\0'; digit++)
        EXPECT(tontine_sender_send(sender, digit, 1) == 0);
    EXPECT_ERROR(tontine_sender_next_unread_in_doubt(sender), EAGAIN);
    EXPECT(tontine_mailbox_recv_timeout(mailbox, text, sizeof text, 40000) == 1);
    EXPECT(tontine_mailbox_ack(mailbox) == 0);
    EXPECT(tontine_mailbox_recv_timeout(mailbox, text, sizeof text, 40000) == 1);
    EXPECT(tontine_mailbox_requeue(mailbox) == 0);
    tontine_mailbox_close(mailbox);
    /* The receiver has received the second message, and not acknowledged it. */
    EXPECT(tontine_sender_next_unread_in_doubt(sender) == 1);
    EXPECT(tontine_sender_take_unread(sender, text, sizeof text) == 1 && text[0] == '2');
    EXPECT(tontine_sender_next_unread_in_doubt(sender) == 0);
    EXPECT(tontine_sender_take_unread(sender, text, sizeof text) == 1 && text[0] == '3');
    EXPECT_ERROR(tontine_sender_next_unread_in_doubt(sender), ENODATA);
    tontine_sender_close(sender);
}

static void causal_order_holds_between_senders(const char *path)
{
    char text[8];
    static const tontine_options by_sender = TONTINE_OPTIONS_INIT;
    tontine_options causal = TONTINE_OPTIONS_INIT, odd = TONTINE_OPTIONS_INIT;
    tontine_mailbox *mailbox;
    tontine_sender *senders[2];

    odd.order = 99;
    EXPECT_NULL(tontine_mailbox_bind(path, &odd), EINVAL);
    mailbox = tontine_mailbox_bind(path, &by_sender);
    EXPECT(mailbox != NULL);
    tontine_mailbox_close(mailbox);
    causal.order = TONTINE_ORDER_CAUSAL;
    errno = 0;
    mailbox = tontine_mailbox_bind(path, &causal);
    if (mailbox == NULL) {
        EXPECT(errno == ENOSYS);
        printf("skipped: %s\n", tontine_last_error());
        return;
    }
    for (int place = 0; place < 2; place++)
        senders[place] = tontine_sender_connect(path, NULL);
    for (char number = 0; number < 100; number++)
        EXPECT(tontine_sender_send(senders[number % 3 == 0], &number, 1) == 0);
    for (char number = 0; number < 100; number++) {
        EXPECT(tontine_mailbox_recv_timeout(mailbox, text, sizeof text, 40000) == 1);
        EXPECT(text[0] == number);
    }
    tontine_sender_close(senders[0]);
    tontine_sender_close(senders[1]);
    tontine_mailbox_close(mailbox);
}

static const char *cancelled_path;

/* Receives a message, by which time the thread is cancelled, and then makes calls that close files:
 * close() is a cancellation point. */
static void *receive_then_end(void *mailbox)
{
    char text[8];
    tontine_mailbox *own;
    tontine_sender *sender;

    EXPECT(tontine_mailbox_recv(mailbox, text, sizeof text) == 5);
    own = tontine_mailbox_unbound(NULL);
    EXPECT_NULL(tontine_sender_connect("@no-mailbox-has-this-name", NULL), ECONNREFUSED);
    sender = tontine_sender_connect(cancelled_path, NULL);
    EXPECT(own != NULL && tontine_sender_send(sender, "more", 4) == 0);
    tontine_sender_close(sender);
    tontine_mailbox_close(own);
    pthread_testcancel();
    return NULL;
}

static void cancellation_waits_for_end_of_call(const char *path)
{
    char text[8];
    void *result = NULL;
    pthread_t thread;
    tontine_mailbox *mailbox = tontine_mailbox_bind(path, NULL);
    tontine_sender *sender = tontine_sender_connect(path, NULL);

    cancelled_path = path;
    EXPECT(pthread_create(&thread, NULL, receive_then_end, mailbox) == 0);
    EXPECT(pthread_cancel(thread) == 0);
    EXPECT(tontine_sender_send(sender, "hello", 5) == 0);
    EXPECT(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
    /* The calls were made, and have left the mailbox whole. */
    EXPECT(tontine_sender_send(sender, "next", 4) == 0);
    for (int count = 0; count < 2; count++)
        EXPECT(tontine_mailbox_recv_timeout(mailbox, text, sizeof text, 40000) == 4);
    EXPECT(tontine_mailbox_ack(mailbox) == 0);
    EXPECT(tontine_sender_wait_acked(sender, 40000) == 0);
    tontine_sender_close(sender);
    tontine_mailbox_close(mailbox);
}

static void *wake(void *waker)
{
    EXPECT(tontine_waker_wake(waker) == 0);
    return NULL;
}

static void a_thread_wakes_a_receiver(const char *path)
{
    tontine_mailbox *mailbox = tontine_mailbox_bind(path, NULL);
    tontine_waker *waker = tontine_mailbox_waker(mailbox);
    pthread_t thread;
    char text[4];

    EXPECT(waker != NULL);
    EXPECT(pthread_create(&thread, NULL, wake, waker) == 0);
    EXPECT_ERROR(tontine_mailbox_recv(mailbox, text, sizeof text), ECANCELED);
    EXPECT(pthread_join(thread, NULL) == 0);
    EXPECT_ERROR(tontine_mailbox_recv_timeout(mailbox, text, sizeof text, 10), ETIMEDOUT);
    EXPECT_NULL(tontine_mailbox_waker(NULL), EINVAL);
    EXPECT_ERROR(tontine_waker_wake(NULL), EINVAL);
    tontine_waker_close(NULL);
    tontine_mailbox_close(mailbox);
    EXPECT(tontine_waker_wake(waker) == 0);
    tontine_waker_close(waker);
}

static void null_arguments_are_refused(void)
{
    char text[4];
    uint64_t lane;
    uint32_t owners;
    tontine_peer peer;
    tontine_options unset = {.struct_size = 0};
    tontine_options odd = {.struct_size = sizeof odd, .wait_strategy = 99};

    EXPECT_NULL(tontine_mailbox_bind(NULL, NULL), EINVAL);
    EXPECT_NULL(tontine_mailbox_bind("@odd", &unset), EINVAL);
    EXPECT_NULL(tontine_mailbox_bind("@odd", &odd), EINVAL);
    EXPECT_NULL(tontine_sender_connect(NULL, NULL), EINVAL);
    EXPECT_NULL(tontine_sender_clone(NULL), EINVAL);
    EXPECT_NULL(tontine_sender_reserve(NULL, 1), EINVAL);
    EXPECT_ERROR(tontine_mailbox_adopt(NULL, 0), EINVAL);
    EXPECT_ERROR(tontine_mailbox_recv(NULL, text, 4), EINVAL);
    EXPECT_ERROR(tontine_mailbox_try_recv(NULL, text, 4), EINVAL);
    EXPECT_ERROR(tontine_mailbox_recv_timeout(NULL, text, 4, 1), EINVAL);
    EXPECT_ERROR(tontine_mailbox_next_length(NULL), EINVAL);
    EXPECT_ERROR(tontine_mailbox_peer(NULL, &peer), EINVAL);
    EXPECT_ERROR(tontine_mailbox_sender(NULL, &lane), EINVAL);
    EXPECT_ERROR(tontine_mailbox_redelivered(NULL, &owners), EINVAL);
    EXPECT_ERROR(tontine_mailbox_ack(NULL), EINVAL);
    EXPECT_ERROR(tontine_mailbox_requeue(NULL), EINVAL);
    EXPECT_ERROR(tontine_mailbox_fd(NULL), EINVAL);
    EXPECT_ERROR(tontine_mailbox_arm(NULL), EINVAL);
    EXPECT_ERROR(tontine_mailbox_sender_count(NULL), EINVAL);
    EXPECT_ERROR(tontine_mailbox_next_error(NULL), EINVAL);
    EXPECT_ERROR(tontine_mailbox_next_death(NULL, &lane, &peer), EINVAL);
    EXPECT_ERROR(tontine_mailbox_is_alive(NULL, 0), EINVAL);
    EXPECT_ERROR(tontine_mailbox_recv_batch(NULL, 1, take, NULL), EINVAL);
    EXPECT_ERROR(tontine_sender_send(NULL, text, 4), EINVAL);
    EXPECT_ERROR(tontine_sender_try_send(NULL, text, 4), EINVAL);
    EXPECT_ERROR(tontine_sender_send_timeout(NULL, text, 4, 1), EINVAL);
    EXPECT_ERROR(tontine_sender_commit(NULL), EINVAL);
    EXPECT_ERROR(tontine_sender_cancel(NULL), EINVAL);
    EXPECT_ERROR(tontine_sender_take_unread(NULL, text, 4), EINVAL);
    EXPECT_ERROR(tontine_sender_next_unread_length(NULL), EINVAL);
    EXPECT_ERROR(tontine_sender_next_unread_in_doubt(NULL), EINVAL);
    EXPECT_ERROR(tontine_sender_unread_bytes(NULL), EINVAL);
    EXPECT_ERROR(tontine_sender_wait_acked(NULL, 1), EINVAL);
    EXPECT_ERROR(tontine_sender_service(NULL), EINVAL);
    EXPECT_ERROR(tontine_sender_fd(NULL), EINVAL);
    EXPECT_ERROR(tontine_sender_arm(NULL, 1), EINVAL);
    EXPECT_ERROR(tontine_sender_peer(NULL, &peer), EINVAL);
    EXPECT_ERROR(tontine_sender_max_message_length(NULL), EINVAL);
    tontine_mailbox_close(NULL);
    tontine_sender_close(NULL);
}

static void a_forked_child_owns_nothing(const char *path)
{
    int status;
    pid_t child;
    tontine_mailbox *mailbox = tontine_mailbox_bind(path, NULL);
    tontine_sender *sender = tontine_sender_connect(path, NULL);
    char text[4];

    child = fork();
    if (child == 0) {
        EXPECT_ERROR(tontine_sender_send(sender, "x", 1), ESTALE);
        EXPECT_ERROR(tontine_mailbox_try_recv(mailbox, text, sizeof text), ESTALE);
        tontine_sender_close(sender);
        tontine_mailbox_close(mailbox);
        _exit(failures != 0);
    }
    EXPECT(waitpid(child, &status, 0) == child && status == 0);
    EXPECT(tontine_sender_send(sender, "still", 5) == 0);
    EXPECT_ERROR(tontine_mailbox_recv_timeout(mailbox, text, sizeof text, 40000), EMSGSIZE);
    tontine_sender_close(sender);
    tontine_mailbox_close(mailbox);
    EXPECT(access(path, F_OK) != 0);
}

int main(int count, char **arguments)
{
    if (count != 2)
        return 2;
    lives();
    death_is_seen();
    messages(arguments[1]);
    a_restart_is_waited_out(arguments[1]);
    an_owner_is_awaited(arguments[1]);
    the_last_senders_end_is_reported(arguments[1]);
    free_space_is_awaited(arguments[1]);
    descriptor_limit_rises_unless_forbidden(arguments[1]);
    batch_passes_each_message(arguments[1]);
    deaths_of_senders_are_reported(arguments[1]);
    unread_messages_in_doubt_are_told_apart(arguments[1]);
    causal_order_holds_between_senders(arguments[1]);
    cancellation_waits_for_end_of_call(arguments[1]);
    a_thread_wakes_a_receiver(arguments[1]);
    sockets();
    null_arguments_are_refused();
    a_forked_child_owns_nothing(arguments[1]);
    return failures != 0;
}
