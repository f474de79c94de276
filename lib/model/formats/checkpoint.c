/*
 * checkpoint.c - reads JSON files and opens the weight files in one folder of a model directory.
 *
 * The sizes and depths of JSON files and the number of shards are bounded. Safetensors files take
 * precedence over PyTorch files. Git LFS pointers are refused with a hint.
 */
#include "lib/model/formats/checkpoint.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/base/json_tree.h"
#include "lib/model/formats/formats.h"
#include "lib/model/formats/lora.h"
#include "lib/model/formats/torch/torch_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_JSON_BYTES (64u << 20) /* an index of 100,000 tensors has 10 MB */
#define MAX_JSON_VALUES 1000000u
#define MAX_JSON_DEPTH 32

static gpuserve_status fail_name(const struct gsv_dir *dir, const char *name, gpuserve_error *error)
{
    return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: the name '%.64s...' is longer than %d bytes",
                    gsv_dir_path(dir), name, GSV_FILE_NAME_BYTES - 1);
}

static gpuserve_status parse(struct gsv_json_value **json, const char *text, size_t size,
                             enum gsv_json_kind kind, const char *shown, gpuserve_error *error)
{
    static const struct gsv_json_limits limits = { MAX_JSON_VALUES, MAX_JSON_DEPTH };
    gpuserve_status st;

    if (strncmp(text, "version https://git-lfs", 23) == 0) {
        st = gsv_fail(error, GPUSERVE_E_FORMAT,
                      "%s: the file is a Git LFS pointer, not the content", shown);
        return gsv_hint(error, st, "run `git lfs pull` in the model's directory");
    }
    st = gsv_json_read(json, text, size, shown, limits, error);
    if (st != GPUSERVE_OK || (*json)->kind == kind)
        return st;
    gsv_json_free(json);
    *json = NULL;
    return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: the file is not a JSON %s", shown,
                    kind == GSV_JSON_OBJECT ? "object" : "array");
}

static gpuserve_status read_json(struct gsv_json_value **json, const struct gsv_dir *dir,
                                 const char *name, enum gsv_json_kind kind, gpuserve_error *error)
{
    char *text;
    size_t size;
    gpuserve_status st = gsv_dir_read(dir, name, MAX_JSON_BYTES, &text, &size, error);

    *json = NULL;
    if (st != GPUSERVE_OK)
        return st;
    st = parse(json, text, size, kind, name, error);
    free(text);
    return st == GPUSERVE_OK ? st
                             : gsv_fail_in(error, st, "%s", gsv_dir_path(gsv_dir_owner(dir, name)));
}

gpuserve_status gsv_read_json(struct gsv_json_value **json, const struct gsv_dir *dir,
                              const char *folder, const char *name, gpuserve_error *error)
{
    char path[GSV_FILE_NAME_BYTES];

    *json = NULL;
    if (!gsv_join_name(path, folder, name))
        return fail_name(dir, folder, error);
    return read_json(json, dir, path, GSV_JSON_OBJECT, error);
}

gpuserve_status gsv_read_json_array(struct gsv_json_value **json, const struct gsv_dir *dir,
                                    const char *name, gpuserve_error *error)
{
    return read_json(json, dir, name, GSV_JSON_ARRAY, error);
}

gpuserve_status gsv_read_optional_json(struct gsv_json_value **json, const struct gsv_dir *dir,
                                       const char *folder, const char *name, gpuserve_error *error)
{
    *json = NULL;
    return gsv_dir_has_in(dir, folder, name) ? gsv_read_json(json, dir, folder, name, error)
                                             : GPUSERVE_OK;
}

gpuserve_status gsv_read_config(struct gsv_json_value **json, const struct gsv_dir *dir,
                                const char *folder, gpuserve_error *error)
{
    struct gsv_gguf *gguf;
    gpuserve_status st;

    if (!gsv_dir_gguf(dir))
        return gsv_read_json(json, dir, folder, "config.json", error);
    *json = NULL;
    st = gsv_gguf_open(&gguf, dir, error);
    if (st == GPUSERVE_OK)
        st = gsv_gguf_config(json, gguf, error);
    gsv_gguf_close(&gguf);
    return st;
}

/* ----------------------------------------------------------------------------------- checkpoint */

static gpuserve_status open_gguf(struct gsv_checkpoint *checkpoint, const struct gsv_dir *dir,
                                 const char *folder, gpuserve_error *error)
{
    struct gsv_gguf *gguf;
    gpuserve_status st = gsv_gguf_open(&gguf, dir, error);

    while (st == GPUSERVE_OK && checkpoint->n_files <= gguf->n_parts) {
        struct gsv_weight_file **file = &checkpoint->files[checkpoint->n_files];

        st = gsv_gguf_weights(file, gguf, checkpoint->n_files, folder, error);
        checkpoint->n_files += st == GPUSERVE_OK;
    }
    gsv_gguf_close(&gguf);
    return st;
}

static gpuserve_status open_random(struct gsv_checkpoint *checkpoint, const struct gsv_dir *dir,
                                   gpuserve_error *error)
{
    const gpuserve_status st = gsv_random_weights_open(&checkpoint->files[0], dir, error);

    checkpoint->n_files = st == GPUSERVE_OK ? 1 : 0;
    return st;
}

/* The names under which a folder has its weights, in one file or in several. */
struct weight_layout {
    const char *name, *index;
    gpuserve_status (*open)(struct gsv_weight_file **file, const struct gsv_dir *dir,
                            const char *name, gpuserve_error *error);
};

static const struct weight_layout layouts[] = {
    { "model.safetensors", "model.safetensors.index.json", gsv_safetensors_open },
    { "pytorch_model.bin", "pytorch_model.bin.index.json", gsv_torch_file_open },
    { GSV_INT8_FILE ".safetensors", GSV_INT8_FILE ".safetensors.index.json", gsv_safetensors_open },
};

static gpuserve_status add_file(struct gsv_checkpoint *checkpoint, const struct gsv_dir *dir,
                                const char *folder, const struct weight_layout *layout,
                                const char *name, gpuserve_error *error)
{
    char path[GSV_FILE_NAME_BYTES];
    gpuserve_status st;

    if (!gsv_join_name(path, folder, name))
        return fail_name(dir, name, error);
    st = layout->open(&checkpoint->files[checkpoint->n_files], dir, path, error);
    if (st != GPUSERVE_OK)
        return st;
    return gsv_check_quantization(checkpoint->files[checkpoint->n_files++], error);
}

static int compare_names(const void *a, const void *b)
{
    const char *const *x = a, *const *y = b;

    return strcmp(*x, *y);
}

/* List the file names of a weight map, sorted. */
static gpuserve_status list_names(const char **names, const struct weight_layout *layout,
                                  const struct gsv_json_value *map, gpuserve_error *error)
{
    for (size_t i = 0; i < map->n; i++) {
        names[i] = gsv_json_get_string(map->is.fields[i]);
        if (!names[i])
            return gsv_fail(error, GPUSERVE_E_FORMAT,
                            "%s: weight_map: the file name of '%s' is not a string", layout->index,
                            map->is.fields[i]->key);
    }
    qsort(names, map->n, sizeof(*names), compare_names);
    return GPUSERVE_OK;
}

/* Open each file named in a weight map once. */
static gpuserve_status add_shards(struct gsv_checkpoint *checkpoint, const struct gsv_dir *dir,
                                  const char *folder, const struct weight_layout *layout,
                                  const struct gsv_json_value *map, gpuserve_error *error)
{
    const char **names = gsv_alloc_array(map->n, sizeof(*names));
    gpuserve_status st;

    if (!names)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory", gsv_dir_path(dir));
    st = list_names(names, layout, map, error);
    for (size_t i = 0; i < map->n && st == GPUSERVE_OK; i++) {
        if (i > 0 && strcmp(names[i - 1], names[i]) == 0)
            continue;
        if (checkpoint->n_files == GSV_MAX_WEIGHT_FILES)
            st = gsv_fail(error, GPUSERVE_E_TOO_LARGE, "%s: more than %d files", layout->index,
                          GSV_MAX_WEIGHT_FILES);
        else
            st = add_file(checkpoint, dir, folder, layout, names[i], error);
    }
    free(names);
    return st;
}

static gpuserve_status open_sharded(struct gsv_checkpoint *checkpoint, const struct gsv_dir *dir,
                                    const char *folder, const struct weight_layout *layout,
                                    gpuserve_error *error)
{
    struct gsv_json_value *index;
    const struct gsv_json_value *map;
    gpuserve_status st = gsv_read_json(&index, dir, folder, layout->index, error);

    if (st != GPUSERVE_OK)
        return st;
    map = gsv_json_member(index, "weight_map");
    if (!gsv_json_is(map, GSV_JSON_OBJECT) || map->n == 0)
        st = gsv_fail(error, GPUSERVE_E_FORMAT, "%s: weight_map is missing", layout->index);
    else
        st = add_shards(checkpoint, dir, folder, layout, map, error);
    gsv_json_free(&index);
    return st;
}

static gpuserve_status open_weights(struct gsv_checkpoint *checkpoint, const struct gsv_dir *dir,
                                    const char *folder, gpuserve_error *error)
{
    for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++) {
        const struct weight_layout *layout = &layouts[i];

        if (gsv_dir_has_in(dir, folder, layout->name))
            return add_file(checkpoint, dir, folder, layout, layout->name, error);
        if (gsv_dir_has_in(dir, folder, layout->index))
            return open_sharded(checkpoint, dir, folder, layout, error);
    }
    return gsv_fail_unreadable(dir, folder, error);
}

gpuserve_status gsv_checkpoint_open(struct gsv_checkpoint *checkpoint, const struct gsv_dir *dir,
                                    const char *folder, gpuserve_error *error)
{
    gpuserve_status st;

    checkpoint->n_files = 0;
    checkpoint->lora = NULL;
    checkpoint->files = gsv_alloc_array(GSV_MAX_WEIGHT_FILES, sizeof(struct gsv_weight_file *));
    if (!checkpoint->files)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory", gsv_dir_path(dir));
    st = gsv_dir_gguf(dir)      ? open_gguf(checkpoint, dir, folder, error)
         : gsv_dir_is_made(dir) ? open_random(checkpoint, dir, error)
                                : open_weights(checkpoint, dir, folder, error);
    if (st == GPUSERVE_OK && gsv_dir_has_base(dir) && strcmp(folder, "") == 0)
        st = gsv_lora_open(&checkpoint->lora, dir, checkpoint, error);
    if (st != GPUSERVE_OK)
        gsv_checkpoint_close(checkpoint);
    return st;
}

void gsv_checkpoint_close(struct gsv_checkpoint *checkpoint)
{
    gsv_weight_file_close(&checkpoint->lora);
    for (size_t i = 0; i < checkpoint->n_files; i++)
        gsv_weight_file_close(&checkpoint->files[i]);
    free(checkpoint->files);
    checkpoint->files = NULL;
    checkpoint->n_files = 0;
}

bool gsv_checkpoint_find(const struct gsv_checkpoint *checkpoint, const char *name,
                         struct gsv_tensor *tensor)
{
    if (checkpoint->lora && gsv_weight_file_find(checkpoint->lora, name, tensor))
        return true;
    for (size_t i = 0; i < checkpoint->n_files; i++)
        if (gsv_weight_file_find(checkpoint->files[i], name, tensor))
            return true;
    return false;
}

/* ----------------------------------------------------------------------------- list of tensors */

struct listed {
    struct gsv_tensor tensor;
    size_t file; /* index of its file */
};

static int compare_tensors(const void *a, const void *b)
{
    const struct listed *x = a, *y = b;
    const int names = strcmp(x->tensor.name, y->tensor.name);

    return names ? names : (x->file > y->file) - (x->file < y->file);
}

/* Copy the tensors of all files, the adapter's first, to `all`, or only count them if it is NULL.
 */
static size_t list_files(const struct gsv_checkpoint *checkpoint, struct listed *all)
{
    size_t n = 0;

    for (size_t i = 0; i <= checkpoint->n_files; i++) {
        const struct gsv_weight_file *file = i ? checkpoint->files[i - 1] : checkpoint->lora;
        struct gsv_tensor tensor;

        for (size_t j = 0; file && gsv_weight_file_at(file, j, &tensor); j++) {
            if (gsv_is_row_scales(&tensor))
                continue;
            if (all)
                all[n] = (struct listed){ tensor, i };
            n++;
        }
    }
    return n;
}

gpuserve_status gsv_checkpoint_list(const struct gsv_checkpoint *checkpoint,
                                    struct gsv_tensor **tensors, size_t *n, gpuserve_error *error)
{
    const size_t listed = list_files(checkpoint, NULL);
    struct listed *all = gsv_alloc_array(listed + 1, sizeof(*all));

    *n = 0;
    *tensors = gsv_alloc_array(listed + 1, sizeof(**tensors));
    if (!all || !*tensors) {
        free(all);
        free(*tensors);
        *tensors = NULL;
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a list of %zu tensors", listed);
    }
    list_files(checkpoint, all);
    qsort(all, listed, sizeof(*all), compare_tensors);
    for (size_t i = 0; i < listed; i++)
        if (i == 0 || strcmp(all[i].tensor.name, all[i - 1].tensor.name) != 0)
            (*tensors)[(*n)++] = all[i].tensor;
    free(all);
    return GPUSERVE_OK;
}
