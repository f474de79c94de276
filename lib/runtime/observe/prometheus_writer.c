/*
 * prometheus_writer.c - writes histograms in the Prometheus text format.
 *
 * Values are formatted from integers only. Histogram buckets are summed over their parts and
 * written cumulatively; counters are read atomically, without a lock.
 */
#include "lib/runtime/observe/prometheus_writer.h"

#include <inttypes.h>

void gsv_page_histogram(struct gsv_buffer *page, const char *name, const char *help,
                        const struct gsv_bounds *bounds, const struct gsv_histogram *const *parts,
                        size_t n)
{
    const bool is_time = bounds == &gsv_bounds_time;
    uint64_t below = 0, sum = 0;

    gsv_page_head(page, name, "histogram", help);
    for (uint32_t i = 0; i <= bounds->n; i++) {
        for (size_t part = 0; part < n; part++)
            below += atomic_load(&parts[part]->counts[i]);
        gsv_buffer_format(page, "%s_bucket{le=\"", name);
        if (i < bounds->n)
            gsv_page_decimal(page, bounds->upper[i], is_time ? 6 : 0);
        else
            gsv_buffer_format(page, "+Inf");
        gsv_buffer_format(page, "\"} %" PRIu64 "\n", below);
    }
    for (size_t part = 0; part < n; part++)
        sum += atomic_load(&parts[part]->sum);
    gsv_buffer_format(page, "%s_sum ", name);
    gsv_page_decimal(page, sum, is_time ? 9 : 0);
    gsv_buffer_format(page, "\n%s_count %" PRIu64 "\n", name, below);
}
