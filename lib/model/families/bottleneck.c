/*
 * bottleneck.c - reads the sizes of bottleneck layers from config.json.
 *
 *   use_bottleneck               layers compute on intra_bottleneck_size columns
 *   use_bottleneck_attention     query, key and value read these columns
 *   key_query_shared_bottleneck  else: query and key read a projection of their own
 *   num_feedforward_networks     feed-forward networks of a layer, one after the other
 */
#include "lib/model/families/config.h"

#include "lib/base/error.h"

/* "true_hidden_size" repeats the columns inside a layer. */
static gpuserve_status check_inner_size(const struct gsv_config *config,
                                        const struct gsv_json_value *json, gpuserve_error *error)
{
    int32_t given = gsv_inner_size(config);
    const gpuserve_status st =
        gsv_config_size(json, "true_hidden_size", GSV_MAX_WIDTH, &given, error);

    if (st != GPUSERVE_OK || given == gsv_inner_size(config))
        return st;
    return gsv_fail(error, GPUSERVE_E_FORMAT,
                    GSV_CONFIG_NAME ": true_hidden_size is %d, but layers compute on %d columns",
                    given, gsv_inner_size(config));
}

gpuserve_status gsv_bottleneck_read(struct gsv_config *config, const struct gsv_json_value *json,
                                    gpuserve_error *error)
{
    bool used = true, narrow = false, shared = true;
    int32_t width = 128, n_ffns = 4;
    gpuserve_status st = gsv_json_bool(json, "use_bottleneck", GSV_CONFIG_NAME, &used, error);

    if (st == GPUSERVE_OK)
        st = gsv_json_bool(json, "use_bottleneck_attention", GSV_CONFIG_NAME, &narrow, error);
    if (st == GPUSERVE_OK)
        st = gsv_json_bool(json, "key_query_shared_bottleneck", GSV_CONFIG_NAME, &shared, error);
    if (st == GPUSERVE_OK)
        st = gsv_config_size(json, "intra_bottleneck_size", GSV_MAX_WIDTH, &width, error);
    if (st == GPUSERVE_OK)
        st = gsv_config_size(json, "num_feedforward_networks", GSV_MAX_FFNS, &n_ffns, error);
    if (st != GPUSERVE_OK)
        return st;
    config->n_ffns = n_ffns;
    if (!used)
        return check_inner_size(config, json, error);
    config->bottleneck.width = width;
    config->bottleneck.source = narrow   ? GSV_BOTTLENECK_INPUT
                                : shared ? GSV_BOTTLENECK_SHARED
                                         : GSV_BOTTLENECK_HIDDEN;
    if (config->bottleneck.source == GSV_BOTTLENECK_HIDDEN && width != config->hidden_size)
        return gsv_fail(error, GPUSERVE_E_FORMAT,
                        GSV_CONFIG_NAME ": query and key of bottleneck layers read %d columns, but "
                                        "intra_bottleneck_size is %d",
                        config->hidden_size, width);
    return check_inner_size(config, json, error);
}
