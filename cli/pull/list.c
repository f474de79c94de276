/*
 * list.c - parses and validates the hub's description of a revision, and selects the needed files.
 *
 * Input is JSON with the commit (`sha`) and the file list (`siblings`). The name, size and hash of
 * a selected file are validated; the number of files is limited. Selected: config.json and other
 * JSON files, the weights in safetensors format or else in PyTorch's, tokenizer files, module
 * folders, and the patterns of --include. Or one GGUF file, if it is named or there are no other
 * weights. Of a LoRA adapter its own files; pull.c then takes those of the base.
 */
#include "cli/pull/pull.h"

#include <jansson.h>

#include <ctype.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_FILES 20000
#define MAX_NAME_BYTES 1024
#define MAX_PART_BYTES 255

/* --------------------------------------------------------------------------------------- names */

static bool is_hex(const char *text, size_t digits)
{
    return text && strlen(text) == digits && strspn(text, "0123456789abcdef") == digits;
}

/* Validates one part of a model name. It cannot name another folder (no leading '.'). "--" is
 * invalid because the cache folder's name uses it for the slash. */
static bool part_ok(const char *part, size_t size)
{
    if (size == 0 || size > 96 || part[0] == '.' || part[0] == '-')
        return false;
    for (size_t i = 0; i < size; i++) {
        if (!isalnum((unsigned char)part[i]) && !strchr("._-", part[i]))
            return false;
        if (i && (part[i] == '-' || part[i] == '.') && part[i] == part[i - 1])
            return false;
    }
    return true;
}

bool cli_pull_name_ok(const char *name)
{
    const size_t first = strcspn(name, "/");

    if (!part_ok(name, first))
        return false;
    return !name[first] || part_ok(name + first + 1, strlen(name + first + 1));
}

bool cli_pull_path_ok(const char *path)
{
    if (!*path || strlen(path) > MAX_NAME_BYTES)
        return false;
    for (;;) {
        const size_t size = strcspn(path, "/");

        if (size == 0 || size > MAX_PART_BYTES || (size == 1 && path[0] == '.') ||
            (size == 2 && path[0] == '.' && path[1] == '.'))
            return false;
        for (size_t i = 0; i < size; i++) {
            if ((unsigned char)path[i] < 0x20 || path[i] == 0x7F || path[i] == '\\')
                return false;
        }
        if (!path[size])
            return true;
        path += size + 1;
    }
}

bool cli_pull_revision_ok(const char *revision)
{
    return cli_pull_path_ok(revision) &&
           strspn(revision, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuv"
                            "wxyz0123456789._-/+") == strlen(revision);
}

bool cli_pull_is_commit(const char *revision)
{
    return is_hex(revision, PULL_COMMIT_BYTES - 1);
}

/* ------------------------------------------------------------------------------------ selection */

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);

    return n >= m && strcmp(text + n - m, end) == 0;
}

/* True for files like "1_Pooling/config.json": the module folders of sentence-transformers. */
static bool in_module_folder(const char *name)
{
    const size_t digits = strspn(name, "0123456789");

    return digits > 0 && name[digits] == '_' && strchr(name, '/') == strrchr(name, '/');
}

static bool is_main_weights(const char *name)
{
    return strcmp(name, "model.safetensors") == 0 ||
           fnmatch("model-*-of-*.safetensors", name, 0) == 0;
}

static bool is_pickle_shard(const char *name)
{
    return fnmatch("pytorch_model-*-of-*.bin", name, 0) == 0;
}

/* Files of the revision that make other files unnecessary. */
struct has {
    bool main;      /* weights with the standard name: other safetensors are variants */
    bool adapter;   /* weights of a LoRA adapter in safetensors format */
    bool pickle;    /* pytorch_model.bin */
    bool shards;    /* pytorch_model-00001-of-00002.bin */
    bool modules;   /* safetensors in the module folders */
    bool tokenizer; /* tokenizer.json: includes the content of the SentencePiece model */
    bool gguf;
    bool safetensors; /* next to config.json */
};

static void add_to_has(struct has *has, const char *name)
{
    has->main = has->main || is_main_weights(name);
    has->adapter = has->adapter || strcmp(name, "adapter_model.safetensors") == 0;
    has->pickle = has->pickle || strcmp(name, "pytorch_model.bin") == 0;
    has->shards = has->shards || is_pickle_shard(name);
    has->modules =
        has->modules || (in_module_folder(name) && ends_with(name, "/model.safetensors"));
    has->tokenizer = has->tokenizer || strcmp(name, "tokenizer.json") == 0;
    has->gguf = has->gguf || cli_pull_is_gguf(name);
    has->safetensors = has->safetensors || (!strchr(name, '/') && ends_with(name, ".safetensors"));
}

static bool has_only_gguf(const struct has *has)
{
    return has->gguf && !has->safetensors && !has->pickle && !has->shards;
}

static bool is_module_file(const char *name, struct has has)
{
    return in_module_folder(name) && (ends_with(name, ".json") || ends_with(name, ".safetensors") ||
                                      (!has.modules && ends_with(name, "/pytorch_model.bin")));
}

static bool is_weights(const char *name, struct has has)
{
    if (ends_with(name, ".safetensors"))
        return is_main_weights(name) || (!has.main && !has.pickle && !has.shards);
    if (strcmp(name, "adapter_model.bin") == 0)
        return !has.main && !has.adapter && !has.pickle && !has.shards;
    return !has.main &&
           (strcmp(name, "pytorch_model.bin") == 0 || (!has.pickle && is_pickle_shard(name)));
}

/* The heads of BGE-M3. */
static bool is_late_head(const char *name)
{
    return strcmp(name, "sparse_linear.pt") == 0 || strcmp(name, "colbert_linear.pt") == 0;
}

static bool is_needed(const char *name, struct has has, const struct cli_list *include)
{
    for (size_t i = 0; i < include->n; i++) {
        if (fnmatch(include->items[i], name, 0) == 0)
            return true;
    }
    if (strchr(name, '/'))
        return is_module_file(name, has);
    if (strcmp(name, "sentencepiece.bpe.model") == 0)
        return !has.tokenizer;
    return is_weights(name, has) || is_late_head(name) || ends_with(name, ".json") ||
           strcmp(name, "vocab.txt") == 0 || strcmp(name, "merges.txt") == 0;
}

/* ------------------------------------------------------------------------------------- reading */

static int read_file(struct pull_file *file, const json_t *entry, const char *model)
{
    const char *name = json_string_value(json_object_get(entry, "rfilename"));
    const json_t *lfs = json_object_get(entry, "lfs");
    const json_t *size = json_object_get(json_is_object(lfs) ? lfs : entry, "size");
    const char *hash = json_is_object(lfs) ? json_string_value(json_object_get(lfs, "sha256"))
                                           : json_string_value(json_object_get(entry, "blobId"));

    if (!name || !cli_pull_path_ok(name))
        return cli_fail("%s: the hub lists a file with an unsafe name: \"%s\"", model,
                        name ? name : "");
    if (json_is_object(lfs) && !hash) /* name of the field in another endpoint of the hub */
        hash = json_string_value(json_object_get(lfs, "oid"));
    file->is_lfs = json_is_object(lfs);
    if (!is_hex(hash, file->is_lfs ? 64 : 40) || !json_is_integer(size) ||
        json_integer_value(size) < 0)
        return cli_fail("%s: the hub's list has no size or hash of %s", model, name);
    file->name = cli_copy(name, strlen(name));
    file->size = (uint64_t)json_integer_value(size);
    snprintf(file->hash, sizeof(file->hash), "%s", hash);
    return CLI_OK;
}

static const char *name_at(const json_t *siblings, size_t i)
{
    const char *name = json_string_value(json_object_get(json_array_get(siblings, i), "rfilename"));

    return name ? name : "";
}

static int read_gguf(struct pull_list *list, const json_t *siblings, const char *model,
                     const char *file)
{
    size_t chosen = 0;
    int number, count = 1, result = cli_pull_choose_gguf(siblings, model, file, &chosen);

    if (result == CLI_OK && !cli_pull_gguf_part(name_at(siblings, chosen), &number, &count))
        count = 1;
    for (int i = 1; i <= count && result == CLI_OK; i++) {
        if (i > 1)
            result = cli_pull_next_gguf_part(siblings, model, list->files[0].name, i, &chosen);
        if (result != CLI_OK)
            break;
        list->files = cli_grow(list->files, &list->capacity, list->n + 1, sizeof(*list->files));
        result = read_file(&list->files[list->n], json_array_get(siblings, chosen), model);
        list->total_bytes += result == CLI_OK ? list->files[list->n++].size : 0;
    }
    list->is_gguf = true;
    return result;
}

static int read_files(struct pull_list *list, const json_t *siblings,
                      const struct pull_request *request)
{
    const char *model = request->name;
    const size_t n = json_array_size(siblings);
    bool has_weights = false, has_config = false;
    struct has has = { 0 };

    for (size_t i = 0; i < n; i++)
        add_to_has(&has, name_at(siblings, i));
    if (request->file || has_only_gguf(&has))
        return read_gguf(list, siblings, model, request->file);
    for (size_t i = 0; i < n; i++) {
        const char *name = name_at(siblings, i);

        if (!is_needed(name, has, request->include))
            continue;
        list->files = cli_grow(list->files, &list->capacity, list->n + 1, sizeof(*list->files));
        if (read_file(&list->files[list->n], json_array_get(siblings, i), model) != CLI_OK)
            return CLI_FAILED;
        list->total_bytes += list->files[list->n++].size;
        has_weights = has_weights || (!strchr(name, '/') && is_weights(name, has));
        has_config = has_config || strcmp(name, "config.json") == 0 ||
                     strcmp(name, "gliner_config.json") == 0 ||
                     strcmp(name, PULL_ADAPTER_CONFIG) == 0;
    }
    if (has_weights && has_config)
        return CLI_OK;
    cli_fail("%s: the model has no %s", model,
             has_config ? "weights in safetensors or PyTorch format" : "config.json");
    cli_hint(
        "gpuserve reads config.json and *.safetensors or pytorch_model.bin; another revision may "
        "have them");
    return CLI_FAILED;
}

int cli_pull_list(struct pull_list *list, const char *json, size_t size,
                  const struct pull_request *request)
{
    const char *name = request->name;
    json_error_t where;
    json_t *root = json_loadb(json, size, 0, &where);
    const char *commit = json_string_value(json_object_get(root, "sha"));
    const json_t *siblings = json_object_get(root, "siblings");
    int result;

    memset(list, 0, sizeof(*list));
    if (!root)
        result = cli_fail("%s: the hub's response is not JSON: %s", name, where.text);
    else if (!commit || !cli_pull_is_commit(commit) || !json_is_array(siblings))
        result = cli_fail("%s: the hub's response does not describe a model", name);
    else if (json_array_size(siblings) > MAX_FILES)
        result = cli_fail("%s: the model has %zu files, the limit is %d", name,
                          json_array_size(siblings), MAX_FILES);
    else
        result = read_files(list, siblings, request);
    if (result == CLI_OK)
        memcpy(list->commit, commit, PULL_COMMIT_BYTES);
    json_decref(root);
    if (result != CLI_OK)
        cli_pull_list_free(list);
    return result;
}

static char *copy_string(const json_t *config, const char *key)
{
    const char *value = json_string_value(json_object_get(config, key));

    return value && *value ? cli_copy(value, strlen(value)) : NULL;
}

void cli_pull_read_base(const char *snapshot, char **name, char **revision)
{
    char *path = cli_format("%s/%s", snapshot, PULL_ADAPTER_CONFIG);
    json_t *config = json_load_file(path, 0, NULL);

    *name = copy_string(config, "base_model_name_or_path");
    *revision = copy_string(config, "revision");
    json_decref(config);
    free(path);
}

void cli_pull_list_free(struct pull_list *list)
{
    for (size_t i = 0; i < list->n; i++)
        free(list->files[i].name);
    free(list->files);
    memset(list, 0, sizeof(*list));
}
