/*
 * adapters.h - LoRA adapters: low-rank additions to the weights of the encoder, chosen by run.
 *
 *   linear   W' x = W x + B (A x)           table   row' = row + B A[id]
 *
 * The items of adapter i (1 to n_adapters) follow the item of their weight: A and B of each linear
 * and of the word table; of the type table the whole sum, which is small.
 */
#ifndef GSV_MODEL_ADAPTERS_H
#define GSV_MODEL_ADAPTERS_H

#include "lib/model/weight_map.h"
#include "lib/model/weights/weights.h"

/* Items that follow a weight of a layer or the word table, and the type table. */
static inline size_t gsv_adapter_items(const struct gsv_config *config)
{
    return 2 * config->adapters.n;
}

/* Index of A of an adapter of item `item`; B follows it. */
static inline int32_t gsv_adapter_item(int32_t item, int32_t adapter)
{
    return item + 1 + 2 * (adapter - 1);
}

/* Index of the type table with an adapter; 0 is none. */
static inline int32_t gsv_adapter_types(int32_t type, int32_t adapter)
{
    return type < 0 ? -1 : type + adapter;
}

/* Check that the adapters fit the layout of the checkpoint. */
gpuserve_status gsv_check_adapters(const struct gsv_spec *spec, gpuserve_error *error);

/* Add the adapters of the item that was added last, the linear `name` or a table. */
gpuserve_status gsv_add_linear_adapters(const struct gsv_collector *c, const char *name);
gpuserve_status gsv_add_word_adapters(const struct gsv_collector *c);
gpuserve_status gsv_add_type_adapters(const struct gsv_collector *c);

/* Name the adapters as prompts; a prompt of the same name keeps its text. */
gpuserve_status gsv_add_adapter_prompts(struct gsv_spec *spec, gpuserve_error *error);

/* Read and write a GSV_ITEM_SUM_TABLE. */
gpuserve_status gsv_load_sum_table(const struct gsv_net *net, struct gsv_reader *reader,
                                   size_t item, gpuserve_error *error);

#endif
