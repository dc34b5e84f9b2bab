#define BYTES 1
#include "descriptor.h"
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

static void set_up(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0), here = socket(AF_INET, SOCK_STREAM, 0);
    need(bind(listener, (struct sockaddr *)&address, size) == 0 && listen(listener, 1) == 0, "bind");
    need(getsockname(listener, (struct sockaddr *)&address, &size) == 0, "getsockname");
    need(connect(here, (struct sockaddr *)&address, size) == 0, "connect");
    int there = accept(listener, NULL, NULL);
    need(there >= 0, "accept");
    setsockopt(here, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(there, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    ping_ends[0] = ping_ends[1] = here;
    echo_ends[0] = echo_ends[1] = there;
}
