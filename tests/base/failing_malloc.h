/*
 * failing_malloc.h - the process's malloc, where the n-th allocation can fail and all are counted.
 *
 * Linked into a program it takes the place of malloc, calloc, realloc, aligned_alloc, free, mmap
 * and munmap for every library in the process (glibc). Not for builds with a sanitizer, which has
 * its own.
 */
#ifndef TEST_BASE_FAILING_MALLOC_H
#define TEST_BASE_FAILING_MALLOC_H

#include <stdbool.h>
#include <stddef.h>

/* Let the n-th allocation from now on fail, and with `forever` all after it; 0: none. */
void failing_malloc_arm(long n, bool forever);
/* Whether it has failed since. */
bool failing_malloc_fired(void);

/* Blocks and bytes allocated and not freed. */
long failing_malloc_live_blocks(void);
size_t failing_malloc_live_bytes(void);
/* The most bytes since the last call of this. */
size_t failing_malloc_peak_bytes(void);

#endif
