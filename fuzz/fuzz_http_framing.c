/*
 * fuzz_http_framing.c - arbitrary bytes of a connection, fed at once and in parts.
 *
 * Checks: both ways give the same headers and status; bytes that passed have unambiguous framing.
 */
#include "fuzz/fuzz.h"

#include "lib/http/net/framing.h"

#include <stdlib.h>
#include <string.h>

struct outcome {
    size_t passed;
    uint64_t n_headers;
    enum gsv_framing_state state;
    unsigned status;
};

/* Feeds like a connection: a buffer of GSV_HEADER_BYTES, at most `step` new bytes per call. */
static struct outcome feed(const char *bytes, size_t size, size_t step)
{
    struct gsv_framing framing = { .max_body = 1 << 20 };
    size_t passed = 0, end = 0;

    while (framing.state != GSV_FRAMING_REFUSED) {
        size_t room = GSV_HEADER_BYTES - (end - passed), n;

        n = size - end < step ? size - end : step;
        end += n < room ? n : room;
        if (passed == end)
            break;
        n = gsv_framing_take(&framing, bytes + passed, end - passed);
        if (n > end - passed)
            abort();
        passed += n;
        if (n == 0 && end == size)
            break;
    }
    return (struct outcome){ passed, framing.n_headers, framing.state, framing.status };
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *bytes = (const char *)data;
    const struct outcome whole = feed(bytes, size, SIZE_MAX / 2);
    const struct outcome parts = feed(bytes, size, 7);

    if (whole.n_headers != parts.n_headers || whole.status != parts.status)
        abort();
    if ((whole.state == GSV_FRAMING_REFUSED) != (whole.status >= 400))
        abort();
    if (whole.passed > 0 && (memchr(bytes, '\r', whole.passed) == NULL || bytes[0] < 'A'))
        abort();
    return 0;
}
