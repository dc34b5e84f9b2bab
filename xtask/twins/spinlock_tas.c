#define TTAS 0
#include "spinlock.h"
