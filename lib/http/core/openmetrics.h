/*
 * openmetrics.h - a page of the Prometheus text format as OpenMetrics 1.0, with exemplars.
 */
#ifndef GSV_HTTP_OPENMETRICS_H
#define GSV_HTTP_OPENMETRICS_H

#include "lib/base/buffer.h"

/* Appends " # {labels} value" for the bucket of a histogram, or nothing. The bucket has the times
 * above `above_ns` up to `upto_ns`, UINT64_MAX for the last one. */
typedef void (*gsv_put_exemplar)(void *user, struct gsv_buffer *to, const char *histogram,
                                 size_t size, uint64_t above_ns, uint64_t upto_ns);

/* Each family of the page is a HELP line, a TYPE line and samples. NULL: no exemplars. */
void gsv_openmetrics_write(struct gsv_buffer *to, const char *page, size_t size,
                           gsv_put_exemplar put_exemplar, void *user);

#endif
