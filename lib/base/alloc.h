/*
 * alloc.h - overflow-checked allocation, and growing arrays with a maximum size.
 *
 * The implementation uses plain malloc, so a test can fail the n-th allocation by interposition.
 */
#ifndef GSV_BASE_ALLOC_H
#define GSV_BASE_ALLOC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* a * b and a + b; false if the result overflows. */
static inline bool gsv_mul_size(size_t a, size_t b, size_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

static inline bool gsv_add_size(size_t a, size_t b, size_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

/* Saturating arithmetic on byte counts in 64 bits. An overflow yields GSV_TOO_MANY_BYTES, which
 * later sums and products keep (except a product with 0). One check of the final value is
 * enough. */
#define GSV_TOO_MANY_BYTES UINT64_MAX

static inline uint64_t gsv_add_bytes(uint64_t a, uint64_t b)
{
    return __builtin_add_overflow(a, b, &a) ? GSV_TOO_MANY_BYTES : a;
}

static inline uint64_t gsv_mul_bytes(uint64_t n, uint64_t bytes)
{
    return __builtin_mul_overflow(n, bytes, &n) ? GSV_TOO_MANY_BYTES : n;
}

/* Rounds `size` up to a multiple of `to`, a power of two; SIZE_MAX on overflow. */
static inline size_t gsv_round_up(size_t size, size_t to)
{
    return size > SIZE_MAX - (to - 1) ? SIZE_MAX : (size + to - 1) & ~(to - 1);
}

/* Relocates a pointer into memory that moved from `from` to `to`. NULL stays NULL. */
static inline void *gsv_moved(const void *pointer, const void *from, void *to)
{
    return pointer ? (char *)to + ((uintptr_t)pointer - (uintptr_t)from) : (void *)0;
}

/* Zeroed memory for n objects of `size` bytes. n may be 0. NULL if out of memory or on overflow. */
void *gsv_alloc_array(size_t n, size_t size);

/* Uninitialised memory aligned to 64 bytes; free with gsv_free_aligned(). NULL if out of memory. */
void *gsv_alloc_aligned(size_t size);
void gsv_free_aligned(void *memory);

/* Like gsv_alloc_aligned(), for memory with the lifetime of a model; free with gsv_free_mapped().
 * Blocks of 128 KiB and more get their own mmap, blocks of 4 MiB and more ask for huge pages. With
 * malloc, each of glibc's arenas would keep the capacity of its largest block, and freeing a large
 * block raises malloc's mmap threshold. */
void *gsv_alloc_mapped(size_t size);
void gsv_free_mapped(void *memory);

/* Returns unused pages of the C library's heaps to the system (malloc_trim, glibc only). Without it
 * each arena keeps its peak size. The call is slow and covers the whole process: use it after
 * gigabytes were freed, not per request. */
void gsv_trim_heaps(void);

/* A copy of `size` bytes with a terminating NUL; owned, free(). */
char *gsv_copy_text(const char *text, size_t size);

/* Grows *array of *capacity elements to at least `needed` elements, by half, at most to `maximum`.
 * False if out of memory or over the maximum; the array is then unchanged. */
bool gsv_grow(void **array, size_t *capacity, size_t needed, size_t element_size, size_t maximum);

#endif
