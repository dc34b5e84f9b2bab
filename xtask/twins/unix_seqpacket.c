#define BYTES 1
#include "descriptor.h"
#include <sys/socket.h>

static void set_up(void)
{
    int ends[2];
    need(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0, "socketpair");
    ping_ends[0] = ping_ends[1] = ends[0];
    echo_ends[0] = echo_ends[1] = ends[1];
}
