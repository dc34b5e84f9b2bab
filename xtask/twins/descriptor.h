/* Sends BYTES bytes through descriptors that the twin opens: [0] is read, [1] is written. */
#include "twin.h"

static int ping_ends[2], echo_ends[2];

static void put(int end)
{
    char message[BYTES] = {1};
    if (write(end, message, BYTES) != BYTES)
        _exit(1);
}
static void get(int end)
{
    char message[BYTES];
    if (read(end, message, BYTES) != BYTES)
        _exit(1);
}
static void ping_send(void) { put(ping_ends[1]); }
static void ping_wait(void) { get(ping_ends[0]); }
static void echo_wait(void) { get(echo_ends[0]); }
static void echo_send(void) { put(echo_ends[1]); }
