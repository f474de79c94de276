/*
 * devices.c - lists the compute devices, selects one, checks that a model fits, opens it.
 *
 *   devices MODEL [DEVICE]     DEVICE is auto (the default), cpu, cuda or cuda:N
 *
 * `auto` selects a working GPU, else the CPU, and returns the reason. An explicit device that is
 * unavailable is an error; the message names the missing layer (hardware, driver, runtime). The
 * footprint shows before loading whether the model fits.
 */
#include <gpuserve/gpuserve.h>

#include <inttypes.h>
#include <stdio.h>

#define MAX_DEVICES 16

static int complain(const gpuserve_error *error)
{
    fprintf(stderr, "%s\n%s\n", error->message, error->hint);
    return 1;
}

static int list(gpuserve_context *context)
{
    gpuserve_device_info devices[MAX_DEVICES] = { GPUSERVE_DEVICE_INFO_INIT };
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    size_t n;

    if (gpuserve_device_list(context, devices, MAX_DEVICES, &n, &error) != GPUSERVE_OK)
        return complain(&error);
    for (size_t i = 0; i < n && i < MAX_DEVICES; i++)
        printf("%-8s %s (%s), %" PRIu64 " MiB free\n", devices[i].selector, devices[i].name,
               devices[i].isa, devices[i].memory_free_bytes >> 20);
    return 0;
}

static int run(gpuserve_context *context, const char *path, const char *selector)
{
    gpuserve_device_info device = GPUSERVE_DEVICE_INFO_INIT;
    gpuserve_footprint footprint = GPUSERVE_FOOTPRINT_INIT;
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_model *model = NULL;
    char reason[256];

    if (gpuserve_device_select(context, selector, &device, 1, NULL, reason, sizeof(reason),
                               &error) != GPUSERVE_OK)
        return complain(&error);
    printf("%s: %s, because: %s\n", selector, device.selector, reason);
    options.device = device.selector;
    if (gpuserve_model_footprint(context, path, &options, &footprint, &error) != GPUSERVE_OK)
        return complain(&error);
    printf("the model takes %" PRIu64 " MiB of %" PRIu64 " MiB: it %s\n",
           footprint.total_bytes >> 20, footprint.available_bytes >> 20,
           footprint.fits ? "fits" : "does not fit");
    if (gpuserve_model_open(&model, context, path, &options, &error) != GPUSERVE_OK)
        return complain(&error);
    printf("vectors of %zu floats, space %s\n", gpuserve_model_dim(model),
           gpuserve_model_fingerprint(model));
    gpuserve_model_close(&model);
    return 0;
}

int main(int argc, char **argv)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_context *context = NULL;
    int failed;

    if (argc < 2 || argc > 3) {
        fprintf(stderr, "usage: devices MODEL [DEVICE]\n");
        return 2;
    }
    if (gpuserve_context_create(&context, NULL, &error) != GPUSERVE_OK)
        return complain(&error);
    failed = list(context) || run(context, argv[1], argc > 2 ? argv[2] : "auto");
    gpuserve_context_unref(&context);
    return failed;
}
