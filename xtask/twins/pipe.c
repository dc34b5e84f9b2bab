#define BYTES 1
#include "descriptor.h"

static void set_up(void)
{
    int ask[2], answer[2];
    need(pipe(ask) == 0 && pipe(answer) == 0, "pipe");
    ping_ends[0] = answer[0];
    ping_ends[1] = ask[1];
    echo_ends[0] = ask[0];
    echo_ends[1] = answer[1];
}
