/*
 * cuda.c - a backend plugin that lists the devices of GPUSERVE_FAKE_CUDA.
 *
 * The variable has their UUIDs in CUDA's order, separated by commas. Each device is the CPU backend
 * under another name, and reports 80 GiB of memory, all free. Where the driver (nvml.c) reports
 * other values, those must take priority.
 */
#include "kernels/kernels.h"
#include "lib/base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct gpuserve_backend table;

static const char *list(void)
{
    const char *given = getenv("GPUSERVE_FAKE_CUDA");

    return given ? given : "";
}

static gpuserve_status count(int32_t *n, gpuserve_error *error)
{
    *n = *list() != '\0';
    for (const char *at = list(); *at; at++)
        *n += *at == ',';
    return *n ? GPUSERVE_OK : gsv_fail(error, GPUSERVE_E_DEVICE, "the fake driver shows no device");
}

static gpuserve_status facts(int32_t index, struct gpuserve_device_facts *facts,
                             gpuserve_error *error)
{
    const char *at = list();

    (void)error;
    for (int32_t i = 0; i < index; i++)
        at = strchr(at, ',') + 1;
    facts->index = index;
    snprintf(facts->name, sizeof(facts->name), "Fake GPU");
    snprintf(facts->uuid, sizeof(facts->uuid), "%.*s", (int)strcspn(at, ","), at);
    snprintf(facts->isa, sizeof(facts->isa), "sm_90");
    facts->memory_bytes = facts->memory_free_bytes = 80ull << 30;
    facts->n_cores = 132;
    return GPUSERVE_OK;
}

static gpuserve_status open_device(struct gpuserve_device **device, int32_t index,
                                   gpuserve_error *error)
{
    (void)index;
    return gsv_backend_cpu()->device_open(device, 0, error);
}

__attribute__((visibility("default"))) const struct gpuserve_backend *
gpuserve_backend_entry(const struct gpuserve_host *host, gpuserve_error *error);

const struct gpuserve_backend *gpuserve_backend_entry(const struct gpuserve_host *host,
                                                      gpuserve_error *error)
{
    (void)host;
    (void)error;
    table = *gsv_backend_cpu();
    table.name = "cuda";
    table.device_count = count;
    table.device_facts = facts;
    table.device_open = open_device;
    return &table;
}
