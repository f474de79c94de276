/*
 * checkpoint_writer.c - writes the tensors of a checkpoint as safetensors files of another type.
 *
 *   list of tensors -> outputs (type, bytes) -> files of at most max_file_bytes -> for each file:
 *   header -> for each tensor: read a chunk, convert, check, write at its offset
 *
 * A pruned tensor is read three times: twice to find the threshold. An int8 tensor is followed by
 * its scales in the same file. Chunks hold whole rows of it. The memory in use does not depend on
 * the size of the checkpoint.
 */
#include "lib/model/formats/checkpoint_writer.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/model/formats/formats.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_ELEMENTS ((size_t)1 << 18)
#define LENGTH_BYTES 8
#define FILE_NAME_BYTES 64
#define MAX_SHARING 16 /* bytes of the tensors for each byte of the files */

/* One tensor to write. */
struct output_tensor {
    const struct gsv_tensor *from;
    enum gsv_tensor_type type; /* OTHER: the bytes as they are */
    uint64_t bytes;            /* of the elements */
    uint64_t scale_bytes;      /* of the scales; 0 unless the type is I8_ROWS */
    uint64_t alignment;        /* of an element */
    bool is_pruned;
    uint64_t at, scales_at; /* from the start of the file's tensors */
    size_t file;
};

/* A conversion in progress. */
struct checkpoint_writer {
    const struct gsv_write_options *options;
    int to;
    const char *shown;
    gpuserve_error *error;
    struct output_tensor *outputs;
    size_t n, n_files;
    unsigned char *raw, *made; /* file bytes of a chunk, and the bytes to write */
    float *floats;
};

/* -------------------------------------------------------------------------------------- outputs */

static bool ends_in(const char *name, const char *ending)
{
    const size_t n = strlen(name), m = strlen(ending);

    return n >= m && strcmp(name + n - m, ending) == 0;
}

/* Matrices become int8: products and tables. Vectors, small matrices and matrices with rows longer
 * than a chunk stay float32. */
static bool is_quantized(const struct gsv_tensor *from)
{
    return from->rank == 2 && from->count >= GSV_INT8_MIN_ELEMENTS &&
           from->shape[1] <= CHUNK_ELEMENTS && ends_in(from->name, ".weight") &&
           strlen(from->name) + strlen(GSV_SCALE_SUFFIX) < GSV_INT8_NAME_BYTES;
}

/* Refuse a tensor that a safetensors file cannot hold, or that cannot be read. */
static gpuserve_status check_input(const struct gsv_tensor *from, gpuserve_error *error)
{
    if (from->rank > GSV_TENSOR_MAX_RANK)
        return gsv_fail(
            error, GPUSERVE_E_UNSUPPORTED, "%s: tensor '%s' has rank %" PRIu64 ", the limit is %d",
            gsv_weight_file_name(from->file), from->name, from->rank, GSV_TENSOR_MAX_RANK);
    if (strcmp(from->name, GSV_METADATA_KEY) == 0)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        "%s: tensor '%s' has a name that safetensors reserves",
                        gsv_weight_file_name(from->file), from->name);
    return gsv_tensor_check_order(from, error);
}

static void plan_output(struct output_tensor *output, const struct gsv_tensor *from,
                        enum gsv_tensor_type wanted, const struct gsv_pruning *pruning)
{
    output->from = from;
    output->type = wanted;
    output->is_pruned = pruning && from->type != GSV_TENSOR_OTHER && gsv_is_prunable(from, pruning);
    if (from->type == GSV_TENSOR_OTHER)
        output->type = GSV_TENSOR_OTHER;
    else if (wanted == GSV_TENSOR_I8_ROWS && !is_quantized(from))
        output->type = GSV_TENSOR_F32;
    if (output->type == GSV_TENSOR_OTHER) {
        output->bytes = from->size_bytes;
        output->alignment = from->count ? from->size_bytes / from->count : 0;
        return;
    }
    output->alignment = gsv_tensor_bytes(output->type, 1);
    output->bytes = from->count * output->alignment;
    if (output->type == GSV_TENSOR_I8_ROWS) {
        output->scale_bytes = from->shape[0] * sizeof(float);
        output->alignment = sizeof(float); /* the scales come first */
    }
}

/* Descending alignment keeps every tensor aligned; then by name, so that equal input gives equal
 * files. */
static int compare_outputs(const void *a, const void *b)
{
    const struct output_tensor *x = a, *y = b;

    if (x->file != y->file)
        return x->file < y->file ? -1 : 1;
    if (x->alignment != y->alignment)
        return x->alignment > y->alignment ? -1 : 1;
    return strcmp(x->from->name, y->from->name);
}

/* Distribute the outputs over files in the order of names. */
static gpuserve_status assign_files(struct checkpoint_writer *w)
{
    uint64_t used = 0;

    for (size_t i = 0; i < w->n; i++) {
        struct output_tensor *output = &w->outputs[i];
        const uint64_t bytes = output->bytes + output->scale_bytes;

        if (used > 0 && used + bytes > w->options->max_file_bytes) {
            w->n_files++;
            used = 0;
        }
        output->file = w->n_files;
        used += bytes;
    }
    if (++w->n_files > GSV_MAX_WEIGHT_FILES)
        return gsv_fail(w->error, GPUSERVE_E_TOO_LARGE,
                        "the weights need %zu files, the limit is %d", w->n_files,
                        GSV_MAX_WEIGHT_FILES);
    qsort(w->outputs, w->n, sizeof(*w->outputs), compare_outputs);
    return GPUSERVE_OK;
}

static const char *base_name(const struct checkpoint_writer *w)
{
    return w->options->type == GSV_TENSOR_I8_ROWS ? GSV_INT8_FILE : "model";
}

static void file_name(const struct checkpoint_writer *w, size_t file, char name[FILE_NAME_BYTES])
{
    if (w->n_files == 1)
        snprintf(name, FILE_NAME_BYTES, "%s.safetensors", base_name(w));
    else
        snprintf(name, FILE_NAME_BYTES, "%s-%05zu-of-%05zu.safetensors", base_name(w), file + 1,
                 w->n_files);
}

/* --------------------------------------------------------------------------------------- header */

static const char *type_name(const struct output_tensor *output)
{
    switch (output->type) {
    case GSV_TENSOR_F32:
        return "F32";
    case GSV_TENSOR_F16:
        return "F16";
    case GSV_TENSOR_BF16:
        return "BF16";
    case GSV_TENSOR_I8_ROWS:
        return "I8";
    default:
        return output->from->type_name;
    }
}

static json_t *entry(const char *type, const uint64_t *shape, uint64_t rank, uint64_t begin,
                     uint64_t bytes)
{
    json_t *dimensions = json_array();
    bool is_complete = true;

    for (uint64_t i = 0; i < rank; i++)
        is_complete &= json_array_append_new(dimensions, json_integer((json_int_t)shape[i])) == 0;
    if (!is_complete) {
        json_decref(dimensions);
        return NULL;
    }
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", type, "shape", dimensions, "data_offsets",
                     (json_int_t)begin, (json_int_t)(begin + bytes));
}

/* Add a tensor and, before it, its scales. False if out of memory. */
static bool add_entry(json_t *header, struct output_tensor *output, uint64_t *used)
{
    const struct gsv_tensor *from = output->from;

    if (output->scale_bytes > 0) {
        char name[GSV_INT8_NAME_BYTES];

        snprintf(name, sizeof(name), "%s" GSV_SCALE_SUFFIX, from->name);
        output->scales_at = *used;
        if (json_object_set_new(header, name,
                                entry("F32", from->shape, 1, *used, output->scale_bytes)))
            return false;
        *used += output->scale_bytes;
    }
    output->at = *used;
    *used += output->bytes;
    return json_object_set_new(
               header, from->name,
               entry(type_name(output), from->shape, from->rank, output->at, output->bytes)) == 0;
}

/* Write the length and the header of a file, padded so that the tensors are aligned. */
static gpuserve_status put_header(const struct checkpoint_writer *w, int fd, const char *name,
                                  json_t *header, uint64_t *begin)
{
    char *text = gsv_json_dump(header, JSON_COMPACT | JSON_ENSURE_ASCII);
    const size_t length = text ? strlen(text) : 0, padded = gsv_round_up(length, LENGTH_BYTES);
    unsigned char start[LENGTH_BYTES];
    gpuserve_status st;

    if (!text)
        return gsv_fail(w->error, GPUSERVE_E_NOMEM, "%s: out of memory for the header", name);
    for (int i = 0; i < LENGTH_BYTES; i++)
        start[i] = (unsigned char)((uint64_t)padded >> (8 * i));
    st = gsv_fd_write(fd, start, sizeof(start), 0, name, w->error);
    if (st == GPUSERVE_OK)
        st = gsv_fd_write(fd, text, length, LENGTH_BYTES, name, w->error);
    if (st == GPUSERVE_OK)
        st = gsv_fd_write(fd, "        ", padded - length, LENGTH_BYTES + length, name, w->error);
    free(text);
    *begin = LENGTH_BYTES + padded;
    return st;
}

static gpuserve_status write_header(const struct checkpoint_writer *w, int fd, const char *name,
                                    struct output_tensor *outputs, size_t n, uint64_t *begin)
{
    const char *const format = w->options->type == GSV_TENSOR_I8_ROWS ? GSV_INT8_FORMAT : "pt";
    json_t *header = json_pack("{s:{s:s}}", GSV_METADATA_KEY, "format", format);
    uint64_t used = 0;
    bool is_complete = header != NULL;
    gpuserve_status st;

    for (size_t i = 0; i < n && is_complete; i++)
        is_complete = add_entry(header, &outputs[i], &used);
    st = is_complete
             ? put_header(w, fd, name, header, begin)
             : gsv_fail(w->error, GPUSERVE_E_NOMEM, "%s: out of memory for the header", name);
    json_decref(header);
    return st;
}

/* -------------------------------------------------------------------------------------- tensors */

static gpuserve_status tell(const struct checkpoint_writer *w, uint64_t bytes)
{
    if (!w->options->progress || w->options->progress(w->options->progress_user, bytes) == 0)
        return GPUSERVE_OK;
    return gsv_fail(w->error, GPUSERVE_E_CANCELLED,
                    "the progress callback cancelled the conversion");
}

static gpuserve_status fail_value(const struct checkpoint_writer *w,
                                  const struct output_tensor *output, uint64_t at, float value)
{
    const struct gsv_tensor *from = output->from;
    gpuserve_status st;

    if (!(value - value == 0.0f)) {
        st = gsv_fail(w->error, GPUSERVE_E_FORMAT, "%s: tensor '%s': element %" PRIu64 " is %s",
                      gsv_weight_file_name(from->file), from->name, at,
                      value != value ? "not a number (NaN)" : "infinite");
        return gsv_hint(w->error, st, "the weights are damaged: download them again");
    }
    st = gsv_fail(w->error, GPUSERVE_E_FORMAT,
                  "%s: tensor '%s': element %" PRIu64 " is %g, the largest %s is %g",
                  gsv_weight_file_name(from->file), from->name, at, (double)value,
                  output->type == GSV_TENSOR_F16 ? "float16" : "bfloat16",
                  (double)(output->type == GSV_TENSOR_F16 ? GSV_F16_MAX : GSV_BF16_MAX));
    return gsv_hint(w->error, st, "convert to %s instead",
                    output->type == GSV_TENSOR_F16 ? "bfloat16" : "float32");
}

static gpuserve_status check_values(const struct checkpoint_writer *w,
                                    const struct output_tensor *output, uint64_t first, size_t n)
{
    size_t good = gsv_floats_finite(w->floats, n);

    if (good == n && output->type == GSV_TENSOR_F16)
        good = gsv_floats_above(w->floats, n, GSV_F16_MAX);
    else if (good == n && output->type == GSV_TENSOR_BF16)
        good = gsv_floats_above(w->floats, n, GSV_BF16_MAX);
    return good == n ? GPUSERVE_OK : fail_value(w, output, first + good, w->floats[good]);
}

/* Convert w->floats to the bytes to write: w->made, or the floats themselves. */
static const void *convert(const struct checkpoint_writer *w, const struct output_tensor *output,
                           size_t n)
{
    if (output->type == GSV_TENSOR_F16)
        gsv_floats_to_f16(w->made, w->floats, n);
    else if (output->type == GSV_TENSOR_BF16)
        gsv_floats_to_bf16(w->made, w->floats, n);
    else
        return w->floats;
    return w->made;
}

/* Write the rows of w->floats as codes and scales. */
static gpuserve_status write_rows(const struct checkpoint_writer *w, int fd, const char *name,
                                  const struct output_tensor *output, uint64_t begin,
                                  uint64_t first, size_t n)
{
    const size_t columns = (size_t)output->from->shape[1], rows = n / columns;
    float *const scales = (float *)(void *)w->raw; /* the file's bytes are not needed any more */
    gpuserve_status st;

    gsv_floats_to_rows((signed char *)w->made, scales, w->floats, rows, columns);
    st = gsv_fd_write(fd, w->made, n, begin + output->at + first, name, w->error);
    return st == GPUSERVE_OK
               ? gsv_fd_write(fd, scales, rows * sizeof(float),
                              begin + output->scales_at + first / columns * sizeof(float), name,
                              w->error)
               : st;
}

/* Read n elements to w->floats, and check them. */
static gpuserve_status read_chunk(const struct checkpoint_writer *w,
                                  const struct output_tensor *output, uint64_t first, size_t n)
{
    const gpuserve_status st = gsv_tensor_fetch(output->from, first, n, w->raw, w->error);

    if (st != GPUSERVE_OK)
        return st;
    gsv_tensor_floats(output->from, first, n, w->raw, w->floats);
    return check_values(w, output, first, n);
}

static gpuserve_status write_chunk(const struct checkpoint_writer *w, int fd, const char *name,
                                   const struct output_tensor *output, uint64_t begin,
                                   uint64_t first, size_t n)
{
    const struct gsv_tensor *from = output->from;
    const size_t element = (size_t)gsv_tensor_bytes(output->type, 1);
    gpuserve_status st = read_chunk(w, output, first, n);

    if (st != GPUSERVE_OK)
        return st;
    if (output->is_pruned)
        gsv_prune_values(w->options->pruning, w->floats, n);
    if (st == GPUSERVE_OK && output->type == GSV_TENSOR_I8_ROWS)
        st = write_rows(w, fd, name, output, begin, first, n);
    else if (st == GPUSERVE_OK)
        st = gsv_fd_write(fd, convert(w, output, n), n * element,
                          begin + output->at + first * element, name, w->error);
    return st == GPUSERVE_OK ? tell(w, gsv_tensor_bytes(from->type, n)) : st;
}

/* Copy the bytes of a tensor that is no weight, such as position ids. */
static gpuserve_status copy_tensor(const struct checkpoint_writer *w, int fd, const char *name,
                                   const struct output_tensor *output, uint64_t begin)
{
    const struct gsv_tensor *from = output->from;
    gpuserve_status st = GPUSERVE_OK;

    for (uint64_t at = 0; at < output->bytes && st == GPUSERVE_OK;) {
        const uint64_t left = output->bytes - at;
        const size_t size = left < CHUNK_ELEMENTS ? (size_t)left : CHUNK_ELEMENTS;

        st = gsv_fd_read(gsv_weight_file_fd(from->file), w->raw, size, from->offset + at,
                         gsv_weight_file_name(from->file), w->error);
        if (st == GPUSERVE_OK)
            st = gsv_fd_write(fd, w->raw, size, begin + output->at + at, name, w->error);
        if (st == GPUSERVE_OK)
            st = tell(w, size);
        at += size;
    }
    return st;
}

struct prune_source {
    const struct checkpoint_writer *w;
    const struct output_tensor *output;
    size_t chunk;
};

static gpuserve_status read_for_pruning(void *user, uint64_t first, const float **values, size_t *n)
{
    const struct prune_source *source = user;
    const uint64_t left = source->output->from->count - first;

    *n = left < source->chunk ? (size_t)left : source->chunk;
    *values = source->w->floats;
    return read_chunk(source->w, source->output, first, *n);
}

static gpuserve_status write_tensor(const struct checkpoint_writer *w, int fd, const char *name,
                                    const struct output_tensor *output, uint64_t begin)
{
    const struct gsv_tensor *from = output->from;
    size_t chunk = CHUNK_ELEMENTS;
    gpuserve_status st = GPUSERVE_OK;

    if (output->type == GSV_TENSOR_OTHER)
        return copy_tensor(w, fd, name, output, begin);
    if (output->type == GSV_TENSOR_I8_ROWS)
        chunk -= chunk % (size_t)from->shape[1];
    if (output->is_pruned)
        st = gsv_prune_begin(w->options->pruning, from, read_for_pruning,
                             &(struct prune_source){ w, output, chunk });
    for (uint64_t first = 0; first < from->count && st == GPUSERVE_OK; first += chunk) {
        const uint64_t left = from->count - first;

        st = write_chunk(w, fd, name, output, begin, first, left < chunk ? (size_t)left : chunk);
    }
    return st;
}

static gpuserve_status write_file(const struct checkpoint_writer *w, struct output_tensor *outputs,
                                  size_t n)
{
    char name[FILE_NAME_BYTES], path[GSV_FILE_NAME_BYTES + FILE_NAME_BYTES];
    uint64_t begin = 0;
    int fd;
    gpuserve_status st;

    file_name(w, outputs[0].file, name);
    snprintf(path, sizeof(path), "%.*s/%s", GSV_FILE_NAME_BYTES - 2, w->shown, name);
    st = gsv_create_file(&fd, w->to, name, w->shown, w->error);
    if (st == GPUSERVE_OK)
        st = write_header(w, fd, path, outputs, n, &begin);
    for (size_t i = 0; i < n && st == GPUSERVE_OK; i++)
        st = write_tensor(w, fd, path, &outputs[i], begin);
    return gsv_finish_file(fd, st, w->shown, name, w->error);
}

/* The index of a sharded checkpoint, as transformers writes it. */
static gpuserve_status write_index(const struct checkpoint_writer *w, uint64_t total)
{
    char index_name[FILE_NAME_BYTES];
    json_t *map = json_object(), *index = NULL;
    bool is_complete = map != NULL;
    char *text = NULL;
    int fd;
    gpuserve_status st;

    for (size_t i = 0; i < w->n; i++) {
        const struct output_tensor *output = &w->outputs[i];
        char name[FILE_NAME_BYTES], scales[GSV_INT8_NAME_BYTES];

        file_name(w, output->file, name);
        is_complete &= json_object_set_new(map, output->from->name, json_string(name)) == 0;
        if (output->scale_bytes == 0)
            continue;
        snprintf(scales, sizeof(scales), "%s" GSV_SCALE_SUFFIX, output->from->name);
        is_complete &= json_object_set_new(map, scales, json_string(name)) == 0;
    }
    index =
        json_pack("{s:{s:I}, s:o}", "metadata", "total_size", (json_int_t)total, "weight_map", map);
    text = index && is_complete ? gsv_json_dump(index, JSON_INDENT(2) | JSON_SORT_KEYS) : NULL;
    json_decref(index);
    if (!text)
        return gsv_fail(w->error, GPUSERVE_E_NOMEM, "%s: out of memory for the index", w->shown);
    snprintf(index_name, sizeof(index_name), "%s.safetensors.index.json", base_name(w));
    st = gsv_create_file(&fd, w->to, index_name, w->shown, w->error);
    if (st == GPUSERVE_OK)
        st = gsv_fd_write(fd, text, strlen(text), 0, index_name, w->error);
    free(text);
    return gsv_finish_file(fd, st, w->shown, index_name, w->error);
}

/* ----------------------------------------------------------------------------------- checkpoint */

static gpuserve_status write_files(struct checkpoint_writer *w, struct gsv_write_facts *facts)
{
    uint64_t total = 0;
    gpuserve_status st = assign_files(w);

    for (size_t i = 0, end; i < w->n && st == GPUSERVE_OK; i = end) {
        for (end = i; end < w->n && w->outputs[end].file == w->outputs[i].file; end++)
            total += w->outputs[end].bytes + w->outputs[end].scale_bytes;
        st = write_file(w, &w->outputs[i], end - i);
    }
    if (st == GPUSERVE_OK && w->n_files > 1)
        st = write_index(w, total);
    for (size_t i = 0; i < w->n; i++) {
        const struct gsv_tensor *from = w->outputs[i].from;

        facts->n_quantized += w->outputs[i].scale_bytes > 0;
        facts->bytes_before += from->type == GSV_TENSOR_I8_ROWS
                                   ? from->size_bytes + from->shape[0] * sizeof(float)
                                   : from->size_bytes;
    }
    facts->n_tensors += w->n;
    facts->bytes_after += total;
    return st;
}

/* Tensors of a PyTorch file may share bytes, as tied weights do. Their copies must not fill a disk,
 * so their sum has a limit. */
static gpuserve_status check_total(const struct checkpoint_writer *w,
                                   const struct gsv_checkpoint *from,
                                   const struct gsv_tensor *tensors, size_t n)
{
    uint64_t left = 0;

    for (size_t i = 0; i < from->n_files; i++)
        if (__builtin_add_overflow(left, from->files[i]->size_bytes, &left))
            left = UINT64_MAX;
    if (__builtin_mul_overflow(left, (uint64_t)MAX_SHARING, &left))
        left = UINT64_MAX;
    for (size_t i = 0; i < n; i++) {
        if (tensors[i].size_bytes > left)
            return gsv_fail(w->error, GPUSERVE_E_TOO_LARGE,
                            "%s: the tensors have more than %d times the bytes of their files",
                            gsv_weight_file_name(tensors[i].file), MAX_SHARING);
        left -= tensors[i].size_bytes;
    }
    return GPUSERVE_OK;
}

/* Allocate, and plan the output of every tensor. */
static gpuserve_status alloc_writer(struct checkpoint_writer *w, const struct gsv_tensor *tensors,
                                    size_t n)
{
    w->outputs = gsv_alloc_array(n, sizeof(*w->outputs));
    w->raw = gsv_alloc_mapped(CHUNK_ELEMENTS * GSV_MAX_RAW_BYTES);
    w->made = gsv_alloc_mapped(CHUNK_ELEMENTS * sizeof(float));
    w->floats = gsv_alloc_mapped(CHUNK_ELEMENTS * sizeof(float));
    if (!w->outputs || !w->raw || !w->made || !w->floats)
        return gsv_fail(w->error, GPUSERVE_E_NOMEM, "%s: out of memory for writing the weights",
                        w->shown);
    w->n = n;
    for (size_t i = 0; i < n; i++) {
        const gpuserve_status st = check_input(&tensors[i], w->error);

        if (st != GPUSERVE_OK)
            return st;
        plan_output(&w->outputs[i], &tensors[i], w->options->type, w->options->pruning);
    }
    return GPUSERVE_OK;
}

gpuserve_status gsv_checkpoint_write(const struct gsv_checkpoint *from, int to, const char *shown,
                                     const struct gsv_write_options *options,
                                     struct gsv_write_facts *facts, gpuserve_error *error)
{
    struct checkpoint_writer w = { .options = options, .to = to, .shown = shown, .error = error };
    struct gsv_tensor *tensors;
    size_t n;
    gpuserve_status st = gsv_checkpoint_list(from, &tensors, &n, error);

    if (st != GPUSERVE_OK)
        return st;
    st = check_total(&w, from, tensors, n);
    if (st == GPUSERVE_OK)
        st = alloc_writer(&w, tensors, n);
    if (st == GPUSERVE_OK)
        st = write_files(&w, facts);
    free(w.outputs);
    gsv_free_mapped(w.raw);
    gsv_free_mapped(w.made);
    gsv_free_mapped(w.floats);
    free(tensors);
    return st;
}

gpuserve_status gsv_checkpoint_bytes(const struct gsv_checkpoint *from, uint64_t *bytes,
                                     gpuserve_error *error)
{
    struct gsv_tensor *tensors;
    size_t n;
    const gpuserve_status st = gsv_checkpoint_list(from, &tensors, &n, error);

    *bytes = 0;
    for (size_t i = 0; i < n; i++)
        *bytes += tensors[i].size_bytes;
    free(tensors);
    return st;
}
