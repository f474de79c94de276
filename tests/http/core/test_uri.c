/*
 * test_uri.c - decoding of URI paths never reads past the end.
 */
#include "lib/http/core/encoding.h"

#include <criterion/criterion.h>
#include <string.h>

/* A truncated escape ends before the NUL, not two bytes later. */
Test(uri, nothing_is_written_behind_a_broken_escape)
{
    static const char *const broken[] = { "a%", "a%2", "%", "%g0", "%0g" };

    for (size_t i = 0; i < sizeof(broken) / sizeof(broken[0]); i++) {
        const size_t size = strlen(broken[i]);
        char text[16];

        memset(text, 'x', sizeof(text));
        text[sizeof(text) - 1] = 0;
        memcpy(text, broken[i], size + 1);
        cr_expect_not(gsv_uri_decode(text), "%s", broken[i]);
        for (size_t j = size + 1; j + 1 < sizeof(text); j++)
            cr_expect_eq(text[j], 'x', "%s, byte %zu", broken[i], j);
        cr_expect_eq(text[size], 0, "%s", broken[i]);
    }
}
