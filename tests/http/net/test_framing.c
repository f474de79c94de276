/*
 * test_framing.c - cases of framing.c that no client can cause: the event loop's buffer is as long
 * as the longest header, and has no bytes before it.
 *
 * The other cases are in test_framing.py.
 */
#include "lib/http/net/framing.h"

#include <criterion/criterion.h>
#include <string.h>

static void refused(const char *bytes, size_t size, unsigned status, const char *reason)
{
    struct gsv_framing framing = { .max_body = 1000 };

    cr_expect_eq(gsv_framing_take(&framing, bytes, size), 0);
    cr_assert_eq(framing.state, GSV_FRAMING_REFUSED);
    cr_expect_eq(framing.status, status);
    cr_expect_str_eq(framing.reason, reason);
}

/* A complete header, so no more bytes are awaited; still too large. */
Test(framing, a_whole_header_that_is_too_large)
{
    static const char begin[] = "GET / HTTP/1.1\r\nHost: a\r\nX: ", end[] = "\r\n\r\n";
    char text[GSV_HEADER_BYTES + 1];
    struct gsv_framing framing = { .max_body = 1000 };

    memset(text, 'x', sizeof(text));
    memcpy(text, begin, sizeof(begin) - 1);
    memcpy(text + sizeof(text) - 4, end, 4);
    refused(text, sizeof(text), 431, "the header is too large");
    memcpy(text + sizeof(text) - 5, end, 4);
    cr_expect_eq(gsv_framing_take(&framing, text, sizeof(text) - 1), GSV_HEADER_BYTES);
}

/* The CR before the first byte is outside of the buffer. */
Test(framing, a_line_feed_alone)
{
    refused(&"\r\n"[1], 1, 400, "a line ends in LF without CR");
}
