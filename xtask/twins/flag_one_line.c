#define LINES 1
#define PAUSE 0
#include "flag.h"
