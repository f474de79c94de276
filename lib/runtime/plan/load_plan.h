/*
 * load_plan.h - everything about a model that is decided before its weights are read: directory,
 * device, dtype, threads, sizes of batches, bytes.
 *
 *   name + options --gsv_plan_make--> plan --> gpuserve_model_inspect, _footprint, _open
 */
#ifndef GSV_RUNTIME_LOAD_PLAN_H
#define GSV_RUNTIME_LOAD_PLAN_H

#include "lib/base/dir.h"
#include "lib/model/model.h"
#include "lib/runtime/devices/device.h"
#include "lib/runtime/core/metrics.h"
#include "lib/text/tokenizer.h"

#include <gpuserve/gpuserve.h>

/* Bytes that a model may take, of every kind of memory together and on each of its devices. */
struct gsv_capacity {
    uint64_t all, device;
};

struct gsv_plan {
    struct gsv_dir *dir;
    struct gsv_spec *spec;
    const struct gsv_spec_facts *facts; /* lent by the spec */
    struct gsv_tokenizer *tokenizer;
    struct gsv_device_choice device;    /* the first of: */
    struct gsv_device_choice *replicas; /* [n_replicas], of one backend; each gets all weights */
    size_t n_replicas;                  /* at most GSV_MAX_CUDA, which is 64 */
    uint32_t dtype;                     /* never DEFAULT */
    bool may_widen;     /* float16 was nobody's wish: bfloat16 where the model leaves its range */
    bool may_move;      /* another device may do the work of one that is lost */
    int32_t max_tokens; /* of a text */
    const char *default_prompt;      /* before texts of jobs that name none, or NULL */
    const char *default_prompt_name; /* of the model's prompts, where it is one of them */
    char *prompt_text;               /* owned: the default prompt of the options */
    int32_t n_workers; /* threads that run batches, one stream each; as many for each replica */
    bool has_wide;     /* and one more stream that all of them share: see batcher.h */
    struct gsv_exec_options narrow;
    struct gsv_exec_options wide;
    uint64_t max_wait_ns; /* of a batch that is not full, while the device is busy */
    uint64_t max_queue_tokens;
    uint64_t max_queue_bytes;
    uint64_t max_queue_ns; /* of work waiting; 0: any */
    uint64_t cache_bytes;
    struct gsv_memory memory;
    uint64_t total_bytes;
    uint64_t device_bytes;    /* of them on each device; all of them when that is the CPU */
    struct gsv_capacity room; /* now */
    struct gsv_capacity most; /* were nothing else loaded */
};

/* Read the directory's configuration and headers and its tokenizer. No device is touched. */
gpuserve_status gsv_plan_read(struct gsv_plan *plan, gpuserve_context *context, const char *model,
                              const gpuserve_model_options *options, gpuserve_error *error);

/* After gsv_plan_read: choose the device and count the bytes. A model that does not fit is no
 * error here. */
gpuserve_status gsv_plan_size(struct gsv_plan *plan, gpuserve_context *context,
                              const gpuserve_model_options *options, gpuserve_error *error);

bool gsv_plan_fits(const struct gsv_plan *plan, const struct gsv_capacity *room);

/* Tokens of the largest batches that fit in a room; 0 when not even one longest text does. */
int32_t gsv_plan_largest_batch(const struct gsv_plan *plan, const struct gsv_capacity *room);

void gsv_plan_reset(struct gsv_plan *plan);

/* "cpu", or "cuda:0,cuda:1" for replicas; of these those whose bit is set. */
void gsv_plan_selector(const struct gsv_plan *plan, uint64_t which, char *selector,
                       size_t capacity);

/* Floats that one batch of a work may bring back. */
size_t gsv_plan_output_floats(const struct gsv_plan *plan);

/* The options of a caller, checked; all zero when NULL. */
gpuserve_status gsv_read_model_options(gpuserve_model_options *to,
                                       const gpuserve_model_options *from, gpuserve_error *error);

/* "float32"; "unknown" for no dtype. */
const char *gsv_dtype_name(uint32_t dtype);

#endif
