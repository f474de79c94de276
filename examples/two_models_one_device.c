/*
 * two_models_one_device.c - two models that do not fit on a device together, under each memory
 * policy.
 *
 *   two_models_one_device LARGE SMALL [DEVICE]     DEVICE is cpu by default
 *   two_models_one_device [1:SCALE [DEVICE]]       random models of 9 GB and 5 GB, and 12 GB; SCALE
 * is 1 (the default), 4, 16 or 64: all sizes divided
 *
 * Example: models of 9 GB and 5 GB on a device of 12 GB. Without a budget, the failure is an
 * out-of-memory error of the device during a request. Here the footprint is computed from the file
 * headers, so the conflict is detected before loading:
 *
 *   refuse   opening the second model fails; the message lists the memory of each model
 *   wait     opening blocks until the first model is suspended or closed
 *   evict    the idle model is evicted, and reloaded by its next request, as often as needed
 *
 * The program sets the device's budget to 12/14 of both footprints, so any two models show it.
 * Random models ("random:layers=43,hidden=2048") have no files: their weights are computed when
 * loaded.
 */
#include <gpuserve/gpuserve.h>

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static const char *const text[] = { "A man is eating food." };

static void must(gpuserve_status status, const gpuserve_error *error)
{
    if (status == GPUSERVE_OK)
        return;
    fprintf(stderr, "%s\n%s\n", error->message, error->hint);
    exit(1);
}

/* ------------------------------------------------------------------------------------- helpers */

struct setting {
    const char *paths[2]; /* LARGE, SMALL */
    const char *device;
    uint64_t budget_bytes;
    uint32_t dtype;
    char made[2][96]; /* paths of random models */
};

static gpuserve_model_options options_of(const struct setting *setting, const char *name)
{
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;

    options.device = setting->device;
    options.dtype = setting->dtype;
    options.name = name;
    return options;
}

static uint64_t footprint_of(const struct setting *setting, const char *path)
{
    const gpuserve_model_options options = options_of(setting, NULL);
    gpuserve_footprint footprint = GPUSERVE_FOOTPRINT_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_context *context = NULL;

    must(gpuserve_context_create(&context, NULL, &error), &error);
    must(gpuserve_model_footprint(context, path, &options, &footprint, &error), &error);
    gpuserve_context_unref(&context);
    printf("%s takes %" PRIu64 " bytes\n", path, footprint.total_bytes);
    return footprint.total_bytes;
}

static gpuserve_context *context_with(const struct setting *setting, uint32_t policy)
{
    gpuserve_context_options options = GPUSERVE_CONTEXT_OPTIONS_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_context *context = NULL;

    options.memory_policy = policy;
    must(gpuserve_context_create(&context, &options, &error), &error);
    must(gpuserve_context_set_budget(context, setting->device, setting->budget_bytes, &error),
         &error);
    return context;
}

static gpuserve_model *open_model(const struct setting *setting, gpuserve_context *context,
                                  int which, const char *name)
{
    const gpuserve_model_options options = options_of(setting, name);
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_model *model = NULL;

    must(gpuserve_model_open(&model, context, setting->paths[which], &options, &error), &error);
    return model;
}

static void use(gpuserve_model *model, const char *name)
{
    const size_t dim = gpuserve_model_dim(model);
    float *vector = calloc(dim ? dim : 1, sizeof(*vector));
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    if (!vector)
        exit(1);
    must(gpuserve_embed(model, text, 1, vector, dim, NULL, &error), &error);
    printf("  %s answers: %.6f ...\n", name, (double)vector[0]);
    free(vector);
}

static void show_models(gpuserve_context *context)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    char json[8192];

    must(gpuserve_context_models(context, json, sizeof(json), NULL, &error), &error);
    printf("  %s\n", json);
}

/* ------------------------------------------------------------------------------------- policies */

static void refuse(const struct setting *setting)
{
    gpuserve_context *context = context_with(setting, GPUSERVE_MEMORY_REFUSE);
    gpuserve_model *large = open_model(setting, context, 0, "large"), *small = NULL;
    const gpuserve_model_options options = options_of(setting, "small");
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    const gpuserve_status status =
        gpuserve_model_open(&small, context, setting->paths[1], &options, &error);

    printf("refuse: %s: %s\n", gpuserve_status_name(status), error.message);
    use(large, "large");
    gpuserve_model_close(&small);
    gpuserve_model_close(&large);
    gpuserve_context_unref(&context);
    if (status != GPUSERVE_E_TOO_LARGE)
        exit(1);
}

struct waiter {
    const struct setting *setting;
    gpuserve_context *context;
    gpuserve_model *model;
};

static void *open_second(void *argument)
{
    struct waiter *waiter = argument;

    waiter->model = open_model(waiter->setting, waiter->context, 1, "small");
    return NULL;
}

static void wait_for_room(const struct setting *setting)
{
    gpuserve_context *context = context_with(setting, GPUSERVE_MEMORY_WAIT);
    gpuserve_model *large = open_model(setting, context, 0, "large");
    struct waiter waiter = { setting, context, NULL };
    pthread_t thread;

    if (pthread_create(&thread, NULL, open_second, &waiter) != 0)
        exit(1);
    use(large, "large");
    gpuserve_model_close(&large); /* frees memory for the second model */
    pthread_join(thread, NULL);
    printf("wait: opened when the other had ended\n");
    use(waiter.model, "small");
    gpuserve_model_close(&waiter.model);
    gpuserve_context_unref(&context);
}

static void evict(const struct setting *setting)
{
    gpuserve_context *context = context_with(setting, GPUSERVE_MEMORY_EVICT);
    gpuserve_model *large = open_model(setting, context, 0, "large");
    gpuserve_model *small = open_model(setting, context, 1, "small"); /* evicts the large model */

    printf("evict: both are open, one of them at a time in memory\n");
    show_models(context);
    for (int i = 0; i < 2; i++) {
        use(large, "large");
        use(small, "small");
    }
    gpuserve_model_close(&large);
    gpuserve_model_close(&small);
    gpuserve_context_unref(&context);
}

/* ------------------------------------------------------------------------------------ settings */

/* A layer of width 2048 has 201 MB in float32; a width divided by d divides that by the square. */
static int make_random(struct setting *setting, const char *scale)
{
    static const int layers[2] = { 43, 23 };
    unsigned n = 0, d = 1;

    if (sscanf(scale, "1:%u", &n) != 1 || (n != 1 && n != 4 && n != 16 && n != 64))
        return 0;
    while (d * d < n)
        d *= 2;
    for (int i = 0; i < 2; i++) {
        snprintf(setting->made[i], sizeof(setting->made[i]),
                 "random:layers=%d,hidden=%u,vocab=%u,seed=%d", layers[i], 2048 / d, 30522 / d, i);
        setting->paths[i] = setting->made[i];
    }
    setting->dtype = GPUSERVE_DTYPE_FLOAT32;
    setting->budget_bytes = UINT64_C(12000000000) / n;
    return 1;
}

static int read_arguments(struct setting *setting, int argc, char **argv)
{
    const char *scale = argc > 1 ? argv[1] : "1:1";

    if (argc < 2 || scale[0] == '1') {
        setting->device = argc > 2 ? argv[2] : "cpu";
        return argc < 4 && make_random(setting, scale);
    }
    setting->device = argc > 3 ? argv[3] : "cpu";
    setting->paths[0] = argv[1];
    setting->paths[1] = argv[2];
    return argc == 3 || argc == 4;
}

int main(int argc, char **argv)
{
    struct setting setting = { .device = "cpu" };
    uint64_t large, small;

    if (!read_arguments(&setting, argc, argv)) {
        fprintf(stderr, "usage: %s LARGE SMALL [DEVICE], or [1:1|1:4|1:16|1:64 [DEVICE]]\n",
                argv[0]);
        return 2;
    }
    large = footprint_of(&setting, setting.paths[0]);
    small = footprint_of(&setting, setting.paths[1]);
    if (setting.budget_bytes == 0)
        setting.budget_bytes = (large + small) / 14 * 12;
    if (setting.budget_bytes < large || setting.budget_bytes < small) { /* each must fit alone */
        setting.budget_bytes = large > small ? large : small;
        printf("of unlike sizes: ");
    }
    printf("the budget of %s is %" PRIu64 " bytes\n", setting.device, setting.budget_bytes);
    refuse(&setting);
    wait_for_room(&setting);
    evict(&setting);
    return 0;
}
