/*
 * adapters.h - LoRA adapters: low-rank additions to the weights of the encoder, chosen by run.
 *
 *   linear   W' x = W x + B (A x)           table   row' = row + B A[id]
 *
 * They are in the checkpoint itself (Jina v3), or in directories of their own in PEFT's format,
 * which gsv_spec_load_with() gets; adapter_files.c finds the factors there.
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
static inline int32_t gsv_adapter_types(const struct gsv_spec *spec, int32_t adapter)
{
    return spec->type < 0 || !spec->config.adapters.types ? spec->type : spec->type + adapter;
}

/* Check that the adapters fit the layout of the checkpoint. */
gpuserve_status gsv_check_adapters(const struct gsv_spec *spec, gpuserve_error *error);

/* Add the adapters of the item that was added last, a linear or a table. `name` is that of the
 * linear's tensor, if it is one tensor. */
gpuserve_status gsv_add_linear_adapters(const struct gsv_collector *c, const char *name);
gpuserve_status gsv_add_word_adapters(const struct gsv_collector *c);
gpuserve_status gsv_add_type_adapters(const struct gsv_collector *c);

/* adapter_files.c: open the directories of adapters, whose names become config.adapters. */
gpuserve_status gsv_adapter_files_open(struct gsv_spec *spec, const struct gsv_adapter_dirs *dirs,
                                       gpuserve_error *error);
void gsv_adapter_files_close(struct gsv_spec *spec);
/* Check that the layers are of a kind that adapters by request are implemented for. */
gpuserve_status gsv_adapter_files_check(const struct gsv_spec *spec, gpuserve_error *error);
/* Add A and B of each adapter, if there are any, for the item that was added last. An adapter that
 * does not target it gets factors of zeros. */
gpuserve_status gsv_adapter_files_add(const struct gsv_collector *c);
/* The same for the word table, if an adapter targets it. */
gpuserve_status gsv_adapter_files_add_words(const struct gsv_collector *c);
/* Refuse an adapter that targets a tensor of the model which has no items for adapters; after the
 * last item. Frees what only the search needs. */
gpuserve_status gsv_adapter_files_finish(struct gsv_spec *spec, gpuserve_error *error);

/* Host memory that their factors take. */
uint64_t gsv_adapter_files_bytes(const struct gsv_spec *spec);

/* Name the adapters as prompts; a prompt of the same name keeps its text. */
gpuserve_status gsv_add_adapter_prompts(struct gsv_spec *spec, gpuserve_error *error);

/* Read and write a GSV_ITEM_SUM_TABLE. */
gpuserve_status gsv_load_sum_table(const struct gsv_net *net, struct gsv_reader *reader,
                                   size_t item, gpuserve_error *error);

#endif
