/*
 * The two ends of a mailbox, each in a process of its own: `far receive ADDRESS COUNT` prints the
 * messages that it receives, `far send ADDRESS MESSAGE...` waits until all are acknowledged.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tontine.h>

static int fail(const char *what)
{
    fprintf(stderr, "%s: %s: %s\n", what, strerror(errno), tontine_last_error());
    return 1;
}

static int receive(const char *address, int count)
{
    char text[64];
    tontine_mailbox *mailbox = tontine_mailbox_bind(address, NULL);

    if (mailbox == NULL)
        return fail("bind");
    for (; count > 0; count--) {
        ssize_t length = tontine_mailbox_recv(mailbox, text, sizeof text);
        if (length < 0)
            return fail("recv");
        printf("%.*s\n", (int)length, text);
    }
    tontine_mailbox_close(mailbox);
    return 0;
}

static int send_all(const char *address, char **messages)
{
    tontine_sender *sender = tontine_sender_connect(address, NULL);

    if (sender == NULL)
        return fail("connect");
    for (; *messages != NULL; messages++)
        if (tontine_sender_send(sender, *messages, strlen(*messages)) != 0)
            return fail("send");
    if (tontine_sender_wait_acked(sender, 30000) != 0)
        return fail("wait");
    tontine_sender_close(sender);
    return 0;
}

int main(int count, char **arguments)
{
    if (count == 4 && strcmp(arguments[1], "receive") == 0)
        return receive(arguments[2], atoi(arguments[3]));
    if (count > 3 && strcmp(arguments[1], "send") == 0)
        return send_all(arguments[2], arguments + 3);
    return 2;
}
