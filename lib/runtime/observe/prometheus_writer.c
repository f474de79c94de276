/*
 * prometheus_writer.c - writes the Prometheus text format into a growing, bounded buffer.
 *
 * Values are formatted from integers only. Histogram buckets are summed over their parts and
 * written cumulatively; counters are read atomically, without a lock.
 */
#include "lib/runtime/observe/prometheus_writer.h"

#include "lib/base/alloc.h"
#include "lib/base/utf8.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* The number of series is bounded; this limit only guards against a bug. */
#define MAX_PAGE_BYTES (4u << 20)

void gsv_page_add(struct gsv_page *page, const char *format, ...)
{
    va_list args, again;
    int size;

    if (page->failed)
        return;
    va_start(args, format);
    va_copy(again, args);
    size = vsnprintf(NULL, 0, format, args);
    va_end(args);
    page->failed = size < 0 || !gsv_grow((void **)&page->text, &page->capacity,
                                         page->length + (size_t)size + 1, 1, MAX_PAGE_BYTES);
    if (!page->failed) {
        vsnprintf(page->text + page->length, (size_t)size + 1, format, again);
        page->length += (size_t)size;
    }
    va_end(again);
}

void gsv_page_label(struct gsv_page *page, const char *name, const char *value)
{
    const size_t length = gsv_utf8_valid_length(value, strlen(value));
    size_t at = 0;

    gsv_page_add(page, "%s=\"", name);
    while (at < length) {
        const size_t plain = strcspn(value + at, "\\\"\n");
        const size_t n = plain < length - at ? plain : length - at;

        gsv_page_add(page, "%.*s", (int)n, value + at);
        at += n;
        if (at < length) {
            gsv_page_add(page, "\\%c", value[at] == '\n' ? 'n' : value[at]);
            at++;
        }
    }
    gsv_page_add(page, "\"");
}

void gsv_page_head(struct gsv_page *page, const char *name, const char *kind, const char *help)
{
    gsv_page_add(page, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind);
}

void gsv_page_number(struct gsv_page *page, const char *name, const char *kind, const char *help,
                     uint64_t value)
{
    gsv_page_head(page, name, kind, help);
    gsv_page_add(page, "%s %" PRIu64 "\n", name, value);
}

void gsv_page_decimal(struct gsv_page *page, uint64_t value, int digits)
{
    uint64_t unit = 1;

    for (int i = 0; i < digits; i++)
        unit *= 10;
    gsv_page_add(page, "%" PRIu64, value / unit);
    value %= unit;
    while (value > 0 && value % 10 == 0) {
        value /= 10;
        digits--;
    }
    if (value > 0)
        gsv_page_add(page, ".%0*" PRIu64, digits, value);
}

void gsv_page_histogram(struct gsv_page *page, const char *name, const char *help,
                        const struct gsv_bounds *bounds, const struct gsv_histogram *const *parts,
                        size_t n)
{
    const bool is_time = bounds == &gsv_bounds_time;
    uint64_t below = 0, sum = 0;

    gsv_page_head(page, name, "histogram", help);
    for (uint32_t i = 0; i <= bounds->n; i++) {
        for (size_t part = 0; part < n; part++)
            below += atomic_load(&parts[part]->counts[i]);
        gsv_page_add(page, "%s_bucket{le=\"", name);
        if (i < bounds->n)
            gsv_page_decimal(page, bounds->upper[i], is_time ? 6 : 0);
        else
            gsv_page_add(page, "+Inf");
        gsv_page_add(page, "\"} %" PRIu64 "\n", below);
    }
    for (size_t part = 0; part < n; part++)
        sum += atomic_load(&parts[part]->sum);
    gsv_page_add(page, "%s_sum ", name);
    gsv_page_decimal(page, sum, is_time ? 9 : 0);
    gsv_page_add(page, "\n%s_count %" PRIu64 "\n", name, below);
}
