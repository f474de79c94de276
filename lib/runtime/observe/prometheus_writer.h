/*
 * prometheus_writer.h - writes the Prometheus text format (exposition format 0.0.4), for
 * prometheus.c and prometheus_tei.c.
 *
 * Numbers are integers, or decimals formatted from integers, so the program's locale cannot change
 * the decimal point. A page that cannot grow sets `failed` and ignores later writes, so that one
 * check at the end is enough.
 */
#ifndef GSV_RUNTIME_PROMETHEUS_WRITER_H
#define GSV_RUNTIME_PROMETHEUS_WRITER_H

#include "lib/runtime/core/metrics.h"

struct gsv_page {
    char *text; /* owned */
    size_t length, capacity;
    bool failed; /* out of memory or over the maximum: the text is incomplete */
};

void gsv_page_add(struct gsv_page *page, const char *format, ...) GPUSERVE_PRINTF(2, 3);

/* A label with backslash, quote and newline escaped; the value ends at the first invalid UTF-8
 * byte. */
void gsv_page_label(struct gsv_page *page, const char *name, const char *value);

/* Writes # HELP and # TYPE; `kind` is counter, gauge or histogram. */
void gsv_page_head(struct gsv_page *page, const char *name, const char *kind, const char *help);

/* Head and one sample without labels. */
void gsv_page_number(struct gsv_page *page, const char *name, const char *kind, const char *help,
                     uint64_t value);

/* "1.5": value / 10^digits, without trailing zeros. */
void gsv_page_decimal(struct gsv_page *page, uint64_t value, int digits);

/* Head and samples of the sum of `n` histograms. Those of gsv_bounds_time are written in
 * seconds. */
void gsv_page_histogram(struct gsv_page *page, const char *name, const char *help,
                        const struct gsv_bounds *bounds, const struct gsv_histogram *const *parts,
                        size_t n);

/* Memory, load, temperature and power of devices (prometheus_devices.c). */
void gsv_page_devices(struct gsv_page *page, gpuserve_context *context);

/* The same figures under the metric names of text-embeddings-inference (prometheus_tei.c). */
void gsv_page_te(struct gsv_page *page, const struct gsv_metrics *metrics);

#endif
