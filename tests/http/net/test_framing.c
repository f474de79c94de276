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

/* Feeds `text` in parts of `step` bytes and writes what is passed on. */
static size_t feed(struct gsv_framing *framing, const char *text, size_t step, char *passed)
{
    char in[512];
    size_t n_in = 0, n_passed = 0, at = 0, n;

    while (at < strlen(text) || n_in > 0) {
        const size_t more = strlen(text) - at < step ? strlen(text) - at : step;

        memcpy(in + n_in, text + at, more);
        at += more;
        n_in += more;
        n = gsv_framing_take(framing, in, n_in);
        if (n == 0 && (more == 0 || framing->state == GSV_FRAMING_REFUSED))
            break;
        if (!framing->drop) {
            memcpy(passed + n_passed, in, n);
            n_passed += n;
        }
        memmove(in, in + n, n_in - n);
        n_in -= n;
    }
    passed[n_passed] = 0;
    return n_in;
}

#define HEADER "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"

/* Whatever the parts, the parser behind sees neither extensions nor trailers. */
Test(framing, extensions_and_trailers_are_dropped)
{
    static const char text[] =
        HEADER "2;a=b;c=\"d;\\\"e\"\r\nhi\r\n1;f\r\n!\r\n0;g\r\nX: y\r\nZ:\r\n\r\n";
    char passed[512];

    for (size_t step = 1; step <= sizeof(text); step++) {
        struct gsv_framing framing = { .max_body = 1000 };

        cr_expect_eq(feed(&framing, text, step, passed), 0);
        cr_expect_eq(framing.state, GSV_FRAMING_HEADER);
        cr_expect_str_eq(passed, HEADER "2\r\nhi\r\n1\r\n!\r\n0\r\n\r\n");
    }
}

/* The bound is on all of them together, and begins anew with each request. */
Test(framing, dropped_bytes_are_bounded)
{
    struct gsv_framing framing = { .max_body = 1000 };
    char passed[512];

    for (int request = 0; request < 3; request++) {
        feed(&framing, HEADER, 100, passed);
        for (int i = 0; i < 511; i++)
            cr_assert_eq(feed(&framing, "1;ab\r\nx\r\n", 100, passed), 0);
        feed(&framing, "0\r\n\r\n", 100, passed);
        cr_assert_eq(framing.state, GSV_FRAMING_HEADER);
    }
    feed(&framing, HEADER, 100, passed);
    for (int i = 0; i < 800 && framing.state != GSV_FRAMING_REFUSED; i++)
        feed(&framing, "1;ab\r\nx\r\n", 100, passed);
    cr_expect_eq(framing.status, 431);
    cr_expect_str_eq(framing.reason, "chunk extensions and trailers are too long");
    cr_expect_eq(framing.limit, GSV_DROPPED_BYTES);
}
