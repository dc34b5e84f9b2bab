/* A published program: two threads count in two blocks of one cache line. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <tontine.h>

enum { TIMES = 100000 };

static void *inc(void *block) {
    volatile uint64_t *val = block;
    *val = 0;
    for (int i = 0; i < TIMES; i++)
        ++*val;
    return NULL;
}

int main(void) {
    if (mm_malloc(8) != NULL || errno != EINVAL)
        return 1;
    if (mm_init() != 0 || mm_init() != -1 || errno != EBUSY)
        return 2;
    void *unused = mm_malloc(32);
    uint64_t *p = mm_malloc(8), *q = mm_malloc(8);
    if (mm_checkheap(1) != 0)
        return 3;
    pthread_t threads[2];
    pthread_create(&threads[0], NULL, inc, p);
    pthread_create(&threads[1], NULL, inc, q);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    printf("%lu\n%lu\n", (unsigned long)*p, (unsigned long)*q);
    if (mm_free(NULL) != 0 || mm_free(p) != 0 || mm_free(p) != -1 || errno != EALREADY)
        return 4;
    if (strstr(tontine_last_error(), "freed twice") == NULL)
        return 5;
    if (mm_free(q) != 0 || mm_free(unused) != 0 || mm_checkheap(0) != 0)
        return 6;
    if (mm_malloc((size_t)-1) != NULL || errno != ENOMEM)
        return 7;
    mm_deinit();
    return 0;
}
