/*
 * files.c - a model's files below one folder of its directory.
 */
#include "lib/model/files.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/base/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_JSON_BYTES (64u << 20) /* an index of 100,000 tensors has 10 MB */
#define MAX_JSON_VALUES 1000000u
#define MAX_JSON_DEPTH 32
#define MAX_SHARDS 1024

bool gsv_join_name(char out[GSV_FILE_NAME_BYTES], const char *folder, const char *name)
{
    const int length =
        snprintf(out, GSV_FILE_NAME_BYTES, "%s%s%s", folder, *folder ? "/" : "", name);

    return length > 0 && length < GSV_FILE_NAME_BYTES;
}

static gpuserve_status fail_name(const struct gsv_dir *dir, const char *name, gpuserve_error *error)
{
    return gsv_fail(error, GPUSERVE_E_INVALID, "%s: the name '%.64s...' is longer than %d bytes",
                    gsv_dir_path(dir), name, GSV_FILE_NAME_BYTES - 1);
}

static bool has_file(const struct gsv_dir *dir, const char *folder, const char *name)
{
    char path[GSV_FILE_NAME_BYTES];

    return gsv_join_name(path, folder, name) && gsv_dir_has(dir, path);
}

static gpuserve_status parse(json_t **json, const char *text, size_t size, json_type type,
                             const char *shown, gpuserve_error *error)
{
    static const struct gsv_json_limits limits = { MAX_JSON_VALUES, MAX_JSON_DEPTH };
    gpuserve_status st;

    if (strncmp(text, "version https://git-lfs", 23) == 0) {
        st =
            gsv_fail(error, GPUSERVE_E_FORMAT, "%s: a Git LFS pointer, not the file itself", shown);
        return gsv_hint(error, st, "run `git lfs pull` in the model's directory");
    }
    st = gsv_json_parse(json, text, size, shown, limits, error);
    if (st != GPUSERVE_OK || json_typeof(*json) == type)
        return st;
    json_decref(*json);
    *json = NULL;
    return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: not a JSON %s", shown,
                    type == JSON_OBJECT ? "object" : "array");
}

static gpuserve_status read_json(json_t **json, const struct gsv_dir *dir, const char *name,
                                 json_type type, gpuserve_error *error)
{
    char *text;
    size_t size;
    gpuserve_status st = gsv_dir_read(dir, name, MAX_JSON_BYTES, &text, &size, error);

    *json = NULL;
    if (st != GPUSERVE_OK)
        return st;
    st = parse(json, text, size, type, name, error);
    free(text);
    return st == GPUSERVE_OK ? st : gsv_fail_in(error, st, "%s", gsv_dir_path(dir));
}

gpuserve_status gsv_read_json(json_t **json, const struct gsv_dir *dir, const char *folder,
                              const char *name, gpuserve_error *error)
{
    char path[GSV_FILE_NAME_BYTES];

    *json = NULL;
    if (!gsv_join_name(path, folder, name))
        return fail_name(dir, folder, error);
    return read_json(json, dir, path, JSON_OBJECT, error);
}

gpuserve_status gsv_read_json_array(json_t **json, const struct gsv_dir *dir, const char *name,
                                    gpuserve_error *error)
{
    return read_json(json, dir, name, JSON_ARRAY, error);
}

gpuserve_status gsv_read_optional_json(json_t **json, const struct gsv_dir *dir, const char *folder,
                                       const char *name, gpuserve_error *error)
{
    *json = NULL;
    return has_file(dir, folder, name) ? gsv_read_json(json, dir, folder, name, error)
                                       : GPUSERVE_OK;
}

/* -------------------------------------------------------------------------------- checkpoint */

static gpuserve_status add_file(struct gsv_checkpoint *checkpoint, const struct gsv_dir *dir,
                                const char *folder, const char *name, gpuserve_error *error)
{
    char path[GSV_FILE_NAME_BYTES];
    gpuserve_status st;

    if (!gsv_join_name(path, folder, name))
        return fail_name(dir, name, error);
    st = gsv_safetensors_open(&checkpoint->files[checkpoint->n_files], dir, path, error);
    if (st == GPUSERVE_OK)
        checkpoint->n_files++;
    return st;
}

/* Open each file that a weight map names, once. */
static gpuserve_status add_shards(struct gsv_checkpoint *checkpoint, const struct gsv_dir *dir,
                                  const char *folder, const json_t *map, gpuserve_error *error)
{
    json_t *seen = json_object();
    gpuserve_status st = GPUSERVE_OK;
    const char *key;
    json_t *value;

    if (!seen)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory", gsv_dir_path(dir));
    json_object_foreach((json_t *)map, key, value)
    {
        const char *name = json_string_value(value);

        if (!name)
            st = gsv_fail(error, GPUSERVE_E_FORMAT,
                          "model.safetensors.index.json: weight_map: '%s' names no file", key);
        else if (json_object_get(seen, name))
            continue;
        else if (checkpoint->n_files == MAX_SHARDS)
            st = gsv_fail(error, GPUSERVE_E_TOO_LARGE,
                          "model.safetensors.index.json: more than %d files", MAX_SHARDS);
        else if (json_object_set_new(seen, name, json_true()) != 0)
            st = gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory", gsv_dir_path(dir));
        else
            st = add_file(checkpoint, dir, folder, name, error);
        if (st != GPUSERVE_OK)
            break;
    }
    json_decref(seen);
    return st;
}

static gpuserve_status open_sharded(struct gsv_checkpoint *checkpoint, const struct gsv_dir *dir,
                                    const char *folder, gpuserve_error *error)
{
    json_t *index;
    const json_t *map;
    gpuserve_status st = gsv_read_json(&index, dir, folder, "model.safetensors.index.json", error);

    if (st != GPUSERVE_OK)
        return st;
    map = json_object_get(index, "weight_map");
    if (!json_is_object(map) || json_object_size(map) == 0)
        st = gsv_fail(error, GPUSERVE_E_FORMAT, "model.safetensors.index.json: no weight_map");
    else
        st = add_shards(checkpoint, dir, folder, map, error);
    json_decref(index);
    return st;
}

static gpuserve_status fail_no_weights(const struct gsv_dir *dir, const char *folder,
                                       gpuserve_error *error)
{
    const char *slash = *folder ? "/" : "";
    gpuserve_status st;

    if (has_file(dir, folder, "pytorch_model.bin") ||
        has_file(dir, folder, "pytorch_model.bin.index.json")) {
        st = gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                      "%s/%s%spytorch_model.bin: a Python pickle, which can run code when it is "
                      "opened; gpuserve reads safetensors only",
                      gsv_dir_path(dir), folder, slash);
        return gsv_hint(error, st,
                        "convert it once: python -c \"from transformers import AutoModel; "
                        "AutoModel.from_pretrained('DIR').save_pretrained('DIR', "
                        "safe_serialization=True)\", or take the model's safetensors revision");
    }
    st = gsv_fail(error, GPUSERVE_E_NOT_FOUND, "%s/%s%smodel.safetensors: no such file",
                  gsv_dir_path(dir), folder, slash);
    return gsv_hint(error, st,
                    "a model directory holds config.json and model.safetensors, or "
                    "model.safetensors.index.json with the files it names");
}

gpuserve_status gsv_checkpoint_open(struct gsv_checkpoint *checkpoint, const struct gsv_dir *dir,
                                    const char *folder, gpuserve_error *error)
{
    gpuserve_status st;

    checkpoint->n_files = 0;
    checkpoint->files = gsv_alloc_array(MAX_SHARDS, sizeof(struct gsv_safetensors *));
    if (!checkpoint->files)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "%s: out of memory", gsv_dir_path(dir));
    if (has_file(dir, folder, "model.safetensors"))
        st = add_file(checkpoint, dir, folder, "model.safetensors", error);
    else if (has_file(dir, folder, "model.safetensors.index.json"))
        st = open_sharded(checkpoint, dir, folder, error);
    else
        st = fail_no_weights(dir, folder, error);
    if (st != GPUSERVE_OK)
        gsv_checkpoint_close(checkpoint);
    return st;
}

void gsv_checkpoint_close(struct gsv_checkpoint *checkpoint)
{
    for (size_t i = 0; i < checkpoint->n_files; i++)
        gsv_safetensors_close(&checkpoint->files[i]);
    free(checkpoint->files);
    checkpoint->files = NULL;
    checkpoint->n_files = 0;
}

bool gsv_checkpoint_find(const struct gsv_checkpoint *checkpoint, const char *name,
                         struct gsv_tensor *tensor)
{
    for (size_t i = 0; i < checkpoint->n_files; i++)
        if (gsv_safetensors_find(checkpoint->files[i], name, tensor))
            return true;
    return false;
}
