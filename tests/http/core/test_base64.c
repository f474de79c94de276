/*
 * test_base64.c - the test vectors of RFC 4648, section 10, and decoding of all tail lengths.
 */
#include "lib/http/core/encoding.h"

#include <criterion/criterion.h>

#include <string.h>

Test(base64, vectors_of_the_standard)
{
    static const char *const vectors[][2] = { { "", "" },
                                              { "f", "Zg==" },
                                              { "fo", "Zm8=" },
                                              { "foo", "Zm9v" },
                                              { "foob", "Zm9vYg==" },
                                              { "fooba", "Zm9vYmE=" },
                                              { "foobar", "Zm9vYmFy" } };

    for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++) {
        const size_t size = strlen(vectors[i][0]);
        char text[16] = { 0 };

        gsv_base64_encode(text, vectors[i][0], size);
        cr_expect_str_eq(text, vectors[i][1]);
        cr_expect_eq(gsv_base64_size(size), strlen(text));
    }
}

static unsigned value_of(char letter)
{
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *found = letter == '=' ? NULL : strchr(letters, letter);

    return found ? (unsigned)(found - letters) : 0;
}

Test(base64, every_byte_at_every_place_comes_back)
{
    unsigned char bytes[64];
    char text[96];

    for (unsigned first = 0; first < 256; first++) {
        for (size_t size = 0; size <= sizeof(bytes); size++) {
            for (size_t i = 0; i < size; i++)
                bytes[i] = (unsigned char)(first + 37 * i);
            gsv_base64_encode(text, bytes, size);
            for (size_t i = 0; i < size; i++) {
                const char *group = text + i / 3 * 4;
                const unsigned all = value_of(group[0]) << 18 | value_of(group[1]) << 12 |
                                     value_of(group[2]) << 6 | value_of(group[3]);

                cr_assert_eq((unsigned char)(all >> (16 - 8 * (i % 3))), bytes[i], "%zu of %zu", i,
                             size);
            }
        }
    }
}
