/*
 * keep_order.c - maps indices of an order of products to the products of the layers. No state.
 */
#include "lib/model/int8/keep_order.h"

#include "lib/model/encoder/encoder.h"
#include "lib/model/weights/weights.h"

int32_t gsv_kept_product(const struct gsv_spec *spec, enum gsv_product_order order, int32_t at)
{
    const int32_t n = spec->config.n_stored_layers, ffns = spec->config.n_ffns;
    const int32_t stages = gsv_stage_count(spec), others = stages - ffns;
    const int32_t first = order == GSV_ATTENTION_FIRST ? 2 : ffns; /* products of a layer */
    const int32_t late = at - first * n;

    if (order == GSV_LAYERS)
        return at;
    if (order == GSV_ATTENTION_FIRST && late < 0)
        return at / 2 * stages + at % 2;
    if (order == GSV_ATTENTION_FIRST)
        return late / (2 * ffns) * stages + GSV_STAGE_CONTRACT + late % (2 * ffns) / 2 * 2 -
               late % 2;
    if (late < 0)
        return at / ffns * stages + GSV_STAGE_CONTRACT + at % ffns * 2;
    return late / others * stages + (late % others < GSV_STAGE_EXPAND
                                         ? late % others
                                         : 2 * (late % others) - GSV_STAGE_EXPAND);
}

int32_t gsv_product_item(const struct gsv_spec *spec, int32_t product)
{
    const int32_t stages = gsv_stage_count(spec);

    return gsv_stage_item(spec, gsv_stored_layer(spec, product / stages), product % stages);
}
