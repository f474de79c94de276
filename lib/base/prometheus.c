/*
 * prometheus.c - writes lines of the Prometheus text format.
 */
#include "lib/base/prometheus.h"

#include "lib/base/utf8.h"

#include <inttypes.h>
#include <string.h>

void gsv_page_label(struct gsv_buffer *page, const char *name, const char *value)
{
    const size_t length = gsv_utf8_valid_length(value, strlen(value));
    size_t at = 0;

    gsv_buffer_format(page, "%s=\"", name);
    while (at < length) {
        const size_t plain = strcspn(value + at, "\\\"\n");
        const size_t n = plain < length - at ? plain : length - at;

        gsv_buffer_format(page, "%.*s", (int)n, value + at);
        at += n;
        if (at < length) {
            gsv_buffer_format(page, "\\%c", value[at] == '\n' ? 'n' : value[at]);
            at++;
        }
    }
    gsv_buffer_format(page, "\"");
}

void gsv_page_head(struct gsv_buffer *page, const char *name, const char *kind, const char *help)
{
    gsv_buffer_format(page, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind);
}

void gsv_page_number(struct gsv_buffer *page, const char *name, const char *kind, const char *help,
                     uint64_t value)
{
    gsv_page_head(page, name, kind, help);
    gsv_buffer_format(page, "%s %" PRIu64 "\n", name, value);
}

void gsv_page_numbers(struct gsv_buffer *page, const struct gsv_page_row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++)
        gsv_page_number(page, rows[i].name, rows[i].kind, rows[i].help, rows[i].value);
}

void gsv_page_decimal(struct gsv_buffer *page, uint64_t value, int digits)
{
    uint64_t unit = 1;

    for (int i = 0; i < digits; i++)
        unit *= 10;
    gsv_buffer_format(page, "%" PRIu64, value / unit);
    value %= unit;
    while (value > 0 && value % 10 == 0) {
        value /= 10;
        digits--;
    }
    if (value > 0)
        gsv_buffer_format(page, ".%0*" PRIu64, digits, value);
}
