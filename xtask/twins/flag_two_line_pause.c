#define LINES 2
#define PAUSE 1
#include "flag.h"
