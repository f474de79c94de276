/*
 * fuzz_config.c - arbitrary config.json, Pooling config and Dense config: accepted ones are
 * consistent.
 */
#include "fuzz/fuzz.h"

#include "lib/base/json_tree.h"
#include "lib/model/families/config.h"
#include "lib/model/modules/modules.h"

#include <stdlib.h>
#include <string.h>

static void read_config(const struct gsv_json_value *json)
{
    struct gsv_config config = { 0 };
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    if (gsv_config_parse(&config, json, &error) != GPUSERVE_OK) {
        if (config.labels || config.architecture || !error.message[0])
            abort();
        return;
    }
    if (!config.family || config.head_size < 1 || config.n_kv_heads < 1 ||
        config.n_heads % config.n_kv_heads != 0 || config.first_position >= config.max_positions ||
        config.n_layers < 1)
        abort();
    for (size_t i = 0; i < config.n_labels; i++)
        if (!config.labels[i])
            abort();
    gsv_config_reset(&config);
}

static void read_modules(const struct gsv_json_value *json)
{
    struct gsv_modules modules = { 0 };
    struct gsv_dense_spec dense = { 0 };
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    if (gsv_pooling_parse(&modules, json, &error) == GPUSERVE_OK &&
        (modules.n_poolings < 1 || modules.n_poolings > GSV_MAX_POOLINGS))
        abort();
    if (gsv_dense_parse(&dense, json, &error) == GPUSERVE_OK &&
        (dense.in_features < 1 || dense.out_features < 1))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct gsv_json_limits limits = { .max_values = 1000, .max_depth = 32 };
    struct gsv_json_value *json = NULL;

    if (gsv_json_read(&json, (const char *)data, size, "fuzz", limits, NULL) != GPUSERVE_OK)
        return 0;
    if (gsv_json_is(json, GSV_JSON_OBJECT)) {
        read_config(json);
        read_modules(json);
    }
    gsv_json_free(&json);
    return 0;
}
