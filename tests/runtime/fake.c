/*
 * fake.c - a fake model that tests can hold, fail and count.
 *
 * Replaces lib/model (see fake.h). Held batches wait on a condition.
 */
#define _GNU_SOURCE
#include "tests/runtime/fake.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/base/utf8.h"
#include "lib/model/formats/formats.h"
#include "lib/model/formats/lora.h"
#include "lib/model/model.h"
#include "lib/text/tokenizer.h"

#include <criterion/criterion.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_held;
    int n_passes; /* held batches that may go on */
    int n_running, n_batches, n_wide, largest;
    uint64_t weights;
    double token_ns, batch_ns; /* time on one thread; 0: none */
    bool is_shared;            /* the streams of a net run one at a time */
    bool is_sparse_and_skips;
} fake = { .lock = PTHREAD_MUTEX_INITIALIZER,
           .changed = PTHREAD_COND_INITIALIZER,
           .weights = 1000 };

/* ------------------------------------------------------------------------------------- model */

struct gsv_spec {
    struct gsv_spec_facts facts;
    uint64_t weights;
};

struct gsv_net {
    pthread_mutex_t device; /* a device with a speed: its streams run one at a time */
};

struct gsv_exec {
    struct gsv_net *net;
    struct gsv_exec_options options;
};

static const char *const labels[] = { "no", "yes" };
static char query_name[] = "query", query_text[] = "query: ";
static char passage_name[] = "passage", passage_text[] = "passage: ";
static char adapter_name[] = "adapted", adapter_text[] = "";
static char default_route[] = "default", other_route[] = "routed", route_text[] = "";
static char *const routes[] = { default_route, other_route };
static const struct gsv_prompt prompts[] = { { query_name, query_text, 0 },
                                             { passage_name, passage_text, 0 },
                                             { adapter_name, adapter_text, 1 },
                                             { default_route, route_text, 0 },
                                             { other_route, route_text, 0 } };

gpuserve_status gsv_spec_set_answers(struct gsv_spec *spec, int32_t yes, int32_t no,
                                     gpuserve_error *error)
{
    (void)spec;
    (void)yes;
    (void)no;
    (void)error;
    return GPUSERVE_OK;
}

gpuserve_status gsv_spec_add_unweighted(struct gsv_spec *spec, const int32_t *ids, size_t n,
                                        gpuserve_error *error)
{
    (void)spec;
    (void)ids;
    (void)n;
    (void)error;
    return GPUSERVE_OK;
}

int32_t gsv_spec_pad_id(const struct gsv_spec *spec)
{
    (void)spec;
    return -1;
}

void gsv_gather_words(const struct gsv_spec *spec, const int32_t *ids, const float *weights,
                      size_t n, float *row)
{
    (void)spec;
    (void)ids;
    (void)weights;
    (void)n;
    (void)row;
    cr_assert_fail("the fake model weighs no tokens");
}

gpuserve_status gsv_model_dir_open(struct gsv_dir **dir, const char *path, gpuserve_error *error)
{
    return gsv_dir_open(dir, path, error);
}

gpuserve_status gsv_lora_base(char **base, const struct gsv_dir *dir, gpuserve_error *error)
{
    (void)dir;
    (void)error;
    *base = NULL;
    return GPUSERVE_OK;
}

gpuserve_status gsv_spec_load_with(struct gsv_spec **out, const struct gsv_dir *dir,
                                   const struct gsv_adapter_dirs *adapters,
                                   const struct gsv_head_files *heads, uint32_t pooling,
                                   gpuserve_error *error)
{
    static const struct gsv_late_facts no_late;
    struct gsv_spec *spec = gsv_alloc_array(1, sizeof(*spec));

    (void)dir;
    (void)adapters;
    (void)heads;
    (void)pooling;
    *out = spec;
    if (!spec)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory");
    pthread_mutex_lock(&fake.lock);
    spec->weights = fake.weights;
    pthread_mutex_unlock(&fake.lock);
    spec->facts = (struct gsv_spec_facts){
        .architecture = "FakeModel",
        .model_type = "fake",
        .vocab_size = FAKE_VOCAB,
        .hidden_size = FAKE_DIM,
        .max_positions = FAKE_MAX_TOKENS,
        .type_vocab_size = 2,
        .max_tokens = FAKE_MAX_TOKENS,
        .dim = FAKE_DIM,
        .late = &no_late,
        .poolings = { GPUSERVE_POOL_MEAN },
        .n_poolings = 1,
        .prompts = prompts,
        .n_prompts = fake.is_sparse_and_skips ? 5 : 2,
        .routes = routes,
        .n_routes = fake.is_sparse_and_skips ? 2 : 0,
        .labels = labels,
        .n_labels = FAKE_LABELS,
        .score = GPUSERVE_SCORE_SOFTMAX,
        .weights_dtype = "F32",
        .weights_format = "safetensors",
        .is_sparse = fake.is_sparse_and_skips,
        .skips_prompt = fake.is_sparse_and_skips,
    };
    return GPUSERVE_OK;
}

void gsv_spec_free(struct gsv_spec **spec)
{
    free(*spec);
    *spec = NULL;
}

gpuserve_status gsv_fail_dtype(const struct gsv_spec_facts *facts, gpuserve_error *error)
{
    (void)facts;
    return gsv_fail(error, GPUSERVE_E_UNSUPPORTED, "the type");
}

const struct gsv_spec_facts *gsv_spec_facts(const struct gsv_spec *spec)
{
    return &spec->facts;
}

static uint64_t layer_bytes; /* 0: no layers */

void fake_set_layer_bytes(uint64_t bytes)
{
    layer_bytes = bytes;
}

int32_t gsv_stored_layers(const struct gsv_spec *spec)
{
    (void)spec;
    return layer_bytes > 0 ? 2 : 0;
}

uint64_t gsv_product_bytes(const struct gsv_spec *spec, const struct gpuserve_backend *backend,
                           uint32_t dtype)
{
    (void)spec, (void)backend, (void)dtype;
    return 2 * layer_bytes;
}

struct gsv_streamed_bytes gsv_streamed_net_bytes(const struct gsv_spec *spec,
                                                 const struct gpuserve_backend *backend,
                                                 uint32_t dtype, int32_t n_streamed)
{
    (void)backend;
    (void)dtype;
    (void)n_streamed;
    return (struct gsv_streamed_bytes){ spec->weights, 0 };
}

void gsv_exec_bytes(const struct gsv_spec *spec, const struct gpuserve_backend *backend,
                    const struct gsv_exec_options *options, uint64_t *activations, uint64_t *stream)
{
    (void)spec;
    (void)backend;
    *activations = (uint64_t)options->max_tokens * FAKE_DIM * sizeof(float);
    *stream = 100;
}

/* The fake model has no entity head. */
void gsv_entity_bytes(const struct gsv_spec *spec, const struct gpuserve_backend *backend,
                      int32_t n_threads, uint64_t *activations, uint64_t *stream)
{
    (void)spec;
    (void)backend;
    (void)n_threads;
    *activations = *stream = 0;
}

gpuserve_status gsv_entity_exec_create(struct gsv_entity_exec **exec, const struct gsv_net *net,
                                       int32_t n_threads, bool deterministic, gpuserve_error *error)
{
    (void)net;
    (void)n_threads;
    (void)deterministic;
    *exec = NULL;
    return gsv_fail(error, GPUSERVE_E_UNSUPPORTED, "no entity head");
}

void gsv_entity_exec_free(struct gsv_entity_exec **exec)
{
    *exec = NULL;
}

gpuserve_status gsv_entity_words(struct gsv_entity_exec *exec, const struct gsv_entity_texts *texts,
                                 float *starts, float *ends, gpuserve_error *error)
{
    (void)exec;
    (void)texts;
    (void)starts;
    (void)ends;
    return gsv_fail(error, GPUSERVE_E_UNSUPPORTED, "no entity head");
}

gpuserve_status gsv_entity_labels(struct gsv_entity_exec *exec, const float *label_rows, int32_t n,
                                  float *queries, float *offsets, gpuserve_error *error)
{
    (void)exec;
    (void)label_rows;
    (void)n;
    (void)queries;
    (void)offsets;
    return gsv_fail(error, GPUSERVE_E_UNSUPPORTED, "no entity head");
}

gpuserve_status gsv_entity_pairs(struct gsv_entity_exec *exec, const float *words, int32_t n_words,
                                 const float *label_rows, int32_t n_labels, float *logits,
                                 gpuserve_error *error)
{
    (void)exec;
    (void)words;
    (void)n_words;
    (void)label_rows;
    (void)n_labels;
    (void)logits;
    return gsv_fail(error, GPUSERVE_E_UNSUPPORTED, "no entity head");
}

void gsv_entity_span(const float *start, const float *end, int32_t inner, float *span)
{
    for (int32_t i = 0; i < inner; i++)
        span[i] = start[i] + end[i];
}

float gsv_entity_score(const float *span, const float *query, float offset, int32_t inner)
{
    (void)span;
    (void)query;
    (void)inner;
    return offset;
}

gpuserve_status gsv_net_load(struct gsv_net **net, const struct gsv_spec *spec,
                             const struct gpuserve_backend *backend, struct gpuserve_device *device,
                             const struct gsv_net_options *options, gpuserve_error *error)
{
    (void)spec;
    (void)backend;
    (void)device;
    (void)options;
    *net = gsv_alloc_array(1, sizeof(**net));
    if (!*net)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory");
    pthread_mutex_init(&(*net)->device, NULL);
    return GPUSERVE_OK;
}

void gsv_net_free(struct gsv_net **net)
{
    free(*net);
    *net = NULL;
}

gpuserve_status gsv_spec_identify(const struct gsv_spec *spec, struct gsv_identity *identity,
                                  gpuserve_error *error)
{
    (void)spec;
    (void)error;
    memset(identity, 0, sizeof(*identity)); /* unknown: nothing is kept on disk */
    return GPUSERVE_OK;
}

gpuserve_status gsv_net_save(const struct gsv_net *net, const struct gsv_packed_file *packed,
                             int32_t n_threads, gpuserve_error *error)
{
    (void)net;
    (void)packed;
    (void)n_threads;
    return gsv_fail(error, GPUSERVE_E_INTERNAL, "a fake net is not kept");
}

gpuserve_status gsv_net_offload(struct gsv_net *net, void *host, gpuserve_error *error)
{
    (void)net;
    (void)host;
    (void)error;
    return GPUSERVE_OK;
}

gpuserve_status gsv_net_reload(struct gsv_net *net, const void *host, gpuserve_error *error)
{
    (void)net;
    cr_assert_not_null(host);
    (void)error;
    return GPUSERVE_OK;
}

const struct gsv_int8_facts *gsv_net_int8(const struct gsv_net *net)
{
    static const struct gsv_int8_facts none;

    (void)net;
    return &none;
}

void gsv_net_digest(const struct gsv_net *net, uint64_t digest[2])
{
    (void)net;
    digest[0] = 1;
    digest[1] = 2;
}

gpuserve_status gsv_exec_create(struct gsv_exec **work, const struct gsv_net *net,
                                const struct gsv_exec_options *options, gpuserve_error *error)
{
    *work = gsv_alloc_array(1, sizeof(**work));
    if (!*work)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory");
    (*work)->net = (struct gsv_net *)(uintptr_t)net; /* for its lock */
    (*work)->options = *options;
    return GPUSERVE_OK;
}

void gsv_exec_free(struct gsv_exec **work)
{
    free(*work);
    *work = NULL;
}

int32_t gsv_run_columns(const struct gsv_spec_facts *facts, const struct gsv_run *run)
{
    return run->task == GPUSERVE_TASK_EMBED      ? run->dimensions
           : run->task == GPUSERVE_TASK_CLASSIFY ? (int32_t)facts->n_labels
           : run->task == GPUSERVE_TASK_SPARSE   ? facts->vocab_size
                                                 : facts->hidden_size;
}

static void vector_of(const int32_t *ids, size_t n, float vector[FAKE_DIM])
{
    for (size_t j = 0; j < FAKE_DIM; j++) {
        double sum = 0;

        for (size_t i = 0; i < n; i++)
            sum += ids[i] == FAKE_ID_NAN ? NAN : (double)ids[i] / (double)(i + j + 1);
        vector[j] = (float)sum;
    }
}

static void make_unit(float *vector, int32_t n)
{
    double sum = 0;

    for (int32_t j = 0; j < n; j++)
        sum += (double)vector[j] * vector[j];
    for (int32_t j = 0; j < n; j++)
        vector[j] = (float)(vector[j] / sqrt(sum));
}

static void enter(const struct gsv_exec *work, int32_t n_tokens)
{
    pthread_mutex_lock(&fake.lock);
    fake.n_running++;
    fake.n_batches++;
    fake.n_wide += work->options.n_threads > 1;
    fake.largest = n_tokens > fake.largest ? n_tokens : fake.largest;
    pthread_cond_broadcast(&fake.changed);
    while (fake.is_held && fake.n_passes == 0)
        pthread_cond_wait(&fake.changed, &fake.lock);
    fake.n_passes -= fake.is_held;
    fake.n_running--;
    pthread_mutex_unlock(&fake.lock);
}

/* A device with a speed sleeps. n threads are n / (1 + 0.02 (n - 1)) times as fast as one. */
static void take_time(struct gsv_exec *work, int32_t n_tokens)
{
    const int32_t n = work->options.n_threads;
    const double threads = n / (1 + 0.02 * (n - 1));
    const double ns = fake.batch_ns + fake.token_ns * n_tokens / threads;
    struct timespec until;

    if (fake.token_ns == 0)
        return;
    if (fake.is_shared)
        pthread_mutex_lock(&work->net->device);
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += (long)ns % 1000000000;
    until.tv_sec += (time_t)(ns / 1e9) + until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) != 0)
        continue;
    if (fake.is_shared)
        pthread_mutex_unlock(&work->net->device);
}

/* One row per token: its id, its position and its type. */
static float *put_tokens(float *out, const struct gpuserve_host_batch *batch, int32_t s)
{
    for (int32_t t = batch->cu_seqlens[s]; t < batch->cu_seqlens[s + 1]; t++) {
        for (int32_t j = 0; j < FAKE_DIM; j++)
            *out++ = (float)batch->ids[t] + (float)batch->positions[t] / 1000 +
                     100000.0f * (float)batch->type_ids[t];
    }
    return out;
}

/* Number of occurrences of each word in the text. */
static float *put_words(float *out, const struct gpuserve_host_batch *batch, int32_t s)
{
    memset(out, 0, FAKE_VOCAB * sizeof(*out));
    for (int32_t t = batch->cu_seqlens[s]; t < batch->cu_seqlens[s + 1]; t++)
        out[batch->ids[t]]++;
    return out + FAKE_VOCAB;
}

static float *put_vector(float *out, const struct gpuserve_host_batch *batch, int32_t s,
                         const struct gsv_run *run)
{
    const int32_t begin = batch->cu_seqlens[s] + run->skip, end = batch->cu_seqlens[s + 1];
    const bool embeds = run->task == GPUSERVE_TASK_EMBED;
    float vector[FAKE_DIM];

    vector_of(batch->ids + begin, begin < end ? (size_t)(end - begin) : 0, vector);
    for (int32_t j = 0; j < FAKE_DIM; j++)
        vector[j] +=
            (float)(run->adapters ? run->adapters[s] : run->adapter) + 10.0f * (float)run->route;
    if (embeds && run->normalize)
        make_unit(vector, run->dimensions);
    for (int32_t j = 0; j < (embeds ? run->dimensions : FAKE_LABELS); j++)
        *out++ = run->score == GPUSERVE_SCORE_SIGMOID ? 1 / (1 + expf(-vector[j])) : vector[j];
    return out;
}

static _Thread_local int n_here;

gpuserve_status gsv_net_run(struct gsv_exec *work, const struct gpuserve_host_batch *batch,
                            const struct gsv_run *run, gpuserve_error *error)
{
    float *out = run->output;

    /* A batch above the planned size is split, never run. */
    cr_assert_leq(batch->n_tokens, work->options.max_tokens);
    cr_assert_leq(batch->n_sequences, work->options.max_sequences);
    cr_assert_leq(batch->max_seqlen, work->options.max_seqlen);
    if (!run->again) { /* a further output of the same pass */
        n_here++;
        enter(work, batch->n_tokens);
        take_time(work, batch->n_tokens);
    }
    for (int32_t i = 0; i < batch->n_tokens; i++) {
        if (batch->ids[i] == FAKE_ID_BREAK)
            return gsv_fail(error, GPUSERVE_E_DEVICE, "the fake device broke");
    }
    for (int32_t s = 0; s < batch->n_sequences; s++) {
        cr_assert_leq(batch->cu_seqlens[s + 1] - batch->cu_seqlens[s], batch->max_seqlen);
        cr_assert(s == 0 || !run->adapters || run->adapters[s - 1] <= run->adapters[s]);
        out = run->task == GPUSERVE_TASK_TOKEN_VECTORS ? put_tokens(out, batch, s)
              : run->task == GPUSERVE_TASK_SPARSE      ? put_words(out, batch, s)
                                                       : put_vector(out, batch, s, run);
    }
    return GPUSERVE_OK;
}

/* ---------------------------------------------------------------------------------- controls */

int fake_batches_here(void)
{
    return n_here;
}

void fake_hold(void)
{
    pthread_mutex_lock(&fake.lock);
    fake.is_held = true;
    pthread_mutex_unlock(&fake.lock);
}

void fake_release(void)
{
    pthread_mutex_lock(&fake.lock);
    fake.is_held = false;
    pthread_cond_broadcast(&fake.changed);
    pthread_mutex_unlock(&fake.lock);
}

void fake_set_speed(double tokens_per_s, double batch_us, bool is_shared)
{
    fake.is_shared = is_shared;
    fake.token_ns = 1e9 / tokens_per_s;
    fake.batch_ns = batch_us * 1e3;
}

void fake_release_one(void)
{
    pthread_mutex_lock(&fake.lock);
    fake.n_passes++;
    pthread_cond_broadcast(&fake.changed);
    pthread_mutex_unlock(&fake.lock);
}

void fake_wait_running(int n)
{
    pthread_mutex_lock(&fake.lock);
    while (fake.n_running < n)
        pthread_cond_wait(&fake.changed, &fake.lock);
    pthread_mutex_unlock(&fake.lock);
}

static int read_counter(const int *counter)
{
    int value;

    pthread_mutex_lock(&fake.lock);
    value = *counter;
    pthread_mutex_unlock(&fake.lock);
    return value;
}

int fake_batches(void)
{
    return read_counter(&fake.n_batches);
}

int fake_wide_batches(void)
{
    return read_counter(&fake.n_wide);
}

int fake_largest_batch_tokens(void)
{
    return read_counter(&fake.largest);
}

void fake_set_weights(uint64_t bytes)
{
    pthread_mutex_lock(&fake.lock);
    fake.weights = bytes;
    pthread_mutex_unlock(&fake.lock);
}

void fake_set_sparse_and_skipping(void)
{
    fake.is_sparse_and_skips = true;
}

void fake_vector(const char *text, float vector[FAKE_DIM])
{
    const struct gsv_encode_options options = { .max_tokens = FAKE_MAX_TOKENS };
    struct gsv_encoding encoding = { 0 };

    cr_assert_eq(gsv_tokenizer_encode(NULL, &encoding, text, strlen(text), NULL, 0, &options, NULL),
                 GPUSERVE_OK);
    vector_of(encoding.ids, encoding.n, vector);
    gsv_encoding_reset(&encoding);
}
