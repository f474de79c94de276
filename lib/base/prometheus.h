/*
 * prometheus.h - writes lines of the Prometheus text format (exposition format 0.0.4) into a
 * buffer.
 *
 * The library's page (lib/runtime/observe/prometheus.c) and the server's metrics before it
 * (lib/http/dialects/metrics.c) use it. Numbers are integers, or decimals formatted from integers,
 * so the program's locale cannot change the decimal point.
 */
#ifndef GSV_BASE_PROMETHEUS_H
#define GSV_BASE_PROMETHEUS_H

#include "lib/base/buffer.h"

/* A label with backslash, quote and newline escaped; the value ends at the first invalid UTF-8
 * byte. */
void gsv_page_label(struct gsv_buffer *page, const char *name, const char *value);

/* Writes # HELP and # TYPE; `kind` is counter, gauge or histogram. */
void gsv_page_head(struct gsv_buffer *page, const char *name, const char *kind, const char *help);

/* Head and one sample without labels. */
void gsv_page_number(struct gsv_buffer *page, const char *name, const char *kind, const char *help,
                     uint64_t value);

/* Heads and samples of several metrics without labels. */
struct gsv_page_row {
    const char *name, *kind, *help;
    uint64_t value;
};
void gsv_page_numbers(struct gsv_buffer *page, const struct gsv_page_row *rows, size_t n);

/* "1.5": value / 10^digits, without trailing zeros. */
void gsv_page_decimal(struct gsv_buffer *page, uint64_t value, int digits);

#endif
