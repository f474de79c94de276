/*
 * test_model_memory.c - allocations of lib/model: their size equals the prediction, and each may
 * fail.
 *
 * malloc and its family are interposed in this program. While `watching` is on, allocations are
 * counted, one or all from the n-th on can fail, and live blocks are tracked.
 */
#include "lib/base/alloc.h"
#include "lib/model/formats/checkpoint.h"
#include "tests/model/support.h"

#include <criterion/criterion.h>
#include <limits.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include <string.h>

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *memory, size_t size);
void *__libc_memalign(size_t alignment, size_t size);
void __libc_free(void *memory);

/* Libraries must use these too, but the build hides symbols by default. */
#define INTERPOSED __attribute__((visibility("default")))

static atomic_bool watching;
static atomic_long allocations, alive, fail_at = -1;
static atomic_bool fail_ever_after;

static bool may_allocate(void)
{
    long n;

    if (!watching)
        return true;
    n = atomic_fetch_add(&allocations, 1);
    if (n == fail_at || (fail_ever_after && fail_at >= 0 && n > fail_at)) {
        errno = ENOMEM;
        return false;
    }
    return true;
}

static void *note(void *memory)
{
    if (watching && memory)
        atomic_fetch_add(&alive, 1);
    return memory;
}

INTERPOSED void *malloc(size_t size)
{
    return may_allocate() ? note(__libc_malloc(size)) : NULL;
}

INTERPOSED void *calloc(size_t n, size_t size)
{
    return may_allocate() ? note(__libc_calloc(n, size)) : NULL;
}

INTERPOSED void *realloc(void *memory, size_t size)
{
    if (!may_allocate())
        return NULL;
    return memory ? __libc_realloc(memory, size) : note(__libc_realloc(NULL, size));
}

INTERPOSED void *aligned_alloc(size_t alignment, size_t size)
{
    return may_allocate() ? note(__libc_memalign(alignment, size)) : NULL;
}

INTERPOSED void free(void *memory)
{
    if (watching && memory)
        atomic_fetch_sub(&alive, 1);
    __libc_free(memory);
}

/* -------------------------------------------------------------------------- allocation failure */

struct scenario {
    const char *model, *head;
    uint32_t dtype;
    bool calibrates;
};

/* Loads, runs, frees. No assertions here, because allocations are watched. */
static gpuserve_status whole_life(const char *path, const char *head, uint32_t dtype,
                                  const struct gpuserve_host_batch *calibration,
                                  const struct gpuserve_host_batch *batch, float *output,
                                  gpuserve_error *error)
{
    const struct gpuserve_backend *backend = gsv_backend_cpu();
    const struct gsv_net_options net_options = { .dtype = dtype,
                                                 .n_threads = 1,
                                                 .calibration = calibration };
    const struct gsv_exec_options work_options = {
        .dtype = dtype, .n_threads = 1, .max_tokens = 64, .max_sequences = 8, .max_seqlen = 36
    };
    struct gsv_run run = { .task = GPUSERVE_TASK_EMBED, .normalize = true, .output = output };
    struct gpuserve_device *device = NULL;
    struct gsv_dir *dir = NULL;
    struct gsv_spec *spec = NULL;
    struct gsv_net *net = NULL;
    struct gsv_exec *work = NULL;
    struct gsv_entity_exec *entities = NULL;
    gpuserve_status st;

    watching = true;
    st = gsv_dir_open(&dir, path, error);
    if (st == GPUSERVE_OK)
        st = gsv_spec_load(&spec, dir, head, 0, error);
    if (st == GPUSERVE_OK)
        st = backend->device_open(&device, 0, error);
    if (st == GPUSERVE_OK)
        st = gsv_net_load(&net, spec, backend, device, &net_options, error);
    if (st == GPUSERVE_OK)
        st = gsv_exec_create(&work, net, &work_options, error);
    if (st == GPUSERVE_OK) {
        run.dimensions = gsv_spec_facts(spec)->dim - 1;
        if (gsv_spec_facts(spec)->entity.width > 0)
            run = (struct gsv_run){ .task = GPUSERVE_TASK_TOKEN_VECTORS, .output = output };
        else if (gsv_spec_facts(spec)->dim == 0)
            run = (struct gsv_run){ .task = GPUSERVE_TASK_CLASSIFY, .output = output };
        st = gsv_net_run(work, batch, &run, error);
    }
    if (st == GPUSERVE_OK && gsv_spec_facts(spec)->entity.width > 0)
        st = gsv_entity_exec_create(&entities, net, 1, false, error);
    gsv_entity_exec_free(&entities);
    gsv_exec_free(&work);
    gsv_net_free(&net);
    backend->device_close(&device);
    gsv_spec_free(&spec);
    gsv_dir_close(&dir);
    watching = false;
    return st;
}

/* Fails allocation 0, 1, ... until a run has fewer allocations. */
static void fail_each(const struct scenario *scenario, bool ever_after)
{
    static const int32_t ids[12] = { 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17 };
    static const int32_t zeros[12], positions[12] = { 2, 3, 4, 5, 6, 2, 3, 4, 5, 6, 7, 8 };
    static const int32_t cu_seqlens[3] = { 0, 5, 12 };
    const struct gpuserve_host_batch batch = { .n_tokens = 12,
                                               .n_sequences = 2,
                                               .max_seqlen = 7,
                                               .ids = ids,
                                               .type_ids = zeros,
                                               .positions = positions,
                                               .cu_seqlens = cu_seqlens };
    static float output[2 * 256], want[2 * 256];
    char path[1024], head[1024];
    long n;

    memset(output, 0, sizeof(output)); /* what the models before this one left */
    memset(want, 0, sizeof(want));
    strcpy(path, test_data(scenario->model));
    strcpy(head, scenario->head ? test_data(scenario->head) : "");
    fail_at = LONG_MAX;
    cr_assert_eq(whole_life(path, scenario->head ? head : NULL, scenario->dtype,
                            scenario->calibrates ? &batch : NULL, &batch, want, NULL),
                 GPUSERVE_OK);
    for (n = 0;; n++) {
        gpuserve_error error = GPUSERVE_ERROR_INIT;
        gpuserve_status st;

        fail_at = n;
        fail_ever_after = ever_after;
        allocations = alive = 0;
        st = whole_life(path, scenario->head ? head : NULL, scenario->dtype,
                        scenario->calibrates ? &batch : NULL, &batch, output, &error);
        cr_assert_eq(alive, 0, "%s, allocation %ld: %ld leaked", scenario->model, n, (long)alive);
        if (allocations <= n) {
            cr_assert_eq(st, GPUSERVE_OK, "%s", error.message);
            break;
        }
        if (st == GPUSERVE_OK) { /* qsort() sorts in place if malloc fails */
            cr_assert(!ever_after && memcmp(output, want, sizeof(want)) == 0, "%s, allocation %ld",
                      scenario->model, n);
            continue;
        }
        cr_assert_eq(st, GPUSERVE_E_NOMEM, "%s, allocation %ld: status %d: %s", scenario->model, n,
                     st, error.message);
        cr_assert_eq(error.status, GPUSERVE_E_NOMEM);
    }
    cr_expect(n > 30, "%s: only %ld allocations were seen", scenario->model, n);
}

static const struct scenario scenarios[] = {
    { "models/st-dense", "heads/mlp.safetensors", GPUSERVE_DTYPE_FLOAT32, false },
    { "models/bert-sharded", NULL, GPUSERVE_DTYPE_INT8, true },
    { "models/mpnet", NULL, GPUSERVE_DTYPE_FLOAT32, false },
    { "models/deberta-v3", NULL, GPUSERVE_DTYPE_FLOAT32, false },
    { "models/ernie", NULL, GPUSERVE_DTYPE_FLOAT32, false },
    { "models/qwen3", NULL, GPUSERVE_DTYPE_INT8, false },
    { "models/jina-v3-hub-lora", NULL, GPUSERVE_DTYPE_INT8, true },
    { "models/nomic-moe-hub", NULL, GPUSERVE_DTYPE_FLOAT32, false },
    { "models/deberta-v2-conv", NULL, GPUSERVE_DTYPE_FLOAT32, false },
    { "models/mobilebert", NULL, GPUSERVE_DTYPE_INT8, true },
    { "models/bart-multi", NULL, GPUSERVE_DTYPE_INT8, true },
    { "gguf/bert-q8_0.gguf", NULL, GPUSERVE_DTYPE_FLOAT32, false },
    { "gguf/bert-split-00001-of-00003.gguf", NULL, GPUSERVE_DTYPE_FLOAT32, false },
    { "models/st-router-dense", NULL, GPUSERVE_DTYPE_FLOAT32, false },
    { "models/st-weighted-layers", NULL, GPUSERVE_DTYPE_FLOAT32, false },
    { "models/model2vec-mapping", NULL, GPUSERVE_DTYPE_FLOAT32, false },
    { "recurrent/keras-two-layers", NULL, GPUSERVE_DTYPE_FLOAT32, false },
    { "entities/deberta-spans", NULL, GPUSERVE_DTYPE_FLOAT32, false },
    { "entities/modernbert-spans", NULL, GPUSERVE_DTYPE_FLOAT32, false },
};

Test(model_memory, each_allocation_may_fail_once)
{
    for (size_t i = 0; i < sizeof(scenarios) / sizeof(scenarios[0]); i++)
        fail_each(&scenarios[i], false);
}

Test(model_memory, memory_may_end_at_each_allocation)
{
    for (size_t i = 0; i < sizeof(scenarios) / sizeof(scenarios[0]); i++)
        fail_each(&scenarios[i], true);
}

/* Opens the weights of a folder while the n-th allocation fails. */
static gpuserve_status open_failing(const char *folder, long n, gpuserve_error *error)
{
    struct gsv_checkpoint weights;
    struct gsv_dir *dir = NULL;
    gpuserve_status st;

    cr_assert_eq(gsv_dir_open(&dir, folder, error), GPUSERVE_OK);
    allocations = alive = 0;
    fail_at = n;
    watching = true;
    st = gsv_checkpoint_open(&weights, dir, "", error);
    if (st == GPUSERVE_OK)
        gsv_checkpoint_close(&weights);
    watching = false;
    gsv_dir_close(&dir);
    return st;
}

Test(model_memory, each_allocation_for_a_pickle_may_fail)
{
    static const char *const folders[] = { "pickle/state-dict", "pickle/protocol-4",
                                           "pickle/old-shared", "pickle/sharded" };

    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
        gpuserve_status st;
        long n = -1;

        do {
            gpuserve_error error = GPUSERVE_ERROR_INIT;

            st = open_failing(test_data(folders[i]), ++n, &error);
            /* qsort() sorts in place if it gets no memory */
            cr_assert(st == GPUSERVE_E_NOMEM || st == GPUSERVE_OK,
                      "%s, allocation %ld: status %d: %s", folders[i], n, st, error.message);
            cr_assert_eq(alive, 0, "%s, allocation %ld: %ld leaks", folders[i], n, (long)alive);
        } while (allocations > n);
        cr_expect_eq(st, GPUSERVE_OK);
        cr_expect(n > 30, "%s: only %ld allocations were seen", folders[i], n);
    }
}

/* --------------------------------------------------------------------------------- exact sizes */

static size_t device_bytes; /* allocated by memory_alloc */

static gpuserve_status counting_alloc(struct gpuserve_device *device, void **memory, size_t size,
                                      gpuserve_error *error)
{
    device_bytes += size;
    return gsv_backend_cpu()->memory_alloc(device, memory, size, error);
}

/* Returns whether the model computes in int8. */
static bool check_sizes(const char *path, uint32_t dtype)
{
    struct gpuserve_backend counting = *gsv_backend_cpu();
    struct gsv_exec_options options = {
        .dtype = dtype, .n_threads = 1, .max_tokens = 333, .max_sequences = 7
    };
    const struct load_options load = {
        .dtype = dtype, .backend = &counting, .max_tokens = 333, .max_sequences = 7
    };
    struct gsv_entity_exec *head = NULL;
    struct loaded model;
    uint64_t weights, activations, stream;
    bool has_int8;

    counting.memory_alloc = counting_alloc;
    device_bytes = 0;
    load_model(&model, path, &load);
    has_int8 = !gsv_spec_facts(model.spec)->no_int8;
    options.max_seqlen = gsv_spec_facts(model.spec)->max_tokens;
    if (options.max_seqlen > options.max_tokens)
        options.max_seqlen = options.max_tokens;
    weights = gsv_net_bytes(model.spec, &counting, dtype);
    gsv_exec_bytes(model.spec, &counting, &options, &activations, &stream);
    cr_expect_eq(device_bytes, weights + activations,
                 "%s: %zu bytes were taken, %zu + %zu computed", path, device_bytes,
                 (size_t)weights, (size_t)activations);
    cr_expect_gt(stream, 0);
    gsv_entity_bytes(model.spec, &counting, 1, &activations, &stream);
    device_bytes = 0;
    if (activations > 0)
        cr_assert_eq(gsv_entity_exec_create(&head, model.net, 1, false, NULL), GPUSERVE_OK);
    cr_expect_eq(device_bytes, activations, "%s: entity head", path);
    gsv_entity_exec_free(&head);
    unload_model(&model);
    return has_int8;
}

static void check_all_sizes(const char *path)
{
    const bool has_int8 = check_sizes(path, GPUSERVE_DTYPE_FLOAT32);

    check_sizes(path, GPUSERVE_DTYPE_FLOAT16);
    check_sizes(path, GPUSERVE_DTYPE_BFLOAT16);
    if (has_int8)
        check_sizes(path, GPUSERVE_DTYPE_INT8);
}

Test(model_memory, sizes_are_known_exactly_before_loading)
{
    static const char *const others[] = { "bert",
                                          "st-dense",
                                          "st-no-prompt",
                                          "bert-masked",
                                          "st-poolings",
                                          "mpnet",
                                          "bert-multi",
                                          "model2vec",
                                          "st-weighted-layers",
                                          "st-router-dense",
                                          "distilbert-single" };
    static struct model_name names[MAX_MODELS];
    const size_t n = read_families(names);
    char path[256], reason[96];

    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        snprintf(path, sizeof(path), "models/%s", others[i]);
        check_all_sizes(test_data(path));
    }
    for (size_t i = 0; i < n; i++) {
        snprintf(path, sizeof(path), "models/%s", names[i].text);
        if (!is_refused(names[i].text, reason))
            check_all_sizes(test_data(path));
    }
    for (int i = 0; i < 2; i++) {
        const char *const name = i ? "entities/deberta-tokens" : "entities/deberta-spans";

        check_sizes(test_data(name), GPUSERVE_DTYPE_FLOAT32); /* no int8 */
        check_sizes(test_data(name), GPUSERVE_DTYPE_BFLOAT16);
    }
    check_sizes(test_data("recurrent/torch"), GPUSERVE_DTYPE_FLOAT32);
    check_sizes(test_data("recurrent/keras-two-layers"), GPUSERVE_DTYPE_FLOAT32);
}

/* Activation size of a fake device. */
static size_t absurd_size;

static size_t absurd_activation_size(uint32_t dtype)
{
    (void)dtype;
    return absurd_size;
}

static size_t absurd_linear_bytes(int32_t n, int32_t k, uint32_t dtype)
{
    (void)n, (void)k, (void)dtype;
    return SIZE_MAX / 2;
}

Test(model_memory, a_size_that_does_not_fit_is_no_size)
{
    struct gsv_exec_options options = { .dtype = GPUSERVE_DTYPE_FLOAT32,
                                        .n_threads = 1,
                                        .max_tokens = 1,
                                        .max_sequences = 1,
                                        .max_seqlen = 36 };
    /* Overflow at different steps: one row, two rows, all rows, rounding up. */
    static const size_t sizes[] = { SIZE_MAX, SIZE_MAX / 32 - 1, SIZE_MAX / 64, SIZE_MAX / 160 };
    struct gpuserve_backend absurd;
    struct loaded model;
    uint64_t activations = 0, stream = 0;

    load_model(&model, test_data("models/bert"), &(struct load_options){ 0 });
    gsv_exec_bytes(model.spec, model.backend, &options, &activations, &stream);
    cr_expect(activations < 10000 && stream < GSV_TOO_MANY_BYTES);
    options.max_tokens = options.max_sequences = INT32_MAX;
    gsv_exec_bytes(model.spec, model.backend, &options, &activations, &stream);
    cr_expect_gt(activations, (uint64_t)INT32_MAX * 32 * 4 * 2);
    cr_expect_lt(activations, GSV_TOO_MANY_BYTES);
    absurd = *model.backend;
    absurd.activation_size = absurd_activation_size;
    options.max_tokens = options.max_sequences = 1;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        absurd_size = sizes[i];
        gsv_exec_bytes(model.spec, &absurd, &options, &activations, &stream);
        cr_expect(activations == GSV_TOO_MANY_BYTES && stream == GSV_TOO_MANY_BYTES, "size %zu",
                  sizes[i]);
    }
    absurd = *model.backend;
    absurd.linear_bytes = absurd_linear_bytes;
    cr_expect_eq(gsv_net_bytes(model.spec, &absurd, GPUSERVE_DTYPE_FLOAT32), GSV_TOO_MANY_BYTES);
    unload_model(&model);
}
