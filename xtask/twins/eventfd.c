#define BYTES 8
#include "descriptor.h"
#include <sys/eventfd.h>

static void set_up(void)
{
    ping_ends[1] = echo_ends[0] = eventfd(0, 0);
    ping_ends[0] = echo_ends[1] = eventfd(0, 0);
    need(ping_ends[0] >= 0 && ping_ends[1] >= 0, "eventfd");
}
