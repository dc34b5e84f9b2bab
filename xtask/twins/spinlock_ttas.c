#define TTAS 1
#include "spinlock.h"
