/*
 * context.c - the context: options, logging, memory budget, backends and metrics shared by models.
 *
 * A context is reference-counted: one reference for its creator, one per model, one per request.
 * The last gpuserve_context_unref() frees it. Contexts share no state with each other. Threading:
 * the reference count is atomic; log_scope is thread-local.
 */
#include "lib/runtime/core/context.h"

#include "lib/base/error.h"
#include "lib/base/host/cpu_allowance.h"
#include "lib/base/host/host.h"
#include "lib/runtime/devices/device.h"
#include "lib/runtime/memory/budget.h"
#include "lib/runtime/models/handle.h"
#include "lib/runtime/models/weights_cache.h"
#include "lib/runtime/plan/model_path.h"
#include "lib/runtime/scheduler/concurrency.h"

#include <gpuserve/gpuserve.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define _GNU_SOURCE

#define MAX_THREADS 4096
#define LOG_LINE_BYTES 1200

gpuserve_status gsv_context_check(const gpuserve_context *context, gpuserve_error *error)
{
    if (!context)
        return gsv_fail(error, GPUSERVE_E_INVALID, "the context is NULL");
    return gsv_forked(&context->fork_check) ? gsv_fail_forked(error) : GPUSERVE_OK;
}

static _Thread_local const gpuserve_context *log_scope;

const gpuserve_context *gsv_log_scope(const gpuserve_context *context)
{
    const gpuserve_context *before = log_scope;

    log_scope = context;
    return before;
}

void gsv_log_in_scope(void *user, int32_t level, const char *message)
{
    (void)user;
    if (log_scope)
        gsv_log(log_scope, level, "%s", message);
}

void gsv_log(const gpuserve_context *context, int32_t level, const char *format, ...)
{
    char line[LOG_LINE_BYTES];
    va_list args;

    if (!context->log || level > context->log_level)
        return;
    va_start(args, format);
    vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    context->log(context->log_user, level, line);
}

static gpuserve_status check_options(const gpuserve_context_options *options, gpuserve_error *error)
{
    if (options->n_threads > MAX_THREADS)
        return gsv_fail(error, GPUSERVE_E_INVALID, "n_threads is %u, the limit is %d",
                        options->n_threads, MAX_THREADS);
    if (options->log_level < 0 || options->log_level > GPUSERVE_LOG_DEBUG)
        return gsv_fail(error, GPUSERVE_E_INVALID, "log_level is %d, outside 0 to %d",
                        options->log_level, GPUSERVE_LOG_DEBUG);
    if (options->memory_policy > GPUSERVE_MEMORY_EVICT)
        return gsv_fail(error, GPUSERVE_E_INVALID, "memory_policy is %u, outside 0 to %d",
                        options->memory_policy, GPUSERVE_MEMORY_EVICT);
    if (options->reserved != 0)
        return gsv_fail(error, GPUSERVE_E_INVALID, "context options: `reserved` is not zero");
    return GPUSERVE_OK;
}

static int32_t allowed_threads(void)
{
    struct gsv_cpu_allowance allowance;

    gsv_cpu_allowance_read(&allowance, NULL);
    return allowance.threads;
}

/* The parts that higher layers define. */
struct context_parts {
    struct gsv_hub hub;
    struct gsv_cores cores;
    struct gsv_budget budget;
    struct gsv_plugin cuda;
};

static const char *const cuda_builds[GSV_PLUGIN_BUILDS] = GSV_CUDA_BUILDS;

static gpuserve_context *allocate(void)
{
    gpuserve_context *context = gsv_alloc_array(1, sizeof(*context));
    struct context_parts *parts = gsv_alloc_array(1, sizeof(*parts));

    if (!context || !parts) {
        free(context);
        free(parts);
        return NULL;
    }
    context->parts = parts;
    context->hub = &parts->hub;
    context->cores = &parts->cores;
    context->budget = &parts->budget;
    context->cuda = &parts->cuda;
    return context;
}

static void context_free(gpuserve_context *context)
{
    gsv_plugin_close(context->cuda);
    gsv_budget_reset(context->budget);
    gsv_metrics_reset(&context->metrics);
    gsv_hub_reset(context->hub);
    free(context->weights_folder);
    gsv_cores_reset(context->cores);
    gsv_topology_reset(&context->topology);
    gsv_fork_check_reset(&context->fork_check);
    pthread_mutex_destroy(&context->lock);
    free(context->parts);
    free(context);
}

GPUSERVE_API gpuserve_status gpuserve_context_create(gpuserve_context **out,
                                                     const gpuserve_context_options *given,
                                                     gpuserve_error *error)
{
    gpuserve_context_options options;
    struct gsv_core_set allowed;
    gpuserve_context *context;
    gpuserve_status st;

    if (!out)
        return gsv_fail(error, GPUSERVE_E_INVALID, "`context` is NULL");
    *out = NULL;
    st = gsv_read_struct(&options, sizeof(options), given, "gpuserve_context_options", error);
    if (st == GPUSERVE_OK)
        st = check_options(&options, error);
    if (st != GPUSERVE_OK)
        return st;
    context = allocate();
    if (!context)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a context");
    pthread_mutex_init(&context->lock, NULL);
    gsv_metrics_init(&context->metrics);
    gsv_nvtx_init(&context->nvtx);
    atomic_init(&context->n_owners, 1);
    context->n_threads = options.n_threads ? (int32_t)options.n_threads : allowed_threads();
    gsv_cores_init(context->cores, context->n_threads);
    if (gsv_core_set_allowed(&allowed))
        gsv_topology_read(&context->topology, "/sys/devices/system", &allowed);
    context->log = options.log;
    context->log_user = options.log_user;
    context->log_level = options.log_level ? options.log_level : GPUSERVE_LOG_WARNING;
    context->memory_policy = options.memory_policy;
    gsv_budget_init(context->budget, &options, gsv_evict_one);
    st = gsv_fork_check_init(&context->fork_check, error);
    if (st == GPUSERVE_OK)
        st = gsv_hub_init(context->hub, options.cache_dir, error);
    if (st == GPUSERVE_OK)
        st = gsv_weights_folder(&context->weights_folder, error);
    if (st == GPUSERVE_OK)
        st = gsv_plugin_init(context->cuda, cuda_builds, options.plugin_dir, error);
    if (st != GPUSERVE_OK) {
        context_free(context);
        return st;
    }
    *out = context;
    return GPUSERVE_OK;
}

GPUSERVE_API gpuserve_context *gpuserve_context_ref(gpuserve_context *context)
{
    if (context)
        atomic_fetch_add(&context->n_owners, 1);
    return context;
}

GPUSERVE_API void gpuserve_context_unref(gpuserve_context **context)
{
    gpuserve_context *ended = context ? *context : NULL;

    if (!ended)
        return;
    *context = NULL;
    if (atomic_fetch_sub(&ended->n_owners, 1) == 1)
        context_free(ended);
}

/* Library version, ABI version and names of status codes. */

#define STRINGIFY_TOKEN(x) #x
#define STRINGIFY(x) STRINGIFY_TOKEN(x)

GPUSERVE_API const char *gpuserve_version(void)
{
    return STRINGIFY(GPUSERVE_VERSION_MAJOR) "." STRINGIFY(GPUSERVE_VERSION_MINOR) "." STRINGIFY(
        GPUSERVE_VERSION_PATCH);
}

GPUSERVE_API uint32_t gpuserve_abi_version(void)
{
    return GSV_ABI_VERSION;
}

GPUSERVE_API const char *gpuserve_status_name(gpuserve_status status)
{
    static const char *const names[] = {
        [GPUSERVE_OK] = "GPUSERVE_OK",
        [GPUSERVE_E_INVALID] = "GPUSERVE_E_INVALID",
        [GPUSERVE_E_NOT_FOUND] = "GPUSERVE_E_NOT_FOUND",
        [GPUSERVE_E_FORMAT] = "GPUSERVE_E_FORMAT",
        [GPUSERVE_E_UNSUPPORTED] = "GPUSERVE_E_UNSUPPORTED",
        [GPUSERVE_E_NOMEM] = "GPUSERVE_E_NOMEM",
        [GPUSERVE_E_TOO_LARGE] = "GPUSERVE_E_TOO_LARGE",
        [GPUSERVE_E_BUSY] = "GPUSERVE_E_BUSY",
        [GPUSERVE_E_DEVICE] = "GPUSERVE_E_DEVICE",
        [GPUSERVE_E_IO] = "GPUSERVE_E_IO",
        [GPUSERVE_E_CANCELLED] = "GPUSERVE_E_CANCELLED",
        [GPUSERVE_E_EXPIRED] = "GPUSERVE_E_EXPIRED",
        [GPUSERVE_E_TIMEOUT] = "GPUSERVE_E_TIMEOUT",
        [GPUSERVE_E_FORKED] = "GPUSERVE_E_FORKED",
        [GPUSERVE_E_NUMERIC] = "GPUSERVE_E_NUMERIC",
        [GPUSERVE_E_INTERNAL] = "GPUSERVE_E_INTERNAL",
        [GPUSERVE_E_MISMATCH] = "GPUSERVE_E_MISMATCH",
    };
    const size_t index = (size_t)status;

    return index < sizeof(names) / sizeof(names[0]) ? names[index] : "unknown status";
}
