/*
 * failing_malloc.c - replaces the process's malloc: the n-th allocation can fail, and all are
 * counted.
 *
 * Wraps glibc's functions; counters are atomic. Used single- and multi-threaded.
 */
#define _GNU_SOURCE
#include "tests/base/failing_malloc.h"

#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Visible to the C library too, so that its own calls (realpath, fopen) can fail and are
 * counted. */
#pragma GCC visibility push(default)

/* glibc's functions, exported for this purpose. */
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *memory, size_t size);
void *__libc_memalign(size_t alignment, size_t size);
void __libc_free(void *memory);

static atomic_long left; /* allocations until one fails; 0: not armed */
static atomic_bool is_forever, has_fired;
static atomic_long live_blocks;
static atomic_size_t live_bytes, peak_bytes;

void failing_malloc_arm(long n, bool forever)
{
    atomic_store(&has_fired, false);
    atomic_store(&is_forever, forever);
    atomic_store(&left, n);
}

bool failing_malloc_fired(void)
{
    return atomic_load(&has_fired);
}

long failing_malloc_live_blocks(void)
{
    return atomic_load(&live_blocks);
}

size_t failing_malloc_live_bytes(void)
{
    return atomic_load(&live_bytes);
}

size_t failing_malloc_peak_bytes(void)
{
    return atomic_exchange(&peak_bytes, atomic_load(&live_bytes));
}

static bool fails(void)
{
    if (atomic_load(&left) > 0 && atomic_fetch_sub(&left, 1) == 1)
        atomic_store(&has_fired, true);
    else if (!(atomic_load(&is_forever) && atomic_load(&has_fired)))
        return false;
    errno = ENOMEM;
    return true;
}

/* malloc_usable_size() of page-aligned blocks includes the padding, and is unknown for mmap():
 * these few blocks are counted with their requested size. */
#define MAX_ALIGNED 256
static struct {
    _Atomic(void *) memory;
    size_t size;
} aligned[MAX_ALIGNED];

static size_t size_of(void *memory)
{
    if ((uintptr_t)memory % 4096 == 0) {
        for (size_t i = 0; i < MAX_ALIGNED; i++) {
            if (atomic_load(&aligned[i].memory) == memory)
                return aligned[i].size;
        }
    }
    return malloc_usable_size(memory);
}

static bool note_aligned(void *memory, size_t size)
{
    for (size_t i = 0; memory && i < MAX_ALIGNED; i++) {
        void *none = NULL;

        if (atomic_compare_exchange_strong(&aligned[i].memory, &none, memory)) {
            aligned[i].size = size;
            return true;
        }
    }
    return false;
}

static bool forget_aligned(void *memory)
{
    for (size_t i = 0; i < MAX_ALIGNED; i++) {
        void *same = memory;

        if (atomic_compare_exchange_strong(&aligned[i].memory, &same, NULL))
            return true;
    }
    return false;
}

static void *count(void *memory)
{
    const size_t size = memory ? size_of(memory) : 0;
    size_t now, peak = atomic_load(&peak_bytes);

    if (!memory)
        return NULL;
    atomic_fetch_add(&live_blocks, 1);
    now = atomic_fetch_add(&live_bytes, size) + size;
    while (now > peak && !atomic_compare_exchange_weak(&peak_bytes, &peak, now))
        continue;
    return memory;
}

static void uncount(size_t size)
{
    atomic_fetch_sub(&live_blocks, 1);
    atomic_fetch_sub(&live_bytes, size);
}

void *malloc(size_t size)
{
    return fails() ? NULL : count(__libc_malloc(size));
}

void *calloc(size_t n, size_t size)
{
    return fails() ? NULL : count(__libc_calloc(n, size));
}

void *realloc(void *memory, size_t size)
{
    const size_t before = memory ? size_of(memory) : 0;
    void *moved;

    if (fails())
        return NULL;
    moved = __libc_realloc(memory, size);
    if (moved || size == 0) {
        if (memory)
            uncount(before);
        count(moved);
    }
    return moved;
}

void *memalign(size_t alignment, size_t size)
{
    void *memory = fails() ? NULL : __libc_memalign(alignment, size);

    if (alignment >= 4096)
        note_aligned(memory, size);
    return count(memory);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    return memalign(alignment, size);
}

int posix_memalign(void **memory, size_t alignment, size_t size)
{
    *memory = memalign(alignment, size);
    return *memory ? 0 : ENOMEM;
}

void free(void *memory)
{
    if (memory) {
        uncount(size_of(memory));
        if ((uintptr_t)memory % 4096 == 0)
            forget_aligned(memory);
    }
    __libc_free(memory);
}

/* Anonymous mappings; mapped files neither fail nor count. */
void *mmap(void *wish, size_t size, int protection, int flags, int fd, off_t offset)
{
    const bool is_memory = flags & MAP_ANONYMOUS;
    void *memory;

    if (is_memory && fails())
        return MAP_FAILED;
    memory = (void *)syscall(SYS_mmap, wish, size, protection, flags, fd, offset);
    if (is_memory && memory != MAP_FAILED && note_aligned(memory, size))
        count(memory);
    return memory;
}

int munmap(void *memory, size_t size)
{
    if (forget_aligned(memory))
        uncount(size);
    return (int)syscall(SYS_munmap, memory, size);
}
