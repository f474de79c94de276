/*
 * failing_malloc.h - replaces the process's malloc: the n-th allocation can fail, and all are
 * counted.
 *
 * When linked into a program, it replaces malloc, calloc, realloc, aligned_alloc, free, mmap and
 * munmap for every library of the process (glibc). Not for sanitizer builds, which have their own
 * malloc.
 */
#ifndef TEST_BASE_FAILING_MALLOC_H
#define TEST_BASE_FAILING_MALLOC_H

#include <stdbool.h>
#include <stddef.h>

/* The n-th allocation from now on fails, with `forever` all later ones too; 0: none. */
void failing_malloc_arm(long n, bool forever);
/* True if an allocation has failed since. */
bool failing_malloc_fired(void);

/* Blocks and bytes allocated and not freed. */
long failing_malloc_live_blocks(void);
size_t failing_malloc_live_bytes(void);
/* Max bytes in use since the last call of this function. */
size_t failing_malloc_peak_bytes(void);

#endif
