/*
 * test_multipart.c - the parts of a form, and every prefix of one: no byte behind the end is read.
 */
#include "lib/http/core/encoding.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#define TYPE "multipart/form-data; boundary=b"

Test(multipart, every_prefix_ends)
{
    static const char body[] = "--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n"
                               "--b\r\nX: y\r\ncontent-disposition: form-data; name=\"file\"; "
                               "filename=\"n.jsonl\"\r\n\r\n{}\r\n--b--\r\n";
    struct gsv_multipart multipart;
    struct gsv_form_part part;

    for (size_t size = 0; size < sizeof(body); size++) {
        char *copy = malloc(size + 1); /* of its size, so that a sanitizer sees a read behind it */
        size_t n = 0;

        memcpy(copy, body, size);
        cr_assert(gsv_multipart_begin(&multipart, TYPE, copy, size));
        while (gsv_multipart_next(&multipart, &part))
            n++;
        cr_expect_leq(n, 2);
        free(copy);
    }
    cr_assert(gsv_multipart_begin(&multipart, TYPE, body, sizeof(body) - 1));
    cr_assert(gsv_multipart_next(&multipart, &part));
    cr_expect(part.name_size == 1 && part.name[0] == 'a' && !part.filename);
    cr_expect(part.size == 1 && part.bytes[0] == '1');
    cr_assert(gsv_multipart_next(&multipart, &part));
    cr_expect(part.filename_size == 7 && memcmp(part.filename, "n.jsonl", 7) == 0);
    cr_expect(part.name_size == 4 && memcmp(part.name, "file", 4) == 0);
    cr_expect(part.size == 2 && memcmp(part.bytes, "{}", 2) == 0);
    cr_expect(!gsv_multipart_next(&multipart, &part) && !multipart.fault);
}

Test(multipart, content_types)
{
    struct gsv_multipart multipart;
    char text[200] = "multipart/form-data; boundary=";

    cr_expect(!gsv_multipart_begin(&multipart, NULL, "", 0));
    cr_expect(!gsv_multipart_begin(&multipart, "multipart/form-data", "", 0));
    cr_expect(!gsv_multipart_begin(&multipart, "multipart/form-data; boundary=", "", 0));
    cr_expect(!gsv_multipart_begin(&multipart, "multipart/form-data; boundary=\"a", "", 0));
    cr_expect(!gsv_multipart_begin(&multipart, "multipart/mixed; boundary=a", "", 0));
    cr_expect(gsv_multipart_begin(&multipart, "Multipart/Form-Data; Boundary=\"a b\"", "", 0));
    cr_expect_str_eq(multipart.delimiter, "\r\n--a b");
    memset(text + 30, 'x', GSV_BOUNDARY_BYTES);
    cr_expect(gsv_multipart_begin(&multipart, text, "", 0));
    text[30 + GSV_BOUNDARY_BYTES] = 'x';
    cr_expect(!gsv_multipart_begin(&multipart, text, "", 0));
}

Test(duration, forms)
{
    static const struct {
        const char *text;
        int64_t ms;
    } good[] = {
        { "24h", 86400000 }, { "5m", 300000 },  { "1h30m", 5400000 }, { "300ms", 300 },
        { "1.5s", 1500 },    { "-1m", -60000 }, { "0s", 0 },          { "14d", 1209600000 },
        { "0", 0 },          { "-0", 0 },       { ".5s", 500 },       { "1.s", 1000 },
    };
    static const char *const bad[] = { "",     "5",     "h",    "5x", "5 m",
                                       "--5m", "5m-1s", "1e3s", ".",  "99999999999999999999d",
                                       ".s",   "-.h",   "00" };
    int64_t ms;

    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        cr_expect(gsv_duration_read(good[i].text, &ms), "%s", good[i].text);
        cr_expect_eq(ms, good[i].ms, "%s", good[i].text);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        cr_expect(!gsv_duration_read(bad[i], &ms), "%s", bad[i]);
}
