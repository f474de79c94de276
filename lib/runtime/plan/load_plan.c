/*
 * load_plan.c - decides devices, dtype, threads and batch sizes of a model before its weights are
 * read.
 *
 *   gsv_plan_read: directory, configuration, tokenizer --> gsv_plan_size: devices, batches, bytes
 */
#include "lib/runtime/plan/load_plan.h"

#include "lib/base/alloc.h"
#include "kernels/kernels.h"
#include "lib/base/error.h"
#include "lib/base/utf8.h"
#include "lib/model/formats/formats.h"
#include "lib/runtime/core/context.h"
#include "lib/runtime/plan/model_path.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define CPU_BATCH_TOKENS 512 /* micro-batches of 128 to 512 tokens stay in the caches */
#define GPU_BATCH_TOKENS 16384
#define MAX_WARMUP 1000000
#define MIN_STREAMED 3  /* layers; of two, the buffers would need as much as the layers */
#define GPU_STREAMS 2   /* computation and copies overlap; a pipeline has one more than devices */
#define GPU_WAIT_US 300 /* gains at low load, costs nothing at high load: docs/batching.md */
#define QUEUE_TOKENS (1u << 20)
#define QUEUE_BYTES (256u << 20)
#define MAX_CACHE_BYTES (UINT64_C(1) << 46)
#define MAX_TOKENS_PER_SECOND UINT64_C(1000000000000)

const char *gsv_dtype_name(uint32_t dtype)
{
    static const char *const names[] = { "default", "float32", "float16", "bfloat16",
                                         "tf32",    "int8",    "int16" };

    return dtype < sizeof(names) / sizeof(names[0]) ? names[dtype] : "unknown";
}

/* The text goes into JSON and Prometheus output, which are UTF-8. */
static gpuserve_status check_name(const char *field, const char *text, gpuserve_error *error)
{
    const size_t size = text ? strlen(text) : 0;
    const size_t valid = size > 0 ? gsv_utf8_valid_length(text, size) : 0;

    if (valid != size)
        return gsv_fail(error, GPUSERVE_E_INVALID, "%s is not UTF-8 at byte %zu", field, valid);
    return GPUSERVE_OK;
}

gpuserve_status gsv_read_model_options(gpuserve_model_options *to,
                                       const gpuserve_model_options *from, gpuserve_error *error)
{
    gpuserve_status st = gsv_read_struct(to, sizeof(*to), from, "gpuserve_model_options", error);

    if (st != GPUSERVE_OK)
        return st;
    if (to->dtype > GPUSERVE_DTYPE_INT8)
        return gsv_fail(error, GPUSERVE_E_INVALID, "dtype is %u, outside 0 to %d", to->dtype,
                        GPUSERVE_DTYPE_INT8);
    if (to->pooling > GPUSERVE_POOLING_LAST)
        return gsv_fail(error, GPUSERVE_E_INVALID, "pooling is %u, outside 0 to %d", to->pooling,
                        GPUSERVE_POOLING_LAST);
    if (to->use_mmap > 1)
        return gsv_fail(error, GPUSERVE_E_INVALID, "use_mmap is %u, neither 0 nor 1", to->use_mmap);
    if (to->warmup > MAX_WARMUP && to->warmup < GPUSERVE_WARMUP_GPU)
        return gsv_fail(error, GPUSERVE_E_INVALID, "warmup is %u batches, the limit is %d",
                        to->warmup, MAX_WARMUP);
    if (to->deterministic > 1)
        return gsv_fail(error, GPUSERVE_E_INVALID, "deterministic is %u, neither 0 nor 1",
                        to->deterministic);
    if (to->portable_bits > 1)
        return gsv_fail(error, GPUSERVE_E_INVALID, "portable_bits is %u, neither 0 nor 1",
                        to->portable_bits);
    if (to->stream_weights > 1)
        return gsv_fail(error, GPUSERVE_E_INVALID, "stream_weights is %u, neither 0 nor 1",
                        to->stream_weights);
    if (to->pipeline > 1)
        return gsv_fail(error, GPUSERVE_E_INVALID, "pipeline is %u, neither 0 nor 1", to->pipeline);
    if (to->keep > 1)
        return gsv_fail(error, GPUSERVE_E_INVALID, "keep is %u, neither 0 nor 1", to->keep);
    if (to->when_suspended > GPUSERVE_SUSPENDED_REFUSE)
        return gsv_fail(error, GPUSERVE_E_INVALID, "when_suspended is %u, outside 0 to %d",
                        to->when_suspended, GPUSERVE_SUSPENDED_REFUSE);
    if (to->cache_bytes > MAX_CACHE_BYTES)
        return gsv_fail(error, GPUSERVE_E_INVALID,
                        "cache_bytes is %" PRIu64 ", the limit is %" PRIu64, to->cache_bytes,
                        MAX_CACHE_BYTES);
    if (to->max_tokens_per_second > MAX_TOKENS_PER_SECOND)
        return gsv_fail(error, GPUSERVE_E_INVALID,
                        "max_tokens_per_second is %" PRIu64 ", the limit is %" PRIu64,
                        to->max_tokens_per_second, MAX_TOKENS_PER_SECOND);
    if (to->on_device_lost > GPUSERVE_LOST_GPU_OR_CPU)
        return gsv_fail(error, GPUSERVE_E_INVALID, "on_device_lost is %u, outside 0 to %d",
                        to->on_device_lost, GPUSERVE_LOST_GPU_OR_CPU);
    if (to->max_batch_tokens > GSV_MAX_BATCH_TOKENS)
        return gsv_fail(error, GPUSERVE_E_INVALID, "max_batch_tokens is %u, the limit is %d",
                        to->max_batch_tokens, GSV_MAX_BATCH_TOKENS);
    st = check_name("name", to->name, error);
    return st == GPUSERVE_OK ? check_name("version", to->version, error) : st;
}

static gpuserve_status check_tokenizer(const struct gsv_plan *plan, gpuserve_error *error)
{
    const int32_t known = gsv_tokenizer_vocab_size(plan->tokenizer);

    if (known <= plan->facts->vocab_size)
        return GPUSERVE_OK;
    return gsv_fail(error, GPUSERVE_E_FORMAT,
                    "%s: the tokenizer has ids up to %d, the model's embedding table only %d rows",
                    gsv_dir_path(plan->dir), known - 1, plan->facts->vocab_size);
}

static gpuserve_status choose_max_tokens(struct gsv_plan *plan, uint32_t wanted,
                                         gpuserve_error *error)
{
    const struct gsv_spec_facts *facts = plan->facts;
    /* More than 0 and at most a batch's maximum: config.c checks it. */
    const int32_t positions = facts->max_positions - facts->first_position;
    const size_t special = gsv_tokenizer_special_count(plan->tokenizer, false);

    plan->max_tokens = facts->max_tokens;
    if (wanted == 0)
        return GPUSERVE_OK;
    if (wanted > (uint32_t)positions)
        return gsv_fail(error, GPUSERVE_E_INVALID, "max_tokens is %u, the model's limit is %d",
                        wanted, positions);
    if (wanted <= special)
        return gsv_fail(error, GPUSERVE_E_INVALID,
                        "max_tokens is %u, but every text has %zu special tokens", wanted, special);
    plan->max_tokens = (int32_t)wanted;
    return GPUSERVE_OK;
}

static gpuserve_status load_tokenizer(struct gsv_plan *plan, gpuserve_error *error)
{
    const struct gsv_spec_facts *facts = plan->facts;
    const struct gsv_tokenizer_settings settings = {
        .folder = facts->folder,
        .do_lower_case = facts->do_lower_case,
        .no_special = facts->no_special,
        .skips_unknown = facts->skips_unknown,
        .cuts_characters = facts->skips_unknown, /* both are of model2vec */
    };

    return gsv_tokenizer_load(&plan->tokenizer, plan->dir, &settings, error);
}

/* Tokens without a weight in sparse vectors, as FlagEmbedding leaves them out. */
static gpuserve_status set_unweighted(struct gsv_plan *plan, gpuserve_error *error)
{
    size_t n = 0, n_before = 0;
    const int32_t *around = gsv_tokenizer_special_ids(plan->tokenizer, &n_before, &n);
    const int32_t others[] = { gsv_tokenizer_unknown(plan->tokenizer),
                               gsv_spec_pad_id(plan->spec) };
    gpuserve_status st = gsv_spec_add_unweighted(plan->spec, others, 2, error);

    return st == GPUSERVE_OK && n > 0 ? gsv_spec_add_unweighted(plan->spec, around, n, error) : st;
}

static gpuserve_status load_spec(struct gsv_plan *plan, const struct gsv_hub *hub,
                                 const gpuserve_model_options *options, gpuserve_error *error)
{
    const struct gsv_head_files heads = { .one = options->head, .lines = options->heads };
    struct gsv_adapter_dirs adapters = { 0 };
    gpuserve_status st = gsv_hub_open_adapters(hub, &adapters, options->adapters, error);

    if (st == GPUSERVE_OK)
        st = gsv_spec_load_with(&plan->spec, plan->dir, &adapters, &heads, options->pooling, error);
    gsv_hub_close_adapters(&adapters);
    return st;
}

gpuserve_status gsv_plan_read(struct gsv_plan *plan, gpuserve_context *context, const char *model,
                              const gpuserve_model_options *options, gpuserve_error *error)
{
    char *path = NULL;
    gpuserve_status st = gsv_hub_find(context->hub, model, &path, error);

    memset(plan, 0, sizeof(*plan));
    if (st == GPUSERVE_OK)
        st = gsv_hub_open(context->hub, &plan->dir, path, error);
    free(path);
    if (st == GPUSERVE_OK)
        st = load_spec(plan, context->hub, options, error);
    if (st == GPUSERVE_OK) {
        plan->facts = gsv_spec_facts(plan->spec);
        st = load_tokenizer(plan, error);
    }
    if (st == GPUSERVE_OK)
        st = check_tokenizer(plan, error);
    if (st == GPUSERVE_OK)
        st = set_unweighted(plan, error);
    if (st == GPUSERVE_OK)
        st = choose_max_tokens(plan, options->max_tokens, error);
    if (st == GPUSERVE_OK)
        st = gsv_pair_frame_make(plan, error);
    if (st == GPUSERVE_OK)
        st = gsv_late_plan_make(plan, error);
    if (st == GPUSERVE_OK)
        st = gsv_prompt_choose(plan, options, error);
    if (st != GPUSERVE_OK)
        gsv_plan_reset(plan);
    return st;
}

void gsv_plan_reset(struct gsv_plan *plan)
{
    gsv_tokenizer_free(&plan->tokenizer);
    gsv_spec_free(&plan->spec);
    gsv_dir_close(&plan->dir);
    plan->facts = NULL;
    free(plan->prompt_text);
    plan->prompt_text = NULL;
    plan->default_prompt = plan->default_prompt_name = NULL;
    free(plan->frame.ids);
    plan->frame = (struct gsv_pair_frame){ 0 };
    gsv_late_plan_reset(&plan->late);
    free(plan->devices);
    plan->devices = NULL;
}

void gsv_plan_selector(const struct gsv_plan *plan, uint64_t which, char *selector, size_t capacity)
{
    size_t length = 0;

    selector[0] = '\0';
    for (size_t i = 0; i < plan->n_devices && length + 1 < capacity; i++) {
        if ((which >> i / gsv_plan_stages(plan) & 1) == 0)
            continue;
        if (length > 0)
            selector[length++] = ',';
        gsv_device_selector(&plan->devices[i], selector + length, capacity - length);
        length += strlen(selector + length);
    }
}

static gpuserve_status choose_threads(struct gsv_plan *plan, const gpuserve_context *context,
                                      uint32_t wanted, gpuserve_error *error)
{
    if (wanted > (uint32_t)context->n_threads)
        return gsv_fail(error, GPUSERVE_E_INVALID,
                        "n_threads is %u, but the context has %d threads", wanted,
                        context->n_threads);
    plan->n_threads = wanted ? (int32_t)wanted : context->n_threads;
    plan->n_workers = plan->device.is_cpu          ? plan->n_threads
                      : gsv_plan_is_pipeline(plan) ? (int32_t)plan->n_devices + 1
                                                   : GPU_STREAMS * (int32_t)plan->n_replicas;
    plan->has_wide = plan->device.is_cpu && plan->n_workers > 1;
    return GPUSERVE_OK;
}

static gpuserve_status check_model_budget(const struct gsv_plan *plan, uint64_t budget,
                                          gpuserve_error *error)
{
    const struct gsv_memory *m = &plan->memory;

    if (budget == 0 || plan->total_bytes <= budget)
        return GPUSERVE_OK;
    gsv_fail(error, GPUSERVE_E_TOO_LARGE,
             "%s needs %" PRIu64 " bytes (weights %" PRIu64 ", workspace %" PRIu64
             ", streams %" PRIu64 ", host %" PRIu64 "); its own budget is %" PRIu64,
             gsv_dir_path(plan->dir), plan->total_bytes, m->weights, m->workspace, m->stream,
             m->host, budget);
    return gsv_hint(error, GPUSERVE_E_TOO_LARGE,
                    "raise memory_budget_bytes, or lower max_batch_tokens, max_queue_tokens, "
                    "n_threads or the dtype");
}

/* Sets the streamed layers and the streams, and counts the bytes. */
static bool count_streamed(struct gsv_plan *plan, int32_t n_streamed, int32_t batch_tokens)
{
    plan->n_streamed = n_streamed;
    plan->n_workers = (n_streamed > 0 ? 1 : GPU_STREAMS) * (int32_t)plan->n_replicas;
    return gsv_plan_count(plan, batch_tokens);
}

/* Streams as few layers as let the model fit; none if even all of them do not. */
static bool fits_with_streaming(struct gsv_plan *plan, int32_t batch_tokens)
{
    const int32_t n = gsv_stored_layers(plan->spec);

    for (int32_t i = MIN_STREAMED; i <= n; i++)
        if (count_streamed(plan, i, batch_tokens) && gsv_plan_fits(plan, &plan->max_available))
            return true;
    (void)count_streamed(plan, 0, batch_tokens);
    return false;
}

/* Use the requested number of tokens; by default the usual number, halved until the model fits. */
static gpuserve_status size_batches_to_fit(struct gsv_plan *plan, uint32_t wanted, uint32_t usual,
                                           bool streams, gpuserve_error *error)
{
    int32_t tokens = (int32_t)(wanted ? wanted : usual);

    plan->n_streamed = 0;
    if (!gsv_plan_count(plan, tokens))
        return gsv_fail(error, GPUSERVE_E_TOO_LARGE,
                        "%s: the model's memory size overflows 64 bits", gsv_dir_path(plan->dir));
    while (!gsv_plan_fits(plan, &plan->max_available)) {
        if (streams && fits_with_streaming(plan, tokens))
            break;
        if (wanted || tokens <= plan->max_tokens)
            break;
        tokens /= 2;
        (void)gsv_plan_count(plan, tokens); /* less than a sum that could be counted */
    }
    return GPUSERVE_OK;
}

/* Weights are streamed to a GPU, and not those of int8, which are made on the device. */
static gpuserve_status may_stream(const struct gsv_plan *plan, bool wanted, bool *streams,
                                  gpuserve_error *error)
{
    *streams = wanted && !plan->device.is_cpu;
    if (!*streams || plan->dtype != GPUSERVE_DTYPE_INT8)
        return GPUSERVE_OK;
    gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
             "stream_weights does not support int8, whose weights are measured on the device");
    return gsv_hint(error, GPUSERVE_E_UNSUPPORTED, "use float16 or bfloat16");
}

/* What a pipeline needs: several GPUs, a layer for each, weights that are not made on one device.
 */
static gpuserve_status check_pipeline(const struct gsv_plan *plan,
                                      const gpuserve_model_options *options, gpuserve_error *error)
{
    const int32_t n_layers = gsv_pipeline_layers(plan->spec);
    char selector[64];

    if (!options->pipeline)
        return GPUSERVE_OK;
    if (plan->n_devices < 2) {
        gsv_plan_selector(plan, UINT64_MAX, selector, sizeof(selector));
        gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                 "pipeline needs 2 GPUs or more, the device is %s alone", selector);
        return gsv_hint(
            error, GPUSERVE_E_UNSUPPORTED,
            "select several GPUs, as \"cuda:0,cuda:1\" or \"cuda:*\"; this choice: %.300s",
            plan->device.reason);
    }
    if (plan->n_devices > (size_t)n_layers)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        "pipeline: %zu devices share the layers of the model, which has %d",
                        plan->n_devices, n_layers);
    if (options->stream_weights)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        "pipeline and stream_weights exclude each other");
    if (plan->dtype != GPUSERVE_DTYPE_INT8)
        return GPUSERVE_OK;
    gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
             "pipeline does not support int8, whose weights are measured on one device");
    return gsv_hint(error, GPUSERVE_E_UNSUPPORTED, "use float16 or bfloat16");
}

static uint64_t wait_ns(const struct gsv_plan *plan, uint32_t wanted_us)
{
    const uint64_t usual_us = plan->device.is_cpu ? 0 : GPU_WAIT_US;

    if (wanted_us == GPUSERVE_WAIT_NONE)
        return 0;
    return (wanted_us ? wanted_us : usual_us) * 1000;
}

static gpuserve_status choose_bits(struct gsv_plan *plan, bool portable, gpuserve_error *error)
{
    gpuserve_status st;

    plan->portable_bits = portable;
    if (!portable)
        return GPUSERVE_OK;
    if (!plan->device.is_cpu) {
        gsv_fail(
            error, GPUSERVE_E_UNSUPPORTED,
            "device %s does not support portable_bits: its products have an order of their own",
            plan->device.facts.name);
        return gsv_hint(error, GPUSERVE_E_UNSUPPORTED, "open the model on a CPU");
    }
    plan->device.backend = plan->devices[0].backend = gsv_backend_cpu_portable();
    plan->devices[0].facts.struct_size = sizeof(plan->devices[0].facts);
    st = plan->device.backend->device_facts(0, &plan->devices[0].facts, error);
    plan->device.facts = plan->devices[0].facts;
    return st;
}

static gpuserve_status size_on_device(struct gsv_plan *plan, gpuserve_context *context,
                                      const gpuserve_model_options *options, gpuserve_error *error)
{
    const uint32_t fallback = plan->device.is_cpu ? CPU_BATCH_TOKENS : GPU_BATCH_TOKENS;
    bool streams;
    gpuserve_status st = choose_threads(plan, context, options->n_threads, error);

    if (st == GPUSERVE_OK)
        st = choose_bits(plan, options->portable_bits, error);
    if (st != GPUSERVE_OK)
        return st;
    plan->dtype = options->dtype;
    if (plan->dtype == GPUSERVE_DTYPE_DEFAULT)
        plan->dtype = plan->device.is_cpu || plan->facts->only_float32 ? GPUSERVE_DTYPE_FLOAT32
                                                                       : GPUSERVE_DTYPE_FLOAT16;
    plan->may_widen =
        options->dtype == GPUSERVE_DTYPE_DEFAULT && plan->dtype == GPUSERVE_DTYPE_FLOAT16;
    plan->maps_weights = options->use_mmap != 0;
    plan->deterministic = plan->device.is_cpu || options->deterministic;
    plan->max_wait_ns = wait_ns(plan, options->max_wait_us);
    plan->max_queue_tokens = options->max_queue_tokens ? options->max_queue_tokens : QUEUE_TOKENS;
    plan->max_queue_bytes = options->max_queue_bytes ? options->max_queue_bytes : QUEUE_BYTES;
    plan->max_queue_ns = options->max_queue_ms * UINT64_C(1000000);
    plan->max_tokens_per_second = options->max_tokens_per_second;
    plan->cache_bytes = options->cache_bytes;
    gsv_budget_measure(context, plan, options->memory_budget_bytes);
    if (plan->device.backend->activation_size(plan->dtype) == 0) {
        gsv_fail(error, GPUSERVE_E_UNSUPPORTED, "device %s does not support %s",
                 plan->device.facts.name, gsv_dtype_name(plan->dtype));
        return gsv_hint(error, GPUSERVE_E_UNSUPPORTED, "use float32 or int8");
    }
    if (!gsv_computes_in(plan->facts, plan->dtype))
        return gsv_fail_dtype(plan->facts, error);
    st = check_pipeline(plan, options, error);
    if (st == GPUSERVE_OK)
        st = may_stream(plan, options->stream_weights != 0, &streams, error);
    if (st == GPUSERVE_OK)
        st = size_batches_to_fit(plan, options->max_batch_tokens, fallback, streams, error);
    plan->cached_tokens =
        st == GPUSERVE_OK && options->max_batch_tokens == 0 ? gsv_plan_cached_tokens(plan) : 0;
    return st == GPUSERVE_OK ? check_model_budget(plan, options->memory_budget_bytes, error) : st;
}

static gpuserve_status choose_devices(struct gsv_plan *plan, gpuserve_context *context,
                                      const char *selector, bool pipeline, gpuserve_error *error)
{
    gpuserve_status st;

    free(plan->devices);
    st = gsv_device_choose_all(context, selector, plan->may_move, &plan->devices, &plan->n_devices,
                               error);
    if (st != GPUSERVE_OK)
        return st;
    plan->device = plan->devices[0];
    plan->n_replicas = pipeline ? 1 : plan->n_devices;
    return GPUSERVE_OK;
}

/* Fall back to the CPU when an `auto` device is too small. */
static gpuserve_status fall_back(struct gsv_plan *plan, gpuserve_context *context,
                                 const gpuserve_model_options *options, gpuserve_error *error)
{
    const uint64_t needed = plan->device_bytes[0], available = plan->available.devices[0];
    char name[sizeof(plan->device.facts.name)];
    gpuserve_status st;

    memcpy(name, plan->device.facts.name, sizeof(name));
    st = choose_devices(plan, context, "cpu", false, error);
    if (st != GPUSERVE_OK)
        return st;
    plan->device.was_auto = true;
    snprintf(plan->device.reason, sizeof(plan->device.reason),
             "the GPU has too little memory: %" PRIu64 " bytes needed, %s has %" PRIu64 " free",
             needed, name, available);
    gsv_log(context, GPUSERVE_LOG_WARNING, "device auto: the CPU, %s", plan->device.reason);
    return size_on_device(plan, context, options, error);
}

gpuserve_status gsv_plan_size(struct gsv_plan *plan, gpuserve_context *context,
                              const gpuserve_model_options *options, gpuserve_error *error)
{
    const bool waits = context->memory_policy != GPUSERVE_MEMORY_REFUSE;
    const bool is_auto = !options->device || strcmp(options->device, "auto") == 0;
    gpuserve_status st;

    plan->may_move = options->on_device_lost != GPUSERVE_LOST_FAIL;
    st = choose_devices(plan, context, options->portable_bits && is_auto ? "cpu" : options->device,
                        options->pipeline != 0, error);
    if (st == GPUSERVE_OK)
        st = size_on_device(plan, context, options, error);
    if (st != GPUSERVE_OK || plan->device.is_cpu || !plan->device.was_auto || options->pipeline ||
        gsv_plan_fits(plan, waits ? &plan->max_available : &plan->available))
        return st;
    return fall_back(plan, context, options, error);
}
