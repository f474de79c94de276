/*
 * prometheus_writer.h - the parts of the library's Prometheus page: histograms, devices, and the
 * metric names of text-embeddings-inference. Appends to a gsv_buffer, see lib/base/prometheus.h.
 */
#ifndef GSV_RUNTIME_PROMETHEUS_WRITER_H
#define GSV_RUNTIME_PROMETHEUS_WRITER_H

#include "lib/base/prometheus.h"
#include "lib/runtime/core/metrics.h"

/* Head and samples of the sum of `n` histograms. Those of gsv_bounds_time are written in
 * seconds. */
void gsv_page_histogram(struct gsv_buffer *page, const char *name, const char *help,
                        const struct gsv_bounds *bounds, const struct gsv_histogram *const *parts,
                        size_t n);

/* Memory, load, temperature and power of devices (prometheus_devices.c). */
void gsv_page_devices(struct gsv_buffer *page, gpuserve_context *context);

/* The same figures under the metric names of text-embeddings-inference (prometheus_tei.c). */
void gsv_page_te(struct gsv_buffer *page, const struct gsv_metrics *metrics);

#endif
