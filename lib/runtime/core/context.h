/*
 * context.h - state that the models of a context share: options, logging, memory budget, backends,
 * metrics.
 *
 * The parts of higher layers are pointers to types that these layers define, so that includes never
 * go up; context.c of api/ allocates them.
 */
#ifndef GSV_RUNTIME_CONTEXT_H
#define GSV_RUNTIME_CONTEXT_H

#include "lib/base/alloc.h"
#include "lib/base/host/host.h"
#include "lib/runtime/core/metrics.h"
#include "lib/runtime/core/nvtx.h"
#include "lib/runtime/core/process.h"

#include <gpuserve/gpuserve.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

struct context_parts;
struct gsv_budget;
struct gsv_cores;
struct gsv_hub;
struct gsv_plugin;

struct gpuserve_context {
    atomic_size_t n_owners;
    struct context_parts *parts; /* owned: the memory of the parts of higher layers */
    struct gsv_fork_check fork_check;
    int32_t n_threads;
    gpuserve_log_fn log; /* may be NULL */
    void *log_user;
    int32_t log_level;
    uint32_t memory_policy; /* gpuserve_memory_policy */
    struct gsv_hub *hub;
    char *weights_folder; /* of packed weights, see models/weights_cache.h; NULL: none are kept */
    struct gsv_metrics metrics;
    struct gsv_nvtx nvtx;
    atomic_bool driver_hangs; /* the NVIDIA driver does not answer: no further queries */
    struct gsv_cores *cores;  /* n_threads of them */
    struct gsv_topology topology;
    struct gsv_budget *budget; /* also lists the open models */

    pthread_mutex_t lock; /* for the fields below */
    struct gsv_plugin *cuda;
};

/* Check that the context is not NULL and was not created before a fork(). */
gpuserve_status gsv_context_check(const gpuserve_context *context, gpuserve_error *error);

void gsv_log(const gpuserve_context *context, int32_t level, const char *format, ...)
    GPUSERVE_PRINTF(3, 4);

/* Set the calling thread's context for log lines of a plugin, NULL for none. A plugin is loaded
 * once for all contexts, so a line goes to the context that its thread works for. Returns the
 * previous one. */
const gpuserve_context *gsv_log_scope(const gpuserve_context *context);
/* Log function of a plugin's host: a gpuserve_log_fn. */
void gsv_log_in_scope(void *user, int32_t level, const char *message);

#endif
