/*
 * context.h - what models share: options, logging, the memory budget, backends, counters.
 */
#ifndef GSV_RUNTIME_CONTEXT_H
#define GSV_RUNTIME_CONTEXT_H

#include "lib/base/alloc.h"
#include "lib/base/topology.h"
#include "lib/runtime/memory/budget.h"
#include "lib/runtime/scheduler/concurrency.h"
#include "lib/runtime/core/fork_check.h"
#include "lib/runtime/plan/model_path.h"
#include "lib/runtime/core/metrics.h"
#include "lib/runtime/observe/nvtx.h"
#include "lib/runtime/devices/plugin.h"

#include <gpuserve/gpuserve.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

struct gpuserve_context {
    atomic_size_t n_owners;
    struct gsv_fork_check fork_check;
    int32_t n_threads;
    gpuserve_log_fn log; /* may be NULL */
    void *log_user;
    int32_t log_level;
    struct gsv_hub hub;
    struct gsv_metrics metrics;
    struct gsv_nvtx nvtx;
    atomic_bool driver_hangs; /* NVIDIA's: it is not asked again */
    struct gsv_cores cores;   /* n_threads of them */
    struct gsv_topology topology;
    struct gsv_budget budget; /* and the open models */

    pthread_mutex_t lock; /* for what follows */
    struct gsv_plugin cuda;
};

/* Not NULL and not forked. */
gpuserve_status gsv_context_check(const gpuserve_context *context, gpuserve_error *error);

void gsv_log(const gpuserve_context *context, int32_t level, const char *format, ...)
    GPUSERVE_PRINTF(3, 4);

/* A plugin is loaded once for all contexts, so a line it logs goes to the context for which its
 * thread works: set here, NULL for none. Returns the one before. */
const gpuserve_context *gsv_log_scope(const gpuserve_context *context);
/* What a plugin's host logs with: a gpuserve_log_fn. */
void gsv_log_in_scope(void *user, int32_t level, const char *message);

#endif
