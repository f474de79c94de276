/*
 * alloc.h - allocation with checked sizes, and growing arrays with a maximum.
 *
 * Plain malloc underneath, so that a test can fail the n-th allocation by interposing it.
 */
#ifndef GSV_BASE_ALLOC_H
#define GSV_BASE_ALLOC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* a * b and a + b, false when the result does not fit. */
static inline bool gsv_mul_size(size_t a, size_t b, size_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

static inline bool gsv_add_size(size_t a, size_t b, size_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

/* Bytes in 64 bits: what does not fit is GSV_TOO_MANY_BYTES, and stays it through sums and products
 * (but with 0), so that it is asked about once, at their end. */
#define GSV_TOO_MANY_BYTES UINT64_MAX

static inline uint64_t gsv_add_bytes(uint64_t a, uint64_t b)
{
    return __builtin_add_overflow(a, b, &a) ? GSV_TOO_MANY_BYTES : a;
}

static inline uint64_t gsv_mul_bytes(uint64_t n, uint64_t bytes)
{
    return __builtin_mul_overflow(n, bytes, &n) ? GSV_TOO_MANY_BYTES : n;
}

/* `size` up to a multiple of `to`, a power of two; SIZE_MAX when that overflows. */
static inline size_t gsv_round_up(size_t size, size_t to)
{
    return size > SIZE_MAX - (to - 1) ? SIZE_MAX : (size + to - 1) & ~(to - 1);
}

/* Where a place within memory that began at `from` is, now that the memory begins at `to`. NULL
 * stays NULL. */
static inline void *gsv_moved(const void *place, const void *from, void *to)
{
    return place ? (char *)to + ((uintptr_t)place - (uintptr_t)from) : (void *)0;
}

/* Zeroed memory for n objects of `size` bytes; NULL when out of memory or on overflow. n may be 0.
 */
void *gsv_alloc_array(size_t n, size_t size);

/* Memory aligned to 64 bytes, uninitialised; free with gsv_free_aligned. NULL when out of memory.
 */
void *gsv_alloc_aligned(size_t size);
void gsv_free_aligned(void *memory);

/* The same for what comes and goes with a model. What is large is mapped by itself: else each heap
 * of the C library, of which it has many, would keep room for the largest it ever held; and one
 * that is freed teaches the C library to map less. What is larger asks for huge pages. Free with
 * gsv_free_mapped. */
void *gsv_alloc_mapped(size_t size);
void gsv_free_mapped(void *memory);

/* Pages of the C library's heaps that hold nothing go back to the system, where it can do that:
 * each of its heaps else keeps the most that one of its threads ever used. Takes a while, and is of
 * the whole process: for when gigabytes have gone, not for the end of a request. */
void gsv_trim_heaps(void);

/* A copy of `size` bytes with a closing NUL. */
char *gsv_copy_text(const char *text, size_t size);

/* Make room for at least `needed` elements in *array of *capacity elements; grows by half, at most
 * to `maximum`. False when out of memory or over the maximum: the array is as before. */
bool gsv_grow(void **array, size_t *capacity, size_t needed, size_t element_size, size_t maximum);

#endif
