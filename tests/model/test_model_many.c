/*
 * test_model_many.c - model directories that exceed a limit: labels, prompts, files; and the
 * folders of sparse models.
 */
#define _GNU_SOURCE
#include "lib/base/alloc.h"
#include "tests/model/support.h"

#include "lib/base/json_tree.h"
#include "lib/model/formats/formats.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64];

/* A folder with links to the files of tests/data/models/MODEL. */
static void make_folder(const char *model, const char *const *files)
{
    strcpy(folder, "/tmp/gsv-many-XXXXXX");
    cr_assert(mkdtemp(folder));
    for (; *files; files++) {
        char from[1024], to[256], command[1400];

        snprintf(from, sizeof(from), "%s/models/%s/%s", TEST_DATA_DIR, model, *files);
        snprintf(to, sizeof(to), "%s/%s", folder, *files);
        snprintf(command, sizeof(command), "cp '%s' '%s'", from, to);
        cr_assert_eq(system(command), 0);
    }
}

static void remove_folder(void)
{
    char command[128];

    snprintf(command, sizeof(command), "rm -r '%s'", folder);
    cr_assert_eq(system(command), 0);
}

static FILE *open_in(const char *name, const char *mode)
{
    char path[256];
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    f = fopen(path, mode);
    cr_assert(f, "%s", path);
    return f;
}

static void write_in(const char *name, const char *text)
{
    FILE *f = open_in(name, "w");

    fputs(text, f);
    fclose(f);
}

static void expect(gpuserve_status status, const char *says)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    const gpuserve_status st = try_load(folder, NULL, &error);

    cr_expect_eq(st, status, "status %d: %s", st, error.message);
    if (status != GPUSERVE_OK)
        cr_expect(strstr(error.message, says), "'%s' is not in: %s", says, error.message);
}

Test(model_many, labels)
{
    FILE *f;

    make_folder("bert-single", (const char *const[]){ "config.json", "model.safetensors", NULL });
    /* The first key of an object is found first; a second id2label would be rejected. */
    f = open_in("config.json", "w");
    fputs("{\"model_type\":\"bert\",\"architectures\":[\"BertForSequenceClassification\"],"
          "\"hidden_size\":32,\"num_hidden_layers\":2,\"num_attention_heads\":4,"
          "\"intermediate_size\":64,\"vocab_size\":96,\"max_position_embeddings\":40,"
          "\"type_vocab_size\":2,\"hidden_act\":\"gelu\",\"id2label\":{\"0\":\"a\"",
          f);
    for (int i = 1; i <= 100000; i++)
        fprintf(f, ",\"%d\":\"a\"", i);
    fputs("}}", f);
    fclose(f);
    expect(GPUSERVE_E_FORMAT, "100001 labels, expected 1 to 100000");
    remove_folder();
}

static void write_prompts(int n)
{
    FILE *f = open_in("config_sentence_transformers.json", "w");

    fputs("{\"prompts\":{", f);
    for (int i = 0; i < n; i++)
        fprintf(f, "%s\"%d\":\"text\"", i > 0 ? "," : "", i);
    fputs("}}", f);
    fclose(f);
}

Test(model_many, prompts)
{
    make_folder("bert", (const char *const[]){ "config.json", "model.safetensors", NULL });
    write_prompts(1000);
    expect(GPUSERVE_OK, "");
    write_prompts(1001);
    expect(GPUSERVE_E_FORMAT, "prompts is not an object with at most 1000");
    remove_folder();
}

/* All files are hard links to the same file; symbolic ones are refused where the kernel has no
 * openat2(). */
Test(model_many, files_of_weights)
{
    struct rlimit limit;
    char file[256];
    FILE *index;

    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = limit.rlim_max;
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    cr_assert_geq(limit.rlim_cur, 1100, "this test opens 1,025 files, the limit is %llu",
                  (unsigned long long)limit.rlim_cur);
    make_folder("bert-sharded",
                (const char *const[]){ "config.json", "model-00001-of-00002.safetensors", NULL });
    index = open_in("model.safetensors.index.json", "w");
    fputs("{\"weight_map\":{", index);
    snprintf(file, sizeof(file), "%s/model-00001-of-00002.safetensors", folder);
    for (int i = 0; i <= 1024; i++) {
        char path[256];

        snprintf(path, sizeof(path), "%s/%04d.safetensors", folder, i);
        cr_assert_eq(link(file, path), 0);
        fprintf(index, "%s\"%d\":\"%04d.safetensors\"", i > 0 ? "," : "", i, i);
    }
    fputs("}}", index);
    fclose(index);
    expect(GPUSERVE_E_TOO_LARGE, "more than 1024 files");
    remove_folder();
}

#define MODULES                                                                                 \
    "[{\"type\":\"sentence_transformers.sparse_encoder.models.MLMTransformer\",\"path\":\"\"}," \
    "{\"type\":\"sentence_transformers.sparse_encoder.models.SpladePooling\",\"path\":\"1\"}]"

Test(model_many, ways_to_pool_words)
{
    char inner[128];

    make_folder("bert-masked", (const char *const[]){ "config.json", "model.safetensors", NULL });
    snprintf(inner, sizeof(inner), "%s/1", folder);
    cr_assert_eq(mkdir(inner, 0700), 0);
    write_in("modules.json", MODULES);
    write_in("1/config.json", "{\"pooling_strategy\":\"max\",\"activation_function\":\"relu\"}");
    expect(GPUSERVE_OK, "");
    write_in("1/config.json", "{\"pooling_strategy\":\"sum\"}");
    expect(GPUSERVE_E_UNSUPPORTED, "pooling_strategy 'sum' is not supported");
    write_in("1/config.json", "{\"activation_function\":\"tanh\"}");
    expect(GPUSERVE_E_UNSUPPORTED, "activation_function 'tanh' is not supported");
    remove_folder();
}

/* ------------------------------------------------------------------------------------- headers */

Test(model_many, headers_that_are_none)
{
    static const struct {
        const char *header;
        uint64_t n_bytes; /* tensor bytes */
        const char *says; /* NULL: a valid header */
    } cases[] = {
        { "{\"a\":{\"dtype\":\"F4\",\"shape\":[4],\"data_offsets\":[0,2]}}", 2, NULL },
        { "{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,1]}}", 1,
          "is not a whole number of bytes" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 5,
          "end at byte 4 of 5" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4, "invalid shape" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1.5],\"data_offsets\":[0,4]}}", 4,
          "invalid shape" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":1,\"data_offsets\":[0,4]}}", 4, "shape is missing" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,4]}}", 4,
          "invalid data_offsets" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[-4,4]}}", 4,
          "invalid data_offsets" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4.5]}}", 4,
          "invalid data_offsets" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,-4]}}", 0,
          "invalid data_offsets" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
          "\"b\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[4,0]}}",
          4, "spans bytes 4 to 0" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904],\"data_offsets\":[0,0]}}", 0,
          "overflows" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}", 0,
          "overflows" },
        { "{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "missing dtype" },
        { "{\"__metadata__\":[]}", 0, "__metadata__ is not an object" },
        { "[]", 0, "the header is not a JSON object" },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        gpuserve_error error = GPUSERVE_ERROR_INIT;
        struct gsv_json_value *json = NULL;
        const size_t size = strlen(cases[i].header);
        const gpuserve_status st = gsv_safetensors_check(&json, cases[i].header, size,
                                                         8 + size + cases[i].n_bytes, "t", &error);

        cr_expect_eq(st, cases[i].says ? GPUSERVE_E_FORMAT : GPUSERVE_OK, "%s: %s", cases[i].header,
                     error.message);
        if (cases[i].says)
            cr_expect(strstr(error.message, cases[i].says), "%s: %s", cases[i].header,
                      error.message);
        gsv_json_free(&json);
    }
}

/* ---------------------------------------------------------------------------------------- sizes */

static void expect_no_work(struct gsv_net *net, struct gsv_exec_options options)
{
    gpuserve_error no = GPUSERVE_ERROR_INIT;
    struct gsv_exec *work = NULL;

    cr_expect_eq(gsv_exec_create(&work, net, &options, &no), GPUSERVE_E_INVALID);
    cr_expect(strstr(no.message, "invalid activation size"), "%s", no.message);
    cr_expect_null(work);
}

/* More threads than a load supports; and invalid batches. */
Test(model_many, threads_and_batches)
{
    const struct gsv_net_options options = { .dtype = GPUSERVE_DTYPE_FLOAT32, .n_threads = 100 };
    const struct gpuserve_backend *backend = gsv_backend_cpu();
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct gpuserve_device *device = NULL;
    struct gsv_dir *dir = NULL;
    struct gsv_spec *spec = NULL;
    struct gsv_net *net = NULL;
    uint64_t activations, stream;

    cr_assert_eq(gsv_dir_open(&dir, test_data("models/bert"), &error), GPUSERVE_OK);
    cr_assert_eq(gsv_spec_load(&spec, dir, NULL, 0, &error), GPUSERVE_OK);
    cr_assert_eq(backend->device_open(&device, 0, &error), GPUSERVE_OK);
    cr_expect_eq(gsv_net_load(&net, spec, backend, device, &options, &error), GPUSERVE_OK, "%s",
                 error.message);
    expect_no_work(net, (struct gsv_exec_options){ GPUSERVE_DTYPE_INT8, 1, 8, 1, 8 });
    expect_no_work(net, (struct gsv_exec_options){ GPUSERVE_DTYPE_FLOAT32, 1, 0, 1, 8 });
    expect_no_work(net, (struct gsv_exec_options){ GPUSERVE_DTYPE_FLOAT32, 1, 8, 0, 8 });
    gsv_exec_bytes(spec, backend, &(struct gsv_exec_options){ 99, 1, 8, 1, 8 }, &activations,
                   &stream);
    cr_expect(activations == GSV_TOO_MANY_BYTES && stream == GSV_TOO_MANY_BYTES);
    gsv_net_free(&net);
    gsv_spec_free(&spec);
    gsv_dir_close(&dir);
    backend->device_close(&device);
}
