#define LINES 2
#define PAUSE 0
#include "flag.h"
