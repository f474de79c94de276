/*
 * lora.c - reads a LoRA adapter in PEFT's format and merges it into the tensors of its base.
 *
 *   adapter tensors -> module and kind -> tensor of the base with that name -> merged tensors
 *
 * A merged tensor has no values in a file: gsv_tensor_fetch() reads those of the base and adds the
 * product of the two factors, float32. The factors are in memory: rank (rows + columns) floats.
 * DoRA also divides by the lengths of the sums, for which the tensors of the base are read once
 * when the adapter is opened.
 */
#include "lib/model/formats/lora.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/model/formats/formats.h"
#include "lib/model/formats/torch/torch_file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PREFIX "base_model.model."
#define NAME_BYTES 256
#define MAX_RANK 4096
#define MAX_TENSORS 100000

/* A tensor under its name in the base. */
struct merged {
    struct gsv_tensor tensor; /* as the model sees it */
    struct gsv_tensor base;
    size_t rank;       /* 0: the tensor replaces that of the base */
    float *left;       /* [rows, rank] times the scale, owned */
    float *right;      /* [rank, columns], owned */
    float *magnitudes; /* [n_magnitudes] of DoRA, owned; finish() divides them by the lengths */
    size_t n_magnitudes;
    float scale;
    bool has_left, has_right;
    bool is_table;      /* an embedding table: the magnitudes are of columns, else of rows */
    const char *factor; /* name of the tensor of a factor, which has the module's name */
};

struct lora_file {
    struct gsv_weight_file file; /* first */
    struct gsv_weight_file *adapter;
    struct merged *merged; /* [n] */
    size_t n, capacity;
    uint64_t size_bytes; /* of all merged tensors: their offsets */
};

static struct lora_file *as_lora(const struct gsv_weight_file *file)
{
    return (struct lora_file *)(uintptr_t)file; /* its first field */
}

/* ---------------------------------------------------------------------------------------- names */

enum lora_part { PART_TENSOR, PART_A, PART_B, PART_TABLE_A, PART_TABLE_B, PART_MAGNITUDES };

/* Split the name of an adapter's tensor: `name` receives that of the tensor in the base. */
static bool split_name(const char *full, char name[NAME_BYTES], enum lora_part *part)
{
    static const struct {
        const char *end;
        enum lora_part part;
    } ends[] = { { ".lora_A.weight", PART_A },
                 { ".lora_B.weight", PART_B },
                 { ".lora_embedding_A", PART_TABLE_A },
                 { ".lora_embedding_B", PART_TABLE_B },
                 { ".lora_magnitude_vector", PART_MAGNITUDES } };
    const char *module = full + strlen(PREFIX), *layer;
    size_t n = strlen(full);

    if (strncmp(full, PREFIX, strlen(PREFIX)) != 0 || n >= NAME_BYTES)
        return false;
    n -= strlen(PREFIX);
    *part = PART_TENSOR;
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        const size_t m = strlen(ends[i].end);

        if (n <= m || strcmp(module + n - m, ends[i].end) != 0)
            continue;
        *part = ends[i].part;
        snprintf(name, NAME_BYTES, "%.*s.weight", (int)(n - m), module);
        return true;
    }
    layer = strstr(module, ".base_layer."); /* the whole tensor of a module that is also targeted */
    if (layer)
        snprintf(name, NAME_BYTES, "%.*s%s", (int)(layer - module), module,
                 layer + strlen(".base_layer"));
    else
        snprintf(name, NAME_BYTES, "%s", module);
    return strstr(name, ".lora_") == NULL;
}

/* True if `longer` is `name` behind one component: "bert.encoder.x" and "encoder.x". */
static bool is_below(const char *longer, const char *name)
{
    const char *dot = strchr(longer, '.');

    return dot && strcmp(dot + 1, name) == 0;
}

/* Find the tensor of the base. The class that the adapter was trained in and the class that the
 * base was saved from may differ by the first component of all names. */
static bool find_base(const struct gsv_checkpoint *base, const char *name,
                      struct gsv_tensor *tensor)
{
    if (gsv_checkpoint_find(base, name, tensor))
        return true;
    if (strchr(name, '.') && strchr(strchr(name, '.') + 1, '.') &&
        gsv_checkpoint_find(base, strchr(name, '.') + 1, tensor))
        return true;
    for (size_t f = 0; f < base->n_files; f++)
        for (size_t i = 0; gsv_weight_file_at(base->files[f], i, tensor); i++)
            if (strchr(name, '.') && strchr(strchr(name, '.') + 1, '.') &&
                is_below(tensor->name, name))
                return true;
    return false;
}

/* ------------------------------------------------------------------------------------- factors */

static gpuserve_status fail_shape(const struct gsv_tensor *tensor, const struct gsv_tensor *base,
                                  gpuserve_error *error)
{
    return gsv_fail(error, GPUSERVE_E_FORMAT,
                    "%s: tensor '%s' is [%llu, %llu] of rank %llu and does not fit '%s' of the "
                    "base, [%llu, %llu] of rank %llu",
                    gsv_weight_file_name(tensor->file), tensor->name,
                    (unsigned long long)tensor->shape[0], (unsigned long long)tensor->shape[1],
                    (unsigned long long)tensor->rank, base->name,
                    (unsigned long long)base->shape[0], (unsigned long long)base->shape[1],
                    (unsigned long long)base->rank);
}

/* Read a matrix as float32, owned; transposed if `turned`. */
static gpuserve_status read_matrix(float **out, const struct gsv_tensor *tensor, bool turned,
                                   gpuserve_error *error)
{
    const size_t n = (size_t)tensor->shape[0], k = (size_t)tensor->shape[1];
    void *raw = malloc(gsv_tensor_raw_bytes(tensor, 0, n * k) + 1);
    float *values = gsv_alloc_array(n * k, sizeof(*values));
    float *result = turned ? gsv_alloc_array(n * k, sizeof(*result)) : values;
    gpuserve_status st = raw && values && result
                             ? gsv_tensor_fetch(tensor, 0, n * k, raw, error)
                             : gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory", tensor->name);

    if (st == GPUSERVE_OK)
        gsv_tensor_floats(tensor, 0, n * k, raw, values);
    if (st == GPUSERVE_OK && gsv_floats_finite(values, n * k) < n * k)
        st = gsv_fail(error, GPUSERVE_E_FORMAT, "%s: tensor '%s' has NaN or infinity",
                      gsv_weight_file_name(tensor->file), tensor->name);
    for (size_t i = 0; turned && st == GPUSERVE_OK && i < n * k; i++)
        result[i % k * n + i / k] = values[i];
    free(raw);
    if (result != values)
        free(values);
    if (st != GPUSERVE_OK)
        free(result);
    *out = st == GPUSERVE_OK ? result : NULL;
    return st;
}

/* Check that the tensor has numbers in row order. */
static gpuserve_status check_numbers(const struct gsv_tensor *tensor, gpuserve_error *error)
{
    if (tensor->type == GSV_TENSOR_OTHER || tensor->type == GSV_TENSOR_I8_ROWS)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED, "%s: tensor '%s' is %s",
                        gsv_weight_file_name(tensor->file), tensor->name, tensor->type_name);
    return gsv_tensor_check_order(tensor, error);
}

/* Their number is checked when both factors are known. */
static gpuserve_status add_magnitudes(struct merged *m, const struct gsv_tensor *tensor,
                                      gpuserve_error *error)
{
    struct gsv_tensor row = *tensor;
    gpuserve_status st = check_numbers(tensor, error);

    if (st != GPUSERVE_OK)
        return st;
    if (m->base.rank != 2 || tensor->rank != 1 || tensor->count == 0 || m->magnitudes ||
        tensor->count > m->base.shape[0] + m->base.shape[1])
        return fail_shape(tensor, &m->base, error);
    row.rank = 2;
    row.shape[0] = 1;
    row.shape[1] = tensor->count;
    m->n_magnitudes = (size_t)tensor->count;
    return read_matrix(&m->magnitudes, &row, false, error);
}

/* Add a factor to a merged tensor. A: [rank, columns] and B: [rows, rank]; of a table
 * A: [rank, rows] and B: [columns, rank]. */
static gpuserve_status add_factor(struct merged *m, const struct gsv_tensor *tensor,
                                  enum lora_part part, gpuserve_error *error)
{
    const bool is_a = part == PART_A || part == PART_TABLE_A;
    const bool is_left = part == PART_B || part == PART_TABLE_A;
    const uint64_t rank = tensor->rank == 2 ? tensor->shape[is_a ? 0 : 1] : 0;
    const uint64_t other = tensor->rank == 2 ? tensor->shape[is_a ? 1 : 0] : 0;
    bool *has = is_left ? &m->has_left : &m->has_right;
    const gpuserve_status st = check_numbers(tensor, error);

    if (st != GPUSERVE_OK)
        return st;
    if (m->base.rank != 2 || rank == 0 || rank > MAX_RANK || (m->rank > 0 && m->rank != rank) ||
        other != m->base.shape[is_left ? 0 : 1] || *has)
        return fail_shape(tensor, &m->base, error);
    *has = true;
    m->is_table = part == PART_TABLE_A || part == PART_TABLE_B;
    m->factor = tensor->name;
    m->rank = (size_t)rank;
    return read_matrix(is_left ? &m->left : &m->right, tensor, m->is_table, error);
}

/* ------------------------------------------------------------------------------------- merging */

/* Add the product of the factors to the elements [first, first + n). */
static void add_product(const struct merged *m, uint64_t first, size_t n, float *to)
{
    const size_t columns = (size_t)m->base.shape[1];

    for (size_t i = 0; i < n;) {
        const size_t row = (size_t)((first + i) / columns),
                     column = (size_t)((first + i) % columns);
        const size_t width = columns - column < n - i ? columns - column : n - i;

        for (size_t r = 0; r < m->rank; r++) {
            const float factor = m->left[row * m->rank + r];
            const float *right = m->right + r * columns + column;

            for (size_t j = 0; j < width; j++)
                to[i + j] += factor * right[j];
        }
        i += width;
    }
}

/* Multiply the elements [first, first + n) of the sum by the factor of their row or column. */
static void scale_sum(const struct merged *m, uint64_t first, size_t n, float *to)
{
    const size_t columns = (size_t)m->base.shape[1];

    for (size_t i = 0; i < n; i++) {
        const uint64_t at = first + i;

        to[i] *= m->magnitudes[m->is_table ? at % columns : at / columns];
    }
}

/* Divide the magnitudes by the lengths of the rows, or of the columns, of the sum. */
static gpuserve_status divide_magnitudes(struct merged *m, const char *shown, gpuserve_error *error)
{
    const size_t columns = (size_t)m->base.shape[1];
    const size_t expected = (size_t)m->base.shape[m->is_table ? 1 : 0];
    double *squares = gsv_alloc_array(m->n_magnitudes, sizeof(*squares));
    float *row = gsv_alloc_array(columns, sizeof(*row));
    void *raw = malloc(gsv_tensor_raw_bytes(&m->base, 0, columns) + 1);
    gpuserve_status st = GPUSERVE_OK;

    if (m->n_magnitudes != expected)
        st = gsv_fail(error, GPUSERVE_E_FORMAT, "%s: %zu magnitudes of '%s', expected %zu", shown,
                      m->n_magnitudes, m->base.name, expected);
    else if (!squares || !row || !raw)
        st = gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory", m->base.name);
    for (uint64_t i = 0; i < m->base.shape[0] && st == GPUSERVE_OK; i++) {
        st = gsv_tensor_fetch(&m->base, i * columns, columns, raw, error);
        if (st != GPUSERVE_OK)
            break;
        gsv_tensor_floats(&m->base, i * columns, columns, raw, row);
        add_product(m, i * columns, columns, row);
        for (size_t j = 0; j < columns; j++)
            squares[m->is_table ? j : i] += (double)row[j] * (double)row[j];
    }
    for (size_t i = 0; i < expected && st == GPUSERVE_OK; i++) {
        if (!(squares[i] > 0))
            st = gsv_fail(error, GPUSERVE_E_FORMAT,
                          "%s: %s %zu of '%s' has length %g, which DoRA divides by",
                          gsv_weight_file_name(m->base.file), m->is_table ? "column" : "row", i,
                          m->base.name, sqrt(squares[i]));
        m->magnitudes[i] = (float)(m->magnitudes[i] / sqrt(squares[i]));
    }
    free(squares);
    free(row);
    free(raw);
    return st;
}

static const struct merged *find_offset(const struct lora_file *lora, uint64_t offset)
{
    for (size_t i = 0; i < lora->n; i++) {
        const struct merged *m = &lora->merged[i];

        if (m->rank > 0 && offset >= m->tensor.offset &&
            offset - m->tensor.offset < m->tensor.size_bytes)
            return m;
    }
    return NULL;
}

/* The offset of a tensor of some rows of another one lies within the other one. */
static gpuserve_status fetch(const struct gsv_tensor *tensor, uint64_t first, size_t n, void *raw,
                             gpuserve_error *error)
{
    const struct merged *m = find_offset(as_lora(tensor->file), tensor->offset);
    const uint64_t begin = m ? (tensor->offset - m->tensor.offset) / sizeof(float) + first : 0;
    gpuserve_status st;
    void *bytes;

    if (!m)
        return gsv_fail(error, GPUSERVE_E_INTERNAL, "%s: no merged tensor", tensor->name);
    bytes = malloc(gsv_tensor_raw_bytes(&m->base, begin, n) + 1);
    if (!bytes)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory", tensor->name);
    st = gsv_tensor_fetch(&m->base, begin, n, bytes, error);
    if (st == GPUSERVE_OK) {
        gsv_tensor_floats(&m->base, begin, n, bytes, raw);
        add_product(m, begin, n, raw);
        if (m->magnitudes)
            scale_sum(m, begin, n, raw);
    }
    free(bytes);
    return st;
}

static bool find_tensor(const struct gsv_weight_file *file, const char *name,
                        struct gsv_tensor *tensor)
{
    const struct lora_file *lora = as_lora(file);

    for (size_t i = 0; i < lora->n; i++) {
        if (strcmp(lora->merged[i].tensor.name, name) == 0) {
            *tensor = lora->merged[i].tensor;
            return true;
        }
    }
    return false;
}

static bool tensor_at(const struct gsv_weight_file *file, size_t i, struct gsv_tensor *tensor)
{
    const struct lora_file *lora = as_lora(file);

    if (i >= lora->n)
        return false;
    *tensor = lora->merged[i].tensor;
    return true;
}

static void close_file(struct gsv_weight_file *file)
{
    struct lora_file *lora = as_lora(file);

    for (size_t i = 0; i < lora->n; i++) {
        free(lora->merged[i].left);
        free(lora->merged[i].right);
        free(lora->merged[i].magnitudes);
    }
    free(lora->merged);
    gsv_weight_file_close(&lora->adapter);
}

static const struct gsv_weight_format lora_format = { "LoRA", find_tensor, tensor_at, close_file,
                                                      fetch };

/* -------------------------------------------------------------------------------------- opening */

/* The entry of a tensor of the base, added if there is none. NULL: out of memory. */
static struct merged *entry_of(struct lora_file *lora, const struct gsv_tensor *base)
{
    struct merged *m;

    for (size_t i = 0; i < lora->n; i++)
        if (lora->merged[i].base.name == base->name)
            return &lora->merged[i];
    if (!gsv_grow((void **)&lora->merged, &lora->capacity, lora->n + 1, sizeof(*m), MAX_TENSORS))
        return NULL;
    m = &lora->merged[lora->n++];
    *m = (struct merged){ .tensor = *base, .base = *base };
    return m;
}

/* A whole tensor replaces that of the base, or is one that the base lacks. */
static gpuserve_status add_whole(struct lora_file *lora, const struct gsv_tensor *tensor,
                                 const struct gsv_tensor *base, bool is_found,
                                 gpuserve_error *error)
{
    struct merged *m = entry_of(lora, is_found ? base : tensor);

    if (!m)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for the tensors of an adapter");
    m->tensor = *tensor;
    m->tensor.name = is_found ? base->name : tensor->name + strlen(PREFIX);
    m->base = m->tensor;
    return GPUSERVE_OK;
}

static gpuserve_status add_tensor(struct lora_file *lora, const struct gsv_checkpoint *from,
                                  const struct gsv_tensor *tensor, enum lora_part part,
                                  const char *name, gpuserve_error *error)
{
    struct gsv_tensor base;
    const bool is_found = find_base(from, name, &base);
    struct merged *m;

    if (part == PART_TENSOR)
        return add_whole(lora, tensor, &base, is_found, error);
    if (!is_found && strstr(name, "pooler."))
        return GPUSERVE_OK; /* a base without a pooler: transformers starts one at random */
    if (!is_found || base.type == GSV_TENSOR_OTHER)
        return gsv_fail(error, GPUSERVE_E_FORMAT,
                        "%s: tensor '%s' belongs to '%s', which the base model does not have",
                        gsv_weight_file_name(tensor->file), tensor->name, name);
    m = entry_of(lora, &base);
    if (!m)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for the tensors of an adapter");
    return part == PART_MAGNITUDES ? add_magnitudes(m, tensor, error)
                                   : add_factor(m, tensor, part, error);
}

static gpuserve_status add_tensors(struct lora_file *lora, const struct gsv_checkpoint *base,
                                   const struct gsv_lora_settings *settings, gpuserve_error *error)
{
    gpuserve_status st = GPUSERVE_OK;
    struct gsv_tensor tensor;

    /* Whole tensors first: they may be targeted, too. */
    for (int pass = 0; pass < 2 && st == GPUSERVE_OK; pass++) {
        for (size_t i = 0; st == GPUSERVE_OK && gsv_weight_file_at(lora->adapter, i, &tensor);
             i++) {
            char name[NAME_BYTES];
            enum lora_part part;

            if (!split_name(tensor.name, name, &part) ||
                (part == PART_MAGNITUDES && !settings->has_magnitudes))
                st = gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                              "%s: tensor '%.128s' is not one of a LoRA adapter",
                              gsv_weight_file_name(lora->adapter), tensor.name);
            else if ((part == PART_TENSOR) == (pass == 0))
                st = add_tensor(lora, base, &tensor, part, name, error);
        }
    }
    return st;
}

/* Check that both factors are there, and give each merged tensor its type, offset and scale. */
static gpuserve_status finish(struct lora_file *lora, const struct gsv_lora_settings *settings,
                              gpuserve_error *error)
{
    gpuserve_status st = GPUSERVE_OK;

    for (size_t i = 0; i < lora->n && st == GPUSERVE_OK; i++) {
        struct merged *m = &lora->merged[i];
        char module[NAME_BYTES];
        enum lora_part part;

        if (m->rank == 0 && !m->magnitudes)
            continue;
        if (!m->has_left || !m->has_right || (settings->has_magnitudes && !m->magnitudes))
            return gsv_fail(error, GPUSERVE_E_FORMAT,
                            "%s: one of the two factors of '%s'%s is missing",
                            gsv_weight_file_name(lora->adapter), m->base.name,
                            settings->has_magnitudes ? ", or their magnitudes," : "");
        split_name(m->factor, module, &part);
        module[strlen(module) - strlen(".weight")] = '\0';
        st = gsv_lora_scale(&m->scale, settings, module, m->rank, error);
        for (size_t j = 0; j < (size_t)m->base.shape[0] * m->rank; j++)
            m->left[j] *= m->scale;
        if (st == GPUSERVE_OK && m->magnitudes)
            st = divide_magnitudes(m, gsv_weight_file_name(lora->adapter), error);
        m->tensor.file = &lora->file;
        m->tensor.type = GSV_TENSOR_F32;
        m->tensor.type_name = "F32";
        m->tensor.rows_offset = m->tensor.scales_offset = 0;
        m->tensor.size_bytes = gsv_tensor_bytes(GSV_TENSOR_F32, m->tensor.count);
        m->tensor.offset = lora->size_bytes;
        lora->size_bytes += m->tensor.size_bytes;
    }
    return st;
}

static gpuserve_status open_adapter(struct gsv_weight_file **file, const struct gsv_dir *dir,
                                    gpuserve_error *error)
{
    if (gsv_dir_has_own(dir, "adapter_model.safetensors"))
        return gsv_safetensors_open(file, dir, "adapter_model.safetensors", error);
    if (gsv_dir_has_own(dir, "adapter_model.bin"))
        return gsv_torch_file_open(file, dir, "adapter_model.bin", error);
    *file = NULL;
    return gsv_fail(error, GPUSERVE_E_NOT_FOUND,
                    "%s/adapter_model.safetensors: no such file, and no adapter_model.bin",
                    gsv_dir_path(dir));
}

gpuserve_status gsv_lora_open(struct gsv_weight_file **file, const struct gsv_dir *dir,
                              const struct gsv_checkpoint *base, gpuserve_error *error)
{
    struct lora_file *lora = gsv_alloc_array(1, sizeof(*lora));
    struct gsv_lora_settings settings = { 0 };
    gpuserve_status st;

    *file = NULL;
    if (!lora)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for an adapter");
    lora->file = (struct gsv_weight_file){ .format = &lora_format, .fd = -1 };
    st = open_adapter(&lora->adapter, dir, error);
    if (st == GPUSERVE_OK) {
        const char *shown = gsv_weight_file_name(lora->adapter);

        lora->file.shown = gsv_copy_text(shown, strlen(shown));
        lora->file.fd = dup(gsv_weight_file_fd(lora->adapter)); /* its state is that of the file */
        if (!lora->file.shown || lora->file.fd < 0)
            st = gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory or descriptors", shown);
    }
    if (st == GPUSERVE_OK)
        st = gsv_lora_settings_read(&settings, dir, error);
    if (st == GPUSERVE_OK)
        st = add_tensors(lora, base, &settings, error);
    if (st == GPUSERVE_OK)
        st = finish(lora, &settings, error);
    gsv_lora_settings_reset(&settings);
    *file = &lora->file;
    if (st != GPUSERVE_OK)
        gsv_weight_file_close(file);
    return st;
}

bool gsv_lora_factors(const struct gsv_weight_file *file, const struct gsv_tensor *tensor,
                      struct gsv_lora_factors *factors)
{
    const struct lora_file *lora = as_lora(file);

    for (size_t i = 0; i < lora->n; i++) {
        const struct merged *m = &lora->merged[i];
        uint64_t row_bytes, row;

        if (m->base.name != tensor->name || m->rank == 0)
            continue;
        row_bytes = gsv_tensor_bytes(m->base.type, m->base.shape[1]);
        row = (tensor->offset - m->base.offset) / row_bytes;
        *factors = (struct gsv_lora_factors){ m->left + row * m->rank, m->right, m->rank };
        return true;
    }
    return false;
}

void gsv_lora_read_facts(const struct gsv_weight_file *file, struct gsv_lora_facts *facts)
{
    const struct lora_file *lora = as_lora(file);

    *facts = (struct gsv_lora_facts){ 0 };
    for (size_t i = 0; i < lora->n; i++) {
        const struct merged *m = &lora->merged[i];
        uint32_t bits;

        memcpy(&bits, &m->scale, sizeof(bits));
        facts->scales = facts->scales * 31 + bits;
        facts->n_whole += m->rank == 0;
        facts->has_magnitudes = facts->has_magnitudes || m->magnitudes;
        if (m->rank > 0)
            facts->bytes += m->rank * sizeof(float) * (m->base.shape[0] + m->base.shape[1]) +
                            m->n_magnitudes * sizeof(float);
    }
}
