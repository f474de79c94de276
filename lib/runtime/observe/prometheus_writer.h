/*
 * prometheus_writer.h - writing Prometheus text (exposition format 0.0.4), for prometheus.c and
 * prometheus_tei.c.
 *
 * Numbers are whole, or decimals made of whole numbers: the host program's locale has no say in the
 * decimal point. A page that cannot grow remembers it, so that only the end has to ask.
 */
#ifndef GSV_RUNTIME_PROMETHEUS_WRITER_H
#define GSV_RUNTIME_PROMETHEUS_WRITER_H

#include "lib/runtime/core/metrics.h"

struct gsv_page {
    char *text; /* owned */
    size_t length, capacity;
    bool failed; /* out of memory, or over the maximum: the text is not whole */
};

void gsv_page_add(struct gsv_page *page, const char *format, ...) GPUSERVE_PRINTF(2, 3);

/* A label's value with backslash, quote and newline escaped; what is not UTF-8 is cut off. */
void gsv_page_label(struct gsv_page *page, const char *name, const char *value);

/* # HELP and # TYPE; `kind` is counter, gauge or histogram. */
void gsv_page_head(struct gsv_page *page, const char *name, const char *kind, const char *help);

/* Head and one line without labels. */
void gsv_page_number(struct gsv_page *page, const char *name, const char *kind, const char *help,
                     uint64_t value);

/* "1.5": value / 10^digits, without closing zeros. */
void gsv_page_decimal(struct gsv_page *page, uint64_t value, int digits);

/* Head and lines of the sum of `n` histograms. Those of gsv_bounds_time come out in seconds. */
void gsv_page_histogram(struct gsv_page *page, const char *name, const char *help,
                        const struct gsv_bounds *bounds, const struct gsv_histogram *const *parts,
                        size_t n);

/* Memory, load, temperature, power of devices: prometheus_devices.c. */
void gsv_page_devices(struct gsv_page *page, gpuserve_context *context);

/* The names of text-embeddings-inference for the same figures: prometheus_tei.c. */
void gsv_page_te(struct gsv_page *page, const struct gsv_metrics *metrics);

#endif
