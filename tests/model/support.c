/*
 * support.c - models and reference vectors for the tests of lib/model.
 */
#include "tests/model/support.h"

#include "lib/model/formats/formats.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BATCH_TOKENS 1024
#define BATCH_TEXTS 32

const char *real_model(const char *name)
{
    static char path[1024];
    const char *models = getenv("GPUSERVE_TEST_MODELS");
    const char *cache = getenv("XDG_CACHE_HOME");

    if (models)
        snprintf(path, sizeof(path), "%s/%s", models, name);
    else if (cache && *cache)
        snprintf(path, sizeof(path), "%s/gpuserve/models/%s", cache, name);
    else
        snprintf(path, sizeof(path), "%s/.cache/gpuserve/models/%s", getenv("HOME"), name);
    cr_assert(access(path, R_OK) == 0, "%s is missing: run ./dev models %s", path, name);
    return path;
}

const char *test_data(const char *name)
{
    static char path[1024];

    snprintf(path, sizeof(path), "%s/%s", TEST_DATA_DIR, name);
    return path;
}

/* -------------------------------------------------------------------------------------- files */

char *read_file(const char *path, size_t *size)
{
    FILE *f = fopen(path, "rb");
    struct stat info;
    char *bytes;

    cr_assert(f, "%s", path);
    cr_assert_eq(fstat(fileno(f), &info), 0);
    *size = (size_t)info.st_size;
    bytes = calloc(*size + 1, 1);
    cr_assert_eq(fread(bytes, 1, *size, f), *size);
    fclose(f);
    return bytes;
}

void write_file(const char *path, const char *bytes, size_t size)
{
    FILE *f = fopen(path, "wb");

    cr_assert(f, "%s", path);
    cr_assert_eq(fwrite(bytes, 1, size, f), size);
    fclose(f);
}

void each_file(const char *folder, const char *to)
{
    DIR *dir = opendir(folder);
    struct dirent *entry;

    cr_assert(dir, "%s", folder);
    if (to)
        mkdir(to, 0700);
    while ((entry = readdir(dir))) {
        char path[2048], copy[2048];
        struct stat info;
        size_t size;
        char *bytes;

        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        snprintf(copy, sizeof(copy), "%s/%s", to ? to : "", entry->d_name);
        cr_assert_eq(stat(path, &info), 0);
        if (S_ISDIR(info.st_mode)) {
            each_file(path, to ? copy : NULL);
        } else if (to) {
            bytes = read_file(path, &size);
            write_file(copy, bytes, size);
            free(bytes);
        } else {
            unlink(path);
        }
    }
    closedir(dir);
    if (!to)
        rmdir(folder);
}

/* ------------------------------------------------------------------------------------- models */

/* The first word of each line that has no '#' in front. */
size_t read_families(struct model_name names[MAX_MODELS])
{
    FILE *file = fopen(test_data("models/families.txt"), "r");
    char line[1024];
    size_t n = 0;

    cr_assert(file, "tests/data/models/families.txt is missing");
    while (n < MAX_MODELS && fgets(line, sizeof(line), file))
        if (sscanf(line, "%95[^#\t\n]", names[n].text) == 1)
            n++;
    fclose(file);
    return n;
}

bool is_refused(const char *name, char reason[96])
{
    FILE *file = fopen(test_data("models/refused.txt"), "r");
    char line[256], listed[96];
    bool found = false;

    cr_assert(file, "tests/data/models/refused.txt is missing");
    while (!found && fgets(line, sizeof(line), file))
        found =
            sscanf(line, "%95[^#\t\n]\t%95[^\n]", listed, reason) == 2 && strcmp(listed, name) == 0;
    fclose(file);
    return found;
}

/* A model's directory; below that of its adapter, if `lora` is not NULL. */
static struct gsv_dir *open_dir(const char *path, const char *lora)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct gsv_dir *dir = NULL, *base = NULL;

    cr_assert_eq(gsv_dir_open(&base, path, &error), GPUSERVE_OK, "%s", error.message);
    if (!lora)
        return base;
    cr_assert_eq(gsv_dir_open(&dir, lora, &error), GPUSERVE_OK, "%s", error.message);
    cr_assert_eq(gsv_dir_set_base(dir, base, &error), GPUSERVE_OK, "%s", error.message);
    return dir;
}

void add_adapter(struct gsv_adapter_dirs *adapters, const char *name)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    char below[64];

    snprintf(below, sizeof(below), "lora/%s", name);
    adapters->names[adapters->n] = strdup(name);
    cr_assert_eq(gsv_dir_open(&adapters->dirs[adapters->n++], test_data(below), &error),
                 GPUSERVE_OK, "%s", error.message);
}

void close_adapters(struct gsv_adapter_dirs *adapters)
{
    for (size_t i = 0; i < adapters->n; i++) {
        free(adapters->names[i]);
        gsv_dir_close(&adapters->dirs[i]);
    }
}

/* Opens the devices of a pipeline, or device 0. */
static void open_devices(struct loaded *model, const struct load_options *options,
                         struct gsv_pipeline_stage stages[MAX_STAGES])
{
    const bool is_host = strcmp(model->backend->name, "cuda") != 0;
    const int32_t last = options->n_ranges > 0 ? options->n_ranges - 1 : 0;

    cr_assert_lt(last, MAX_STAGES);
    for (int32_t i = 0; i <= last; i++) {
        struct gpuserve_device **device = i < last ? &model->before[i] : &model->device;
        gpuserve_error error = GPUSERVE_ERROR_INIT;

        cr_assert_eq(model->backend->device_open(device, is_host ? 0 : i, &error), GPUSERVE_OK,
                     "%s", error.message);
        if (options->ranges)
            stages[i] = (struct gsv_pipeline_stage){ *device, options->ranges[i] };
    }
}

void load_model(struct loaded *model, const char *path, const struct load_options *options)
{
    struct gsv_pipeline_stage stages[MAX_STAGES];
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    const struct gsv_adapter_dirs none = { .n = 0 };
    const struct gsv_head_files heads = { .one = options->head, .lines = options->heads };
    struct gsv_dir *dir = NULL;
    const struct gsv_net_options net = {
        .dtype = options->dtype ? options->dtype : (uint32_t)GPUSERVE_DTYPE_FLOAT32,
        .n_threads = 2,
        .calibration = options->calibration,
        .probes = options->probes,
        .calibrate = options->calibrate,
        .calibrate_user = options->calibrate_user,
        .observer = options->observer,
        .packed = options->packed,
        .n_streamed = options->n_streamed,
        .stages = stages,
        .n_stages = options->n_ranges,
    };
    struct gsv_exec_options work = {
        .dtype = net.dtype,
        .n_threads = 1,
        .max_tokens = options->max_tokens ? options->max_tokens : BATCH_TOKENS,
        .max_sequences = options->max_sequences ? options->max_sequences : BATCH_TEXTS,
    };
    gpuserve_status st;

    memset(model, 0, sizeof(*model));
    model->backend = options->backend ? options->backend : gsv_backend_cpu();
    open_devices(model, options, stages);
    dir = open_dir(path, options->lora);
    cr_assert_eq(gsv_spec_load_with(&model->spec, dir,
                                    options->adapters ? options->adapters : &none, &heads,
                                    options->pooling, &error),
                 GPUSERVE_OK, "%s", error.message);
    gsv_dir_close(&dir);
    if (gsv_spec_facts(model->spec)->needs_answers)
        cr_assert_eq(gsv_spec_set_answers(model->spec, YES, NO, &error), GPUSERVE_OK);
    work.max_seqlen = gsv_spec_facts(model->spec)->max_tokens;
    if (work.max_seqlen > work.max_tokens)
        work.max_seqlen = work.max_tokens;
    st = gsv_net_load(&model->net, model->spec, model->backend, model->device, &net, &error);
    if (options->may_be_imprecise && st == GPUSERVE_E_UNSUPPORTED)
        return;
    cr_assert_eq(st, GPUSERVE_OK, "%s: %s", path, error.message);
    cr_assert_eq(gsv_exec_create(&model->work, model->net, &work, &error), GPUSERVE_OK, "%s",
                 error.message);
}

void unload_model(struct loaded *model)
{
    gsv_exec_free(&model->work);
    gsv_net_free(&model->net);
    gsv_spec_free(&model->spec);
    model->backend->device_close(&model->device);
    for (size_t i = 0; i < MAX_STAGES - 1; i++)
        model->backend->device_close(&model->before[i]);
}

/* -------------------------------------------------------------------------------------- heads */

static void add_entry(char *header, size_t size, size_t *offset, int layer, const char *tensor,
                      int32_t rows, int32_t columns)
{
    const size_t begin = *offset, length = strlen(header);
    char shape[32];

    *offset += sizeof(float) * (size_t)rows * (size_t)(columns ? columns : 1);
    snprintf(shape, sizeof(shape), columns ? "%d,%d" : "%d", rows, columns);
    snprintf(header + length, size - length,
             ",\"layers.%d.%s\":{\"dtype\":\"F32\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}",
             layer, tensor, shape, begin, *offset);
}

/* The metadata, whose values are strings; it opens the header's object. */
static void begin_header(char *header, size_t size, const struct head_shape *shape)
{
    int32_t n_labels = 0;
    size_t length;

    for (size_t i = 0; i < 4 && shape->widths[i] > 0; i++)
        n_labels = shape->widths[i];
    snprintf(header, size,
             "{\"__metadata__\":{\"activation\":\"%s\",\"input\":\"%s\",\"labels\":\"[",
             shape->activation, shape->input);
    for (int32_t i = 0; i < n_labels; i++) {
        length = strlen(header);
        snprintf(header + length, size - length, "%s\\\"%s %d\\\"", i ? "," : "", shape->name, i);
    }
    length = strlen(header);
    snprintf(header + length, size - length, "]\"}");
}

void write_head(const char *folder, const struct head_shape *shape, int32_t dim)
{
    char path[1200], header[4096];
    uint32_t state = 7;
    uint64_t size;
    size_t n_bytes = 0;
    int32_t columns = dim;
    FILE *file;

    for (const char *c = shape->name; *c; c++)
        state = state * 31 + (unsigned char)*c;
    begin_header(header, sizeof(header), shape);
    for (int i = 0; i < 4 && shape->widths[i] > 0; i++) {
        add_entry(header, sizeof(header), &n_bytes, i, "weight", shape->widths[i], columns);
        add_entry(header, sizeof(header), &n_bytes, i, "bias", shape->widths[i], 0);
        columns = shape->widths[i];
    }
    strcat(header, "}");
    snprintf(path, sizeof(path), "%s/%s.safetensors", folder, shape->name);
    file = fopen(path, "w");
    cr_assert_not_null(file, "%s", path);
    size = strlen(header);
    fwrite(&size, sizeof(size), 1, file);
    fwrite(header, 1, size, file);
    for (size_t i = 0; i < n_bytes / sizeof(float); i++) {
        float value;

        state = state * 1664525u + 1013904223u;
        value = (float)(state >> 8) / (float)(1 << 23) - 1.0f;
        fwrite(&value, sizeof(value), 1, file);
    }
    cr_assert_eq(fclose(file), 0);
}

gpuserve_status try_load(const char *path, const char *head, gpuserve_error *error)
{
    const struct gpuserve_backend *backend = gsv_backend_cpu();
    const struct gsv_net_options options = { .dtype = GPUSERVE_DTYPE_FLOAT32, .n_threads = 2 };
    struct gpuserve_device *device = NULL;
    struct gsv_dir *dir = NULL;
    struct gsv_spec *spec = NULL;
    struct gsv_net *net = NULL;
    gpuserve_status st = gsv_dir_open(&dir, path, error);

    if (st == GPUSERVE_OK)
        st = gsv_spec_load(&spec, dir, head, 0, error);
    if (st == GPUSERVE_OK)
        st = backend->device_open(&device, 0, error);
    if (st == GPUSERVE_OK)
        st = gsv_net_load(&net, spec, backend, device, &options, error);
    gsv_net_free(&net);
    backend->device_close(&device);
    gsv_spec_free(&spec);
    gsv_dir_close(&dir);
    return st;
}

/* -------------------------------------------------------------------------------------- texts */

struct gpuserve_host_batch make_batch(const struct gsv_spec_facts *facts, const struct texts *texts,
                                      size_t first, size_t n)
{
    struct gpuserve_host_batch batch = { .n_sequences = (int32_t)n };
    int32_t *ids, *types, *positions, *cu_seqlens = calloc(n + 1, sizeof(int32_t));
    size_t skip = 0;

    for (size_t i = 0; i < first; i++)
        skip += (size_t)texts->n_tokens[i];
    for (size_t i = 0; i < n; i++) {
        batch.n_tokens += texts->n_tokens[first + i];
        cu_seqlens[i + 1] = batch.n_tokens;
        if (texts->n_tokens[first + i] > batch.max_seqlen)
            batch.max_seqlen = texts->n_tokens[first + i];
    }
    ids = calloc((size_t)batch.n_tokens, sizeof(int32_t));
    types = calloc((size_t)batch.n_tokens, sizeof(int32_t));
    positions = calloc((size_t)batch.n_tokens, sizeof(int32_t));
    memcpy(ids, texts->ids + skip, (size_t)batch.n_tokens * sizeof(int32_t));
    if (texts->type_ids)
        memcpy(types, texts->type_ids + skip, (size_t)batch.n_tokens * sizeof(int32_t));
    for (size_t i = 0; i < n; i++)
        gsv_positions(facts, ids + cu_seqlens[i], (size_t)(cu_seqlens[i + 1] - cu_seqlens[i]),
                      positions + cu_seqlens[i]);
    batch.ids = ids;
    batch.type_ids = types;
    batch.positions = positions;
    batch.cu_seqlens = cu_seqlens;
    return batch;
}

void free_batch(struct gpuserve_host_batch *batch)
{
    free((void *)batch->ids);
    free((void *)batch->type_ids);
    free((void *)batch->positions);
    free((void *)batch->cu_seqlens);
}

void run_texts(const struct loaded *model, const struct texts *texts, size_t first, size_t n,
               const struct gsv_run *run)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct gpuserve_host_batch batch = make_batch(gsv_spec_facts(model->spec), texts, first, n);

    cr_assert_eq(gsv_net_run(model->work, &batch, run, &error), GPUSERVE_OK, "%s", error.message);
    free_batch(&batch);
}

float *run_all(const struct loaded *model, const struct texts *texts, struct gsv_run run)
{
    const size_t columns = (size_t)gsv_run_columns(gsv_spec_facts(model->spec), &run);
    float *output;
    size_t total = 0, row = 0;

    for (size_t i = 0; i < texts->n; i++)
        total += (size_t)texts->n_tokens[i];
    if (!gsv_is_by_token(run.task))
        total = texts->n;
    output = calloc(total * columns, sizeof(float));
    for (size_t first = 0, n; first < texts->n; first += n) {
        int32_t tokens = texts->n_tokens[first];

        for (n = 1; first + n < texts->n && n < BATCH_TEXTS; n++) {
            tokens += texts->n_tokens[first + n];
            if (tokens > BATCH_TOKENS)
                break;
        }
        run.output = output + row * columns;
        run_texts(model, texts, first, n, &run);
        for (size_t i = first; i < first + n; i++)
            row += gsv_is_by_token(run.task) ? (size_t)texts->n_tokens[i] : 1;
    }
    return output;
}

/* --------------------------------------------------------------------------------- references */

/* Opens the file and looks for the tensor; the caller closes both. */
static bool find_reference(struct gsv_dir **dir, struct gsv_weight_file **file,
                           struct gsv_tensor *tensor, const char *path, const char *name)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    char folder[1024];
    const char *slash = strrchr(path, '/');

    snprintf(folder, sizeof(folder), "%.*s", (int)(slash - path), path);
    cr_assert_eq(gsv_dir_open(dir, folder, &error), GPUSERVE_OK, "%s", error.message);
    cr_assert_eq(gsv_safetensors_open(file, *dir, slash + 1, &error), GPUSERVE_OK, "%s",
                 error.message);
    return gsv_weight_file_find(*file, name, tensor);
}

bool has_reference(const char *path, const char *name)
{
    struct gsv_dir *dir = NULL;
    struct gsv_weight_file *file = NULL;
    struct gsv_tensor tensor;
    const bool found = find_reference(&dir, &file, &tensor, path, name);

    gsv_weight_file_close(&file);
    gsv_dir_close(&dir);
    return found;
}

void *read_reference(const char *path, const char *name, size_t *count)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct gsv_dir *dir = NULL;
    struct gsv_weight_file *file = NULL;
    struct gsv_tensor tensor;
    void *bytes;

    cr_assert(find_reference(&dir, &file, &tensor, path, name), "%s has no %s", path, name);
    bytes = malloc((size_t)tensor.size_bytes + 1);
    cr_assert_eq(gsv_fd_read(gsv_weight_file_fd(file), bytes, (size_t)tensor.size_bytes,
                             tensor.offset, path, &error),
                 GPUSERVE_OK, "%s", error.message);
    *count = (size_t)tensor.count;
    gsv_weight_file_close(&file);
    gsv_dir_close(&dir);
    return bytes;
}

struct texts read_texts(const char *path)
{
    struct texts texts = { 0 };
    size_t n_ids;

    texts.ids = read_reference(path, "ids", &n_ids);
    texts.n_tokens = read_reference(path, "n_tokens", &texts.n);
    if (has_reference(path, "type_ids"))
        texts.type_ids = read_reference(path, "type_ids", &n_ids);
    return texts;
}

void free_texts(struct texts *texts)
{
    free(texts->ids);
    free(texts->n_tokens);
    free(texts->type_ids);
}

struct difference compare_rows(const float *got, const double *want, size_t rows, size_t columns)
{
    struct difference d = { 0.0, 1.0, 0.0 };

    for (size_t i = 0; i < rows; i++) {
        double ab = 0, aa = 0, bb = 0, cosine;

        for (size_t j = 0; j < columns; j++) {
            const double a = got[i * columns + j], b = want[i * columns + j];

            ab += a * b;
            aa += a * a;
            bb += b * b;
            if (!(fabs(a - b) <= d.largest))
                d.largest = fabs(a - b);
        }
        cosine = aa > 0 && bb > 0 ? ab / sqrt(aa * bb) : 0.0;
        d.mean_cosine += cosine / (double)rows;
        if (!(cosine >= d.min_cosine))
            d.min_cosine = cosine;
    }
    return d;
}
