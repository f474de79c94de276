/*
 * selector.h - device selectors: their syntax, and the choice among GPUs by them. Accesses no
 * device.
 *
 *   auto                      the GPU with the most free memory if one works, else the CPU
 *   auto:order=load,limit=2   GPUs as GPUtil's getAvailable() picks them, else the CPU
 *   cpu
 *   cuda   cuda:N   cuda:*    the first, number N, all
 *   cuda:N,cuda:N             several, in this order
 *   GPU-...   MIG-...         by UUID or a unique prefix of it
 *
 * Options of auto have GPUtil's meaning, and its defaults as soon as one option is given:
 *
 *   order=memory|load|index|first|last|random   limit=N   max_load=0.5   max_memory=0.5
 *   memory_free=MiB (or with K, M, G, T)   include_unknown=yes   exclude=0,3   exclude_uuid=...
 */
#ifndef GSV_RUNTIME_SELECTOR_H
#define GSV_RUNTIME_SELECTOR_H

#include <gpuserve/types.h>

#include <stdbool.h>

#define GSV_SELECTOR_LIST 32
#define GSV_SELECTOR_BYTES 2048
#define GSV_UUID_BYTES 96

enum gsv_selector_kind {
    GSV_SELECT_AUTO,
    GSV_SELECT_CPU,
    GSV_SELECT_CUDA, /* number `index` */
    GSV_SELECT_ALL,
    GSV_SELECT_LIST, /* the numbers of `list` */
    GSV_SELECT_UUID
};

enum gsv_selector_order {
    GSV_ORDER_FIRST, /* also "index" */
    GSV_ORDER_LAST,
    GSV_ORDER_LOAD,
    GSV_ORDER_MEMORY,
    GSV_ORDER_FREE, /* plain `auto`: most bytes free */
    GSV_ORDER_RANDOM
};

struct gsv_selector {
    enum gsv_selector_kind kind;
    int32_t index;
    int32_t list[GSV_SELECTOR_LIST];
    size_t n_list;
    char uuid[GSV_UUID_BYTES];
    bool has_options;
    enum gsv_selector_order order;
    uint32_t limit;
    double max_load, max_memory; /* fractions that a GPU must stay below */
    uint64_t memory_free_bytes;
    bool include_unknown; /* values that the driver does not report do not exclude a GPU */
    int32_t exclude[GSV_SELECTOR_LIST];
    size_t n_exclude;
    char exclude_uuid[GSV_SELECTOR_LIST][GSV_UUID_BYTES];
    size_t n_exclude_uuid;
};

/* NULL is "auto". GPUSERVE_E_INVALID names the word, the valid ones and the nearest. */
gpuserve_status gsv_selector_parse(struct gsv_selector *selector, const char *text,
                                   gpuserve_error *error);

/* A candidate GPU. */
struct gsv_candidate {
    int32_t id; /* N of "cuda:N" */
    char uuid[GSV_UUID_BYTES];
    uint64_t memory_bytes, memory_used_bytes, memory_free_bytes; /* total 0: unknown */
    int32_t load_percent;                                        /* -1: unknown */
    const char *fault; /* error that makes it unusable, or NULL */
};

/* Reason to reject a candidate; NULL if it is accepted. `text` is a buffer for the reason. */
const char *gsv_selector_refusal(const struct gsv_selector *selector,
                                 const struct gsv_candidate *candidate, char *text,
                                 size_t capacity);

/* Write the indices in `all` of the chosen candidates, best first, at most `limit`; returns their
 * number. */
size_t gsv_selector_pick(const struct gsv_selector *selector, const struct gsv_candidate *all,
                         size_t n, size_t picked[]);

/* The name nearest to a mistyped word, NULL if none is near. */
const char *gsv_nearest(const char *word, size_t length, const char *const *names, size_t n);

#endif
