/*
 * prometheus_devices.c - gauges of devices, for gpuserve_context_metrics().
 *
 * The CPU is always included. CUDA devices are included once the context has loaded the CUDA
 * backend: reading metrics must not load a GPU's libraries. Figures that the driver does not report
 * are omitted.
 */
#include "lib/runtime/core/context.h"
#include "lib/runtime/devices/cuda_devices.h"
#include "lib/runtime/devices/device.h"
#include "lib/runtime/observe/prometheus_writer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* Figures of one device; -1: unknown. */
struct prometheus_devices_row {
    char selector[64];
    const struct gpuserve_device_facts *facts;
    int64_t held_bytes, load_percent, celsius, milliwatts, processes;
};

struct gauge {
    const char *name, *help;
    size_t offset; /* in struct prometheus_devices_row */
    int digits;    /* after the decimal point */
};

static const struct gauge gauges[] = {
    { "gpuserve_device_held_bytes", "Device memory used by models of this process.",
      offsetof(struct prometheus_devices_row, held_bytes), 0 },
    { "gpuserve_device_load_ratio", "Utilization reported by the driver, 0 to 1.",
      offsetof(struct prometheus_devices_row, load_percent), 2 },
    { "gpuserve_device_temperature_celsius", "Temperature reported by the driver.",
      offsetof(struct prometheus_devices_row, celsius), 0 },
    { "gpuserve_device_power_watts", "Power draw reported by the driver.",
      offsetof(struct prometheus_devices_row, milliwatts), 3 },
    { "gpuserve_device_processes", "Compute processes on the device, reported by the driver.",
      offsetof(struct prometheus_devices_row, processes), 0 },
};

static void add_line(struct gsv_buffer *page, const char *metric,
                     const struct prometheus_devices_row *row, uint64_t value, int digits)
{
    gsv_buffer_format(page, "%s{", metric);
    gsv_page_label(page, "device", row->selector);
    gsv_buffer_format(page, ",");
    gsv_page_label(page, "name", row->facts->name);
    gsv_buffer_format(page, ",");
    gsv_page_label(page, "uuid", row->facts->uuid);
    gsv_buffer_format(page, "} ");
    gsv_page_decimal(page, value, digits);
    gsv_buffer_format(page, "\n");
}

static int64_t value_of(const struct prometheus_devices_row *row, const struct gauge *gauge)
{
    return *(const int64_t *)(const void *)((const char *)row + gauge->offset);
}

static void add_gauge(struct gsv_buffer *page, const struct gauge *gauge,
                      const struct prometheus_devices_row *rows, size_t n)
{
    bool any = false;

    for (size_t i = 0; i < n; i++)
        any = any || value_of(&rows[i], gauge) >= 0;
    if (!any)
        return;
    gsv_page_head(page, gauge->name, "gauge", gauge->help);
    for (size_t i = 0; i < n; i++) {
        if (value_of(&rows[i], gauge) >= 0)
            add_line(page, gauge->name, &rows[i], (uint64_t)value_of(&rows[i], gauge),
                     gauge->digits);
    }
}

static void add_memory(struct gsv_buffer *page, const struct prometheus_devices_row *rows, size_t n)
{
    const char *metric = "gpuserve_device_memory_bytes";

    gsv_page_head(page, metric, "gauge", "Total memory of the device.");
    for (size_t i = 0; i < n; i++)
        add_line(page, metric, &rows[i], rows[i].facts->memory_bytes, 0);
    metric = "gpuserve_device_memory_free_bytes";
    gsv_page_head(page, metric, "gauge", "Free memory of the device.");
    for (size_t i = 0; i < n; i++)
        add_line(page, metric, &rows[i], rows[i].facts->memory_free_bytes, 0);
}

static struct prometheus_devices_row host_row(gpuserve_context *context,
                                              const struct gsv_device_choice *cpu)
{
    struct prometheus_devices_row row = {
        .facts = &cpu->facts, .load_percent = -1, .celsius = -1, .milliwatts = -1, .processes = -1
    };

    gsv_device_selector(cpu, row.selector, sizeof(row.selector));
    row.held_bytes = (int64_t)gsv_metrics_held(&context->metrics, row.selector);
    return row;
}

static struct prometheus_devices_row cuda_row(const struct gsv_cuda_view *view, int32_t index)
{
    const struct gsv_cuda_device *device = &view->all[index];
    const struct gsv_gpu *gpu = device->gpu >= 0 ? &view->gpus->all[device->gpu] : NULL;
    struct prometheus_devices_row row = { .facts = &device->facts,
                                          .held_bytes = (int64_t)device->held_bytes,
                                          .load_percent = gpu ? gpu->load_percent : -1,
                                          .celsius = gpu ? gpu->temperature_celsius : -1,
                                          .milliwatts = gpu ? gpu->power_milliwatts : -1,
                                          .processes = gpu ? gpu->n_processes : -1 };

    snprintf(row.selector, sizeof(row.selector), "%s:%d", view->backend->name, index);
    return row;
}

void gsv_page_devices(struct gsv_buffer *page, gpuserve_context *context)
{
    struct prometheus_devices_row *rows = gsv_alloc_array(1 + GSV_MAX_CUDA, sizeof(*rows));
    struct gsv_cuda_view *view = NULL;
    struct gsv_device_choice cpu;
    bool has_cuda;
    size_t n = 0;

    page->failed = page->failed || !rows;
    if (!rows)
        return;
    if (gsv_device_choose(context, "cpu", &cpu, NULL) == GPUSERVE_OK)
        rows[n++] = host_row(context, &cpu);
    pthread_mutex_lock(&context->lock);
    has_cuda = context->cuda->chosen != NULL;
    pthread_mutex_unlock(&context->lock);
    if (has_cuda && gsv_cuda_view_make(&view, context, GSV_VIEW_MEMORY, NULL) == GPUSERVE_OK) {
        for (int32_t i = 0; i < view->n; i++) {
            if (view->all[i].works)
                rows[n++] = cuda_row(view, i);
        }
    }
    add_memory(page, rows, n);
    for (size_t i = 0; i < sizeof(gauges) / sizeof(gauges[0]); i++)
        add_gauge(page, &gauges[i], rows, n);
    gsv_cuda_view_free(&view);
    free(rows);
}
