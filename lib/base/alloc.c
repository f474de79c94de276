/*
 * alloc.c - allocation with checked sizes.
 */
#include "lib/base/alloc.h"

#include <stdlib.h>
#include <string.h>

void *gsv_alloc_array(size_t n, size_t size)
{
    return calloc(n ? n : 1, size ? size : 1); /* calloc checks the product */
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
