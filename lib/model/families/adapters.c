/*
 * adapters.c - reads the LoRA adapters of config.json: "lora_adaptations", "lora_rank",
 * "lora_alpha", and the text before the texts of each, "task_instructions".
 */
#include "lib/model/families/config.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"

#include <string.h>

#define FILE_NAME GSV_CONFIG_NAME
#define MAX_ADAPTERS 64
#define MAX_RANK 1024

void gsv_adapters_reset(struct gsv_adapters *adapters)
{
    gsv_labels_free(adapters->names, adapters->n);
    gsv_labels_free(adapters->texts, adapters->n);
    memset(adapters, 0, sizeof(*adapters));
}

static gpuserve_status check_name(const struct gsv_json_value *list, size_t i,
                                  gpuserve_error *error)
{
    const char *name = gsv_json_get_string(gsv_json_at(list, i));

    if (!name || !*name)
        return gsv_fail(error, GPUSERVE_E_FORMAT,
                        FILE_NAME ": lora_adaptations: element %zu is not a name", i);
    for (size_t j = 0; j < i; j++)
        if (strcmp(gsv_json_get_string(gsv_json_at(list, j)), name) == 0)
            return gsv_fail(error, GPUSERVE_E_FORMAT,
                            FILE_NAME ": lora_adaptations: '%.64s' is there twice", name);
    return GPUSERVE_OK;
}

static gpuserve_status read_names(struct gsv_adapters *adapters, const struct gsv_json_value *json,
                                  const struct gsv_json_value *list, gpuserve_error *error)
{
    const struct gsv_json_value *instructions = gsv_json_member(json, "task_instructions");
    const size_t n = gsv_json_count(list);

    adapters->names = gsv_alloc_array(n, sizeof(*adapters->names));
    adapters->texts = gsv_alloc_array(n, sizeof(*adapters->texts));
    if (!adapters->names || !adapters->texts)
        return gsv_fail(error, GPUSERVE_E_NOMEM, FILE_NAME ": out of memory");
    adapters->n = n;
    for (size_t i = 0; i < n; i++) {
        const gpuserve_status st = check_name(list, i, error);
        const struct gsv_json_value *name = gsv_json_at(list, i);
        const char *text;

        if (st != GPUSERVE_OK)
            return st;
        text = gsv_json_get_string(gsv_json_member(instructions, gsv_json_get_string(name)));
        text = text ? text : "";
        adapters->names[i] = gsv_copy_text(gsv_json_get_string(name), name->n);
        adapters->texts[i] = gsv_copy_text(text, strlen(text));
        if (!adapters->names[i] || !adapters->texts[i])
            return gsv_fail(error, GPUSERVE_E_NOMEM, FILE_NAME ": out of memory");
    }
    return GPUSERVE_OK;
}

gpuserve_status gsv_adapters_read(struct gsv_adapters *adapters, const struct gsv_json_value *json,
                                  gpuserve_error *error)
{
    const struct gsv_json_value *list = gsv_json_member(json, "lora_adaptations");
    double alpha = 1.0;
    /* The dimension that encode() of the authors returns. */
    gpuserve_status st = gsv_config_refuse(json, "truncate_dim", error);

    if (st != GPUSERVE_OK || !list || gsv_json_is(list, GSV_JSON_NULL))
        return st;
    if (!gsv_json_is(list, GSV_JSON_ARRAY) || gsv_json_count(list) == 0 ||
        gsv_json_count(list) > MAX_ADAPTERS)
        return gsv_fail(error, GPUSERVE_E_FORMAT,
                        FILE_NAME ": lora_adaptations is not a list of 1 to %d names",
                        MAX_ADAPTERS);
    st = gsv_config_size(json, "lora_rank", MAX_RANK, &adapters->rank, error);
    if (st == GPUSERVE_OK && adapters->rank == 0)
        st = gsv_fail(error, GPUSERVE_E_FORMAT, FILE_NAME ": \"lora_rank\" is missing");
    if (st == GPUSERVE_OK)
        st = gsv_json_double(json, "lora_alpha", FILE_NAME, 0.0, 1e6, &alpha, error);
    if (st != GPUSERVE_OK)
        return st;
    adapters->scale = (float)(alpha / adapters->rank);
    adapters->words = adapters->types = true;
    return read_names(adapters, json, list, error);
}
