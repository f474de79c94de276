/*
 * test_large.c - models of 9 GB and 5 GB whose files have real headers but no weights (sparse
 * files).
 *
 * Memory use is predicted and admission is decided before any weight is read. Also a model of 300
 * layers. The device is a plugin's, with 12 GB (plugins/plugin.c), so the machine's own memory does
 * not matter. A progress callback ends each load once its memory is reserved.
 */
#define _GNU_SOURCE /* ftruncate */
#include "tests/runtime/folder.h"
#include "tests/runtime/plugin_folder.h"
#include "tests/runtime/real.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define GB UINT64_C(1000000000)

struct shape {
    uint64_t hidden;
    int n_heads, n_layers;
};

static const struct shape large_shape = { 4096, 32, 11 }; /* a layer has 805 MB in float32 */
static const struct shape small_shape = { 4096, 32, 6 };
static const struct shape deep_shape = { 32, 2, 300 };

/* ---------------------------------------------------------------------------------- the files */

struct header {
    char *text;
    size_t length;
    uint64_t bytes; /* of tensors so far */
};

static void add_tensor(struct header *header, const char *name, uint64_t rows, uint64_t columns)
{
    const uint64_t end = header->bytes + rows * (columns ? columns : 1) * sizeof(float);
    char shape[64];

    if (columns)
        snprintf(shape, sizeof(shape), "%" PRIu64 ",%" PRIu64, rows, columns);
    else
        snprintf(shape, sizeof(shape), "%" PRIu64, rows);
    header->length += (size_t)sprintf(
        header->text + header->length,
        "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[%s],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}",
        header->bytes ? "," : "{", name, shape, header->bytes, end);
    header->bytes = end;
}

static void add_layer(struct header *header, uint64_t hidden, int layer)
{
    static const struct {
        const char *name;
        uint64_t n, k; /* in multiples of the hidden size */
    } parts[] = { { "attention.self.query", 1, 1 },
                  { "attention.self.key", 1, 1 },
                  { "attention.self.value", 1, 1 },
                  { "attention.output.dense", 1, 1 },
                  { "attention.output.LayerNorm", 1, 0 },
                  { "intermediate.dense", 4, 1 },
                  { "output.dense", 1, 4 },
                  { "output.LayerNorm", 1, 0 } };

    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        char name[128];

        snprintf(name, sizeof(name), "encoder.layer.%d.%s.weight", layer, parts[i].name);
        add_tensor(header, name, parts[i].n * hidden, parts[i].k * hidden);
        snprintf(name, sizeof(name), "encoder.layer.%d.%s.bias", layer, parts[i].name);
        add_tensor(header, name, parts[i].n * hidden, 0);
    }
}

static void write_weights(const struct folder *folder, const struct shape *shape)
{
    struct header header = { .text = malloc(1 << 20) };
    const uint64_t hidden = shape->hidden;
    char path[128];
    uint64_t length;
    FILE *file;

    add_tensor(&header, "embeddings.word_embeddings.weight", FOLDER_VOCAB, hidden);
    add_tensor(&header, "embeddings.position_embeddings.weight", 40, hidden);
    add_tensor(&header, "embeddings.token_type_embeddings.weight", 2, hidden);
    add_tensor(&header, "embeddings.LayerNorm.weight", hidden, 0);
    add_tensor(&header, "embeddings.LayerNorm.bias", hidden, 0);
    for (int i = 0; i < shape->n_layers; i++)
        add_layer(&header, hidden, i);
    header.text[header.length++] = '}';
    while (header.length % 8)
        header.text[header.length++] = ' ';
    length = header.length;
    snprintf(path, sizeof(path), "%s/model.safetensors", folder->path);
    unlink(path);
    file = fopen(path, "wb");
    cr_assert_not_null(file);
    cr_assert_eq(fwrite(&length, sizeof(length), 1, file), 1); /* little endian */
    cr_assert_eq(fwrite(header.text, 1, header.length, file), header.length);
    cr_assert_eq(fflush(file), 0);
    cr_assert_eq(ftruncate(fileno(file), (off_t)(8 + header.length + header.bytes)), 0);
    fclose(file);
    free(header.text);
}

static void make_large(struct folder *folder, const struct shape *shape)
{
    char path[128];
    FILE *file;

    folder_make(folder, "bert");
    snprintf(path, sizeof(path), "%s/config.json", folder->path);
    file = fopen(path, "w");
    cr_assert_not_null(file);
    fprintf(file,
            "{\"architectures\":[\"BertModel\"],\"model_type\":\"bert\",\"hidden_act\":\"gelu\","
            "\"hidden_size\":%" PRIu64 ",\"intermediate_size\":%" PRIu64
            ",\"layer_norm_eps\":1e-12,\"max_position_embeddings\":40,\"num_attention_heads\":%d,"
            "\"num_hidden_layers\":%d,\"type_vocab_size\":2,\"vocab_size\":%d}",
            shape->hidden, 4 * shape->hidden, shape->n_heads, shape->n_layers, FOLDER_VOCAB);
    fclose(file);
    write_weights(folder, shape);
}

/* -------------------------------------------------------------------------------------- tests */

static char plugin_dir[PLUGIN_FOLDER_BYTES];

static gpuserve_context *make_context(uint32_t policy)
{
    gpuserve_context_options options = GPUSERVE_CONTEXT_OPTIONS_INIT;
    gpuserve_context *context = NULL;

    plugin_folder_make(plugin_dir, "plugin-small");
    options.plugin_dir = plugin_dir;
    options.n_threads = 2;
    options.memory_policy = policy;
    options.memory_wait_ms = 20;
    cr_assert_eq(gpuserve_context_create(&context, &options, NULL), GPUSERVE_OK);
    cr_assert_eq(gpuserve_context_set_budget(context, "cuda:0", 12 * GB, NULL), GPUSERVE_OK);
    return context;
}

static void end_context(gpuserve_context **context)
{
    gpuserve_context_unref(context);
    plugin_folder_remove(plugin_dir);
}

static gpuserve_model_options named(const char *name)
{
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;

    options.device = "cuda:0";
    options.dtype = GPUSERVE_DTYPE_FLOAT32;
    options.max_batch_tokens = 256;
    options.name = name;
    return options;
}

static void check_footprint(gpuserve_context *context, const struct folder *folder, uint64_t least,
                            uint64_t most)
{
    const gpuserve_model_options options = named(NULL);
    const size_t before = resident_bytes();
    gpuserve_footprint footprint = { .struct_size = sizeof(footprint) };
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    char path[128];
    struct stat file;

    cr_assert_eq(gpuserve_model_footprint(context, folder->path, &options, &footprint, &error),
                 GPUSERVE_OK, "%s", error.message);
    cr_expect_geq(footprint.weights_bytes, least);
    cr_expect_leq(footprint.weights_bytes, most);
    cr_expect_eq(footprint.fits, 1, "alone it does");
    cr_expect_gt(footprint.max_batch_tokens, 0u);
    cr_expect_leq(resident_bytes(), before + (32u << 20), "of the headers alone");
    snprintf(path, sizeof(path), "%s/model.safetensors", folder->path);
    cr_assert_eq(stat(path, &file), 0);
    cr_expect_leq((uint64_t)file.st_blocks * 512, UINT64_C(1) << 20,
                  "nothing of it is on the disk");
}

struct loading {
    gpuserve_context *context;
    const char *second;
    gpuserve_status second_status;
    gpuserve_error second_error;
    int n_told;
};

static int32_t end_it(void *user, uint32_t stage, uint64_t done, uint64_t total)
{
    int *n_told = user;

    cr_expect_eq(stage, GPUSERVE_STAGE_WEIGHTS);
    cr_expect_eq(done, 0u);
    cr_expect_gt(total, 4 * GB);
    ++*n_told;
    return 1;
}

/* The first model has its reservation: open the second. */
static int32_t open_second(void *user, uint32_t stage, uint64_t done, uint64_t total)
{
    struct loading *loading = user;
    gpuserve_model_options options = named("small");
    gpuserve_model *model = NULL;

    options.progress = end_it;
    options.progress_user = &loading->n_told;
    loading->second_status = gpuserve_model_open(&model, loading->context, loading->second,
                                                 &options, &loading->second_error);
    cr_expect_null(model);
    cr_expect_eq(stage, GPUSERVE_STAGE_WEIGHTS);
    cr_expect_eq(done, 0u);
    cr_expect_gt(total, 8 * GB);
    return 1;
}

Test(large, nine_and_five_on_twelve_gigabytes)
{
    static const uint32_t policies[] = { GPUSERVE_MEMORY_REFUSE, GPUSERVE_MEMORY_WAIT,
                                         GPUSERVE_MEMORY_EVICT };
    struct folder large, small;

    make_large(&large, &large_shape);
    make_large(&small, &small_shape);
    for (size_t i = 0; i < sizeof(policies) / sizeof(policies[0]); i++) {
        gpuserve_context *context = make_context(policies[i]);
        struct loading loading = { .context = context,
                                   .second = small.path,
                                   .second_error = GPUSERVE_ERROR_INIT };
        gpuserve_model_options options = named("large");
        gpuserve_error error = GPUSERVE_ERROR_INIT;
        gpuserve_model *model = NULL;
        const size_t before = resident_bytes();

        check_footprint(context, &large, 8800000000, 9200000000);
        check_footprint(context, &small, 4700000000, 5200000000);
        options.progress = open_second;
        options.progress_user = &loading;
        cr_expect_eq(gpuserve_model_open(&model, context, large.path, &options, &error),
                     GPUSERVE_E_CANCELLED, "%s", error.message);
        cr_expect_eq(loading.second_status, GPUSERVE_E_TOO_LARGE, "%s",
                     loading.second_error.message);
        cr_expect_eq(loading.n_told, 0, "it never came so far");
        cr_expect_not_null(strstr(loading.second_error.message, "the budget of cuda:0 is 12000"),
                           "%s", loading.second_error.message);
        cr_expect_not_null(strstr(loading.second_error.message, "large holds 89"), "%s",
                           loading.second_error.message);
        /* The first model released its reservation: the second may load now. */
        options = named("small");
        options.progress = end_it;
        options.progress_user = &loading.n_told;
        cr_expect_eq(gpuserve_model_open(&model, context, small.path, &options, &error),
                     GPUSERVE_E_CANCELLED, "%s", error.message);
        cr_expect_eq(loading.n_told, 1);
        cr_expect_leq(resident_bytes(), before + (64u << 20));
        end_context(&context);
    }
    folder_remove(&large);
    folder_remove(&small);
}

/* -------------------------------------------------------------------------------------- profile */

struct written {
    char *text;
    size_t size;
};

static void append(void *user, const char *text, size_t size)
{
    struct written *to = user;

    to->text = realloc(to->text, to->size + size + 1);
    memcpy(to->text + to->size, text, size);
    to->size += size;
    to->text[to->size] = 0;
}

/* With more layers than the profile has entries, the first ones are reported. */
Test(large, a_profile_of_three_hundred_layers)
{
    gpuserve_context *context = make_context(GPUSERVE_MEMORY_REFUSE);
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
    gpuserve_profile_options how = GPUSERVE_PROFILE_OPTIONS_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct written got = { 0 };
    const json_t *layers;
    struct folder folder;
    json_t *json;

    make_large(&folder, &deep_shape);
    options.device = "cpu";
    how.n_texts = 1;
    how.text_tokens = 4;
    how.rounds = 1;
    cr_assert_eq(gpuserve_model_profile(context, folder.path, &options, &how, append, &got, &error),
                 GPUSERVE_OK, "%s", error.message);
    json = json_loads(got.text, 0, NULL);
    layers = json_object_get(json, "layers");
    cr_expect_eq(json_array_size(layers), 256, "%zu layers", json_array_size(layers));
    json_decref(json);
    free(got.text);
    folder_remove(&folder);
    end_context(&context);
}

/* ----------------------------------------------------------------------------------- offloading */

static void expect_offloaded(const char *device, uint32_t dtype)
{
    static const char *const texts[] = { "w10 w11 w12", "w50", "w7 w8 w9 w10 w11 w12" };
    gpuserve_context *context = make_context(GPUSERVE_MEMORY_REFUSE);
    gpuserve_model_options options = named("m");
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    float before[3 * FOLDER_HIDDEN], after[3 * FOLDER_HIDDEN];
    gpuserve_model *model = NULL;
    struct folder folder;

    folder_make(&folder, "bert");
    options.device = device;
    options.dtype = dtype;
    cr_assert_eq(gpuserve_model_open(&model, context, folder.path, &options, &error), GPUSERVE_OK,
                 "%s", error.message);
    cr_assert_eq(gpuserve_embed(model, texts, 3, before, 3 * FOLDER_HIDDEN, NULL, NULL),
                 GPUSERVE_OK);
    folder_overwrite_word(&folder, 10,
                          0.25f); /* would change the results of a load from the files */
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(gpuserve_model_suspend(model, NULL), GPUSERVE_OK);
        cr_assert_eq(gpuserve_embed(model, texts, 3, after, 3 * FOLDER_HIDDEN, NULL, &error),
                     GPUSERVE_OK, "%s", error.message);
        cr_expect_eq(memcmp(before, after, sizeof(before)), 0);
    }
    /* The host copy counts against the context's budget, and is dropped when the budget needs
     * it. */
    cr_assert_eq(gpuserve_model_suspend(model, NULL), GPUSERVE_OK);
    cr_assert_eq(gpuserve_context_set_budget(context, NULL, 1, NULL), GPUSERVE_OK);
    cr_expect_eq(gpuserve_model_resume(model, &error), GPUSERVE_E_TOO_LARGE);
    cr_assert_eq(gpuserve_context_set_budget(context, NULL, 0, NULL), GPUSERVE_OK);
    cr_expect_eq(gpuserve_model_resume(model, &error), GPUSERVE_OK, "it kept its copy: %s",
                 error.message);
    cr_assert_eq(gpuserve_model_suspend(model, NULL), GPUSERVE_OK);
    gpuserve_model_close(&model);
    end_context(&context);
    folder_remove(&folder);
}

Test(large, offloaded_weights_come_back_without_the_files)
{
    expect_offloaded("cuda:0", GPUSERVE_DTYPE_FLOAT32);
    expect_offloaded("cuda:0", GPUSERVE_DTYPE_INT8);
    expect_offloaded("cuda:*", GPUSERVE_DTYPE_FLOAT32);
}
