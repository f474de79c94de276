/*
 * constant_time.c - checks that the search for an API key takes constant time, with valgrind's
 * memcheck.
 *
 * The bytes of the digests are marked undefined, so memcheck reports each branch and each address
 * that depends on them. Built twice more with a comparison that stops at the first difference,
 * which memcheck must report. Exit code 77 if valgrind's header was missing at build time.
 */
#include "lib/http/protocol/access.h"

#include <stdio.h>
#include <string.h>

#if __has_include(<valgrind/memcheck.h>)
#include <valgrind/memcheck.h>
#else
#define VALGRIND_MAKE_MEM_UNDEFINED(address, size) ((void)(address), (void)(size))
#define VALGRIND_MAKE_MEM_DEFINED(address, size) ((void)(address), (void)(size))
#define RUNNING_ON_VALGRIND 2
#endif

enum { N = 5 };

/* Counterexample: stops at the first different byte. */
int gsv_compare_until(const void *a, const void *b, size_t size);
int gsv_compare_until(const void *a, const void *b, size_t size)
{
    const unsigned char *left = a, *right = b;

    for (size_t i = 0; i < size; i++) {
        if (left[i] != right[i])
            return 1;
    }
    return 0;
}

static void fill(struct gsv_key keys[N])
{
    memset(keys, 0, N * sizeof(keys[0]));
    for (size_t i = 0; i < N; i++) {
        for (size_t j = 0; j < GSV_DIGEST_BYTES; j++)
            keys[i].digest[j] = (unsigned char)(7 * j + 1); /* equal except for the last byte */
        keys[i].digest[GSV_DIGEST_BYTES - 1] = (unsigned char)i;
    }
}

/* True if the key is found at `want`; both digests are secret until the result is known. */
static int finds(const unsigned char given[GSV_DIGEST_BYTES], size_t want)
{
    struct gsv_key keys[N];
    unsigned char digest[GSV_DIGEST_BYTES];
    size_t found;

    fill(keys);
    memcpy(digest, given, sizeof(digest));
    for (size_t i = 0; i < N; i++)
        VALGRIND_MAKE_MEM_UNDEFINED(keys[i].digest, GSV_DIGEST_BYTES);
    VALGRIND_MAKE_MEM_UNDEFINED(digest, sizeof(digest));
    found = gsv_keys_find(keys, N, digest);
    VALGRIND_MAKE_MEM_DEFINED(&found, sizeof(found)); /* the result is public */
    return found == want;
}

int main(void)
{
    struct gsv_key keys[N];
    unsigned char other[GSV_DIGEST_BYTES] = { 0 };

    if (RUNNING_ON_VALGRIND == 2)
        return 77;
    fill(keys);
    for (size_t i = 0; i < N; i++) {
        if (!finds(keys[i].digest, i)) {
            printf("key %zu is not found\n", i);
            return 1;
        }
    }
    if (!finds(other, N)) {
        printf("a key is found that is none\n");
        return 1;
    }
    printf("%s valgrind, all found\n", RUNNING_ON_VALGRIND ? "on" : "without");
    return 0;
}
