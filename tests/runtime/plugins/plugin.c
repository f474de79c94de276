/*
 * plugin.c - a backend plugin, good or with one fault, selected by PLUGIN_FAULT.
 *
 * The good one is the CPU backend under another name: a working device that is not "cpu". A variant
 * has two devices of 12 GB, for models that only reserve memory. Two are builds for different
 * drivers; the driver's version is in GPUSERVE_TEST_DRIVER.
 */
#include "kernels/kernels.h"
#include "lib/base/error.h"

#include <stdio.h>
#include <stdlib.h>

#define FAULT_NONE 0
#define FAULT_ABI 1
#define FAULT_SLOT 2
#define FAULT_NO_ENTRY 3
#define FAULT_NO_DRIVER 4
#define FAULT_NO_DEVICE 5
#define FAULT_SMALL 6 /* no fault: two devices of 12 GB, never used up */
#define FAULT_LOSSY 7 /* copies leave the last byte out */
#define FAULT_NEEDS_580 8
#define FAULT_NEEDS_525 9

#if PLUGIN_FAULT != FAULT_NO_ENTRY

static struct gpuserve_backend table;

#if PLUGIN_FAULT == FAULT_NO_DEVICE
static gpuserve_status no_device(int32_t *count, gpuserve_error *error)
{
    *count = 0;
    gsv_fail(error, GPUSERVE_E_DEVICE, "the driver sees no device");
    return gsv_hint(error, GPUSERVE_E_DEVICE, "plug one in");
}
#endif

#if PLUGIN_FAULT == FAULT_SMALL
static gpuserve_status two_devices(int32_t *count, gpuserve_error *error)
{
    (void)error;
    *count = 2;
    return GPUSERVE_OK;
}

static gpuserve_status small_facts(int32_t index, struct gpuserve_device_facts *facts,
                                   gpuserve_error *error)
{
    const gpuserve_status st = gsv_backend_cpu()->device_facts(0, facts, error);

    facts->index = index;
    facts->memory_bytes = facts->memory_free_bytes = 12000000000;
    return st;
}

static gpuserve_status small_open(struct gpuserve_device **device, int32_t index,
                                  gpuserve_error *error)
{
    (void)index;
    return gsv_backend_cpu()->device_open(device, 0, error);
}
#endif

#if PLUGIN_FAULT == FAULT_LOSSY
static gpuserve_status lossy_transfer(struct gpuserve_device *device,
                                      struct gpuserve_op_transfer *op, gpuserve_error *error)
{
    struct gpuserve_op_transfer part = *op;

    part.size--;
    return gsv_backend_cpu()->transfer(device, &part, error);
}
#endif

#if PLUGIN_FAULT == FAULT_NEEDS_580 || PLUGIN_FAULT == FAULT_NEEDS_525
static const int oldest_driver = PLUGIN_FAULT == FAULT_NEEDS_580 ? 580 : 525;

static gpuserve_status count_by_driver(int32_t *count, gpuserve_error *error)
{
    const char *const driver = getenv("GPUSERVE_TEST_DRIVER");

    *count = driver && atoi(driver) >= oldest_driver;
    if (*count > 0)
        return GPUSERVE_OK;
    gsv_fail(error, GPUSERVE_E_UNSUPPORTED, "driver %s, needs %d", driver, oldest_driver);
    return gsv_hint(error, GPUSERVE_E_UNSUPPORTED, "update to %d", oldest_driver);
}

static gpuserve_status facts_by_driver(int32_t index, struct gpuserve_device_facts *facts,
                                       gpuserve_error *error)
{
    const gpuserve_status st = gsv_backend_cpu()->device_facts(index, facts, error);

    snprintf(facts->name, sizeof(facts->name), "build for %d", oldest_driver);
    return st;
}
#endif

__attribute__((visibility("default"))) const struct gpuserve_backend *
gpuserve_backend_entry(const struct gpuserve_host *host, gpuserve_error *error);

const struct gpuserve_backend *gpuserve_backend_entry(const struct gpuserve_host *host,
                                                      gpuserve_error *error)
{
    host->log(host->log_user, GPUSERVE_LOG_INFO, "never NULL");
    table = *gsv_backend_cpu();
    table.name = "cuda";
#if PLUGIN_FAULT == FAULT_ABI
    table.abi = GPUSERVE_BACKEND_ABI + 1;
#elif PLUGIN_FAULT == FAULT_SLOT
    table.attention = NULL;
#elif PLUGIN_FAULT == FAULT_NO_DRIVER
    gsv_fail(error, GPUSERVE_E_DEVICE, "no driver: libcuda.so.1 is missing");
    gsv_hint(error, GPUSERVE_E_DEVICE, "install the driver");
    return NULL;
#elif PLUGIN_FAULT == FAULT_NO_DEVICE
    table.device_count = no_device;
#elif PLUGIN_FAULT == FAULT_SMALL
    table.device_count = two_devices;
    table.device_facts = small_facts;
    table.device_open = small_open;
#elif PLUGIN_FAULT == FAULT_LOSSY
    table.transfer = lossy_transfer;
#elif PLUGIN_FAULT == FAULT_NEEDS_580 || PLUGIN_FAULT == FAULT_NEEDS_525
    table.device_count = count_by_driver;
    table.device_facts = facts_by_driver;
#endif
    (void)error;
    return &table;
}

#endif
