/*
 * alloc.c - overflow-checked allocation, 64-byte alignment, mapped memory, growing arrays.
 *
 * gsv_alloc_mapped() writes a 64-byte header before the block it returns. The header records the
 * mapped size, or 0 for a block of aligned_alloc(). gsv_free_mapped() reads it to choose between
 * munmap() and free(). No shared state: every function is safe from any thread.
 */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "lib/base/alloc.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#define HUGE_PAGE ((size_t)2 << 20)

/* AddressSanitizer checks bounds and scans for pointers in malloc blocks only, so it gets no
 * mmap. */
#ifdef __SANITIZE_ADDRESS__
#define MIN_MAPPED SIZE_MAX
#else
#define MIN_MAPPED ((size_t)128 << 10)
#endif

/* Header before the memory that gsv_alloc_mapped() returns. */
struct alloc_head {
    _Alignas(64) size_t mapped; /* bytes including this header; 0: allocated by aligned_alloc() */
};

void *gsv_alloc_array(size_t n, size_t size)
{
    return calloc(n ? n : 1, size ? size : 1); /* calloc checks the product for overflow */
}

void *gsv_alloc_aligned(size_t size)
{
    const size_t rounded = gsv_round_up(size ? size : 1, 64);

    return rounded == SIZE_MAX ? NULL : aligned_alloc(64, rounded);
}

void gsv_free_aligned(void *memory)
{
    free(memory);
}

static void *map(void *wish, size_t size)
{
    void *memory = mmap(wish, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    return memory == MAP_FAILED ? NULL : memory;
}

/* Aligned to a huge page, unless another thread maps the freed range between munmap and mmap. */
static void *map_huge(size_t size)
{
    char *memory = map(NULL, size + HUGE_PAGE);

    if (!memory)
        return map(NULL, size);
    munmap(memory, size + HUGE_PAGE);
    memory = map(memory + (HUGE_PAGE - (uintptr_t)memory % HUGE_PAGE) % HUGE_PAGE, size);
    if (memory)
        (void)madvise(memory, size & ~(HUGE_PAGE - 1),
                      MADV_HUGEPAGE); /* whole huge pages only: no more memory than `size` */
    return memory;
}

void *gsv_alloc_mapped(size_t size)
{
    struct alloc_head *head;
    size_t whole;

    if (!gsv_add_size(size, sizeof(*head), &whole) || whole > PTRDIFF_MAX - HUGE_PAGE)
        return NULL;
    if (whole < MIN_MAPPED) {
        head = gsv_alloc_aligned(whole);
        if (head)
            head->mapped = 0;
    } else {
        head = whole < 2 * HUGE_PAGE ? map(NULL, whole) : map_huge(whole);
        if (head)
            head->mapped = whole;
    }
    return head ? head + 1 : NULL;
}

void gsv_free_mapped(void *memory)
{
    struct alloc_head *head = memory ? (struct alloc_head *)memory - 1 : NULL;

    if (head && head->mapped > 0)
        munmap(head, head->mapped);
    else
        gsv_free_aligned(head);
}

void gsv_trim_heaps(void)
{
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

char *gsv_copy_text(const char *text, size_t size)
{
    char *copy = size == SIZE_MAX ? NULL : malloc(size + 1);

    if (!copy)
        return NULL;
    memcpy(copy, text, size);
    copy[size] = '\0';
    return copy;
}

bool gsv_grow(void **array, size_t *capacity, size_t needed, size_t element_size, size_t maximum)
{
    size_t wanted = *capacity + *capacity / 2 + 16;
    size_t bytes;
    void *grown;

    if (needed <= *capacity)
        return true;
    if (needed > maximum)
        return false;
    if (wanted < needed)
        wanted = needed;
    if (wanted > maximum)
        wanted = maximum;
    if (!gsv_mul_size(wanted, element_size, &bytes))
        return false;
    grown = realloc(*array, bytes);
    if (!grown)
        return false;
    *array = grown;
    *capacity = wanted;
    return true;
}
