#define LINES 1
#define PAUSE 1
#include "flag.h"
