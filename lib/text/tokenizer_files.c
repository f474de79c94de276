/*
 * tokenizer_files.c - which of a model directory's files a tokenizer is read from.
 *
 * A tokenizer.json, else what was usual before there were any: vocab.txt (BERT), or vocab.json with
 * merges.txt (RoBERTa, GPT-2; which of them, "tokenizer_class" or the model's type tells).
 */
#include "lib/base/error.h"
#include "lib/base/json_tree.h"
#include "lib/base/utf8.h"
#include "lib/text/tokenizer_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_FILE_BYTES = 64 << 20,
    MAX_CONFIG_BYTES = 8 << 20,
    MAX_NAME_BYTES = 4096,
};

/* Where a tokenizer's files are. */
struct source {
    const struct gsv_dir *dir;
    const char *folder, *model_folder; /* the latter has the model's config.json */
};

/* A file while it is read. */
struct file {
    char name[MAX_NAME_BYTES]; /* "DIR/FILE" for messages */
    char *text;                /* owned */
    size_t size;
};

static bool has(const struct source *from, const char *file)
{
    return gsv_dir_has_in(from->dir, from->folder, file);
}

/* A file as UTF-8. */
static gpuserve_status read_text(const struct source *from, const char *folder, const char *file,
                                 size_t max_bytes, struct file *read, gpuserve_error *error)
{
    char path[GSV_FILE_NAME_BYTES];
    gpuserve_status status;
    size_t valid;

    read->text = NULL;
    (void)gsv_join_name(path, folder, file); /* which fits: the file is there */
    status = gsv_dir_read(from->dir, path, max_bytes, &read->text, &read->size, error);
    snprintf(read->name, MAX_NAME_BYTES, "%s/%s", gsv_dir_path(from->dir), path);
    if (status != GPUSERVE_OK)
        return status;
    valid = gsv_utf8_valid_length(read->text, read->size);
    if (valid == read->size)
        return GPUSERVE_OK;
    free(read->text);
    read->text = NULL;
    return gsv_fail(error, GPUSERVE_E_FORMAT, "%s is not UTF-8 at byte %zu", read->name, valid);
}

/* A small JSON object, NULL when there is no such file. */
static gpuserve_status read_object(const struct source *from, const char *folder, const char *file,
                                   struct gsv_json_value **json, gpuserve_error *error)
{
    static const struct gsv_json_limits limits = { .max_values = 1 << 20, .max_depth = 64 };
    struct file read;
    gpuserve_status status;

    *json = NULL;
    if (!gsv_dir_has_in(from->dir, folder, file))
        return GPUSERVE_OK;
    status = read_text(from, folder, file, MAX_CONFIG_BYTES, &read, error);
    if (status == GPUSERVE_OK)
        status = gsv_json_read(json, read.text, read.size, read.name, limits, error);
    free(read.text);
    if (status != GPUSERVE_OK || gsv_json_is(*json, GSV_JSON_OBJECT))
        return status;
    gsv_json_free(json);
    return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: not a JSON object", read.name);
}

/* ------------------------------------------------------------------ kinds of tokenizers */

static gpuserve_status read_json(struct gsv_tokenizer *t, const struct source *from,
                                 gpuserve_error *error)
{
    struct file file;
    gpuserve_status status =
        read_text(from, from->folder, "tokenizer.json", MAX_FILE_BYTES, &file, error);

    if (status == GPUSERVE_OK)
        status = gsv_tokenizer_read_json(t, file.text, file.size, file.name, error);
    if (status == GPUSERVE_OK)
        status = gsv_tokenizer_finish(t, file.name, error);
    free(file.text);
    return status;
}

static gpuserve_status read_vocab(struct gsv_tokenizer *t, const struct source *from,
                                  const struct gsv_vocab_files *files, gpuserve_error *error)
{
    struct file file;
    gpuserve_status status =
        read_text(from, from->folder, "vocab.txt", MAX_FILE_BYTES, &file, error);

    if (status == GPUSERVE_OK)
        status = gsv_tokenizer_read_vocab(t, file.text, file.size, files, file.name, error);
    if (status == GPUSERVE_OK)
        status = gsv_tokenizer_finish(t, file.name, error);
    free(file.text);
    return status;
}

static gpuserve_status read_merges(struct gsv_tokenizer *t, const struct source *from,
                                   enum gsv_merges_class class, const struct gsv_vocab_files *files,
                                   gpuserve_error *error)
{
    struct file vocab, merges = { .text = NULL };
    gpuserve_status status =
        read_text(from, from->folder, "vocab.json", MAX_FILE_BYTES, &vocab, error);

    if (status == GPUSERVE_OK)
        status = read_text(from, from->folder, "merges.txt", MAX_FILE_BYTES, &merges, error);
    if (status == GPUSERVE_OK)
        status = gsv_tokenizer_read_merges(
            t, class, &(struct gsv_text_file){ vocab.name, vocab.text, vocab.size },
            &(struct gsv_text_file){ merges.name, merges.text, merges.size }, files, error);
    if (status == GPUSERVE_OK)
        status = gsv_tokenizer_finish(t, vocab.name, error);
    free(vocab.text);
    free(merges.text);
    return status;
}

/* ------------------------------------------------------------------ choosing */

/* As AutoTokenizer finds it: tokenizer_config.json before config.json, there the type of the model
 * at last. NULL: nobody says. */
static const char *class_name(const struct gsv_json_value *config,
                              const struct gsv_json_value *model)
{
    const char *name = gsv_json_text(gsv_json_member(config, "tokenizer_class"));
    const char *type = gsv_json_text(gsv_json_member(model, "model_type"));

    if (!name)
        name = gsv_json_text(gsv_json_member(model, "tokenizer_class"));
    if (!name && type && strcmp(type, "roberta") == 0)
        name = "RobertaTokenizer";
    if (!name && type && strcmp(type, "gpt2") == 0)
        name = "GPT2Tokenizer";
    return name ? name : type;
}

/* A directory with a vocab.json, merges.txt or both, but no tokenizer.json. */
static gpuserve_status choose_merges(struct gsv_tokenizer *t, const struct source *from,
                                     const struct gsv_vocab_files *files, gpuserve_error *error)
{
    const bool has_vocab = has(from, "vocab.json"), has_merges = has(from, "merges.txt");
    struct gsv_json_value *model = NULL;
    gpuserve_status status = read_object(from, from->model_folder, "config.json", &model, error);
    const char *name = class_name(files->config, model);
    const enum gsv_merges_class class = name ? gsv_merges_class_of(name) : GSV_CLASS_UNKNOWN;
    const bool known = class != GSV_CLASS_UNKNOWN;

    if (status != GPUSERVE_OK)
        return status;
    if (has(from, "vocab.txt") && !(known && has_vocab && has_merges))
        status = read_vocab(t, from, files, error);
    else if (!has_vocab || !has_merges)
        status = gsv_fail(error, GPUSERVE_E_NOT_FOUND, "%s: %s without %s", gsv_dir_path(from->dir),
                          has_vocab ? "vocab.json" : "merges.txt",
                          has_vocab ? "merges.txt" : "vocab.json");
    else if (!known)
        status = gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                          "%s: vocab.json and merges.txt of %s; without a tokenizer.json, those of "
                          "RobertaTokenizer and GPT2Tokenizer are known",
                          gsv_dir_path(from->dir), name ? name : "an unknown class");
    else
        status = read_merges(t, from, class, files, error);
    gsv_json_free(&model);
    return status;
}

static gpuserve_status choose_old(struct gsv_tokenizer *t, const struct source *from,
                                  const struct gsv_json_value *config, gpuserve_error *error)
{
    struct gsv_json_value *specials = NULL, *added = NULL;
    gpuserve_status status =
        read_object(from, from->folder, "special_tokens_map.json", &specials, error);

    if (status == GPUSERVE_OK)
        status = read_object(from, from->folder, "added_tokens.json", &added, error);
    if (status == GPUSERVE_OK) {
        const struct gsv_vocab_files files = { config, specials, added };

        status = has(from, "vocab.json") || has(from, "merges.txt")
                     ? choose_merges(t, from, &files, error)
                     : read_vocab(t, from, &files, error);
    }
    gsv_json_free(&specials);
    gsv_json_free(&added);
    return status;
}

static gpuserve_status read_direction(struct gsv_tokenizer *t, const struct gsv_json_value *config,
                                      gpuserve_error *error)
{
    const char *side = "right";
    const gpuserve_status status =
        gsv_json_string(config, "truncation_side", "tokenizer_config.json", &side, error);

    t->truncate_left = strcmp(side, "left") == 0;
    return status;
}

/* sentence-transformers saves a tokenizer beside its transformer; others leave it in front. */
static bool find_source(struct source *from)
{
    static const char *const files[] = { "tokenizer.json", "vocab.txt", "vocab.json",
                                         "merges.txt" };

    for (size_t i = 0; i < 2; i++) {
        from->folder = i == 0 ? from->model_folder : "";
        for (size_t k = 0; k < sizeof(files) / sizeof(files[0]); k++)
            if (has(from, files[k]))
                return true;
    }
    return false;
}

gpuserve_status gsv_tokenizer_read_files(struct gsv_tokenizer *t, const struct gsv_dir *dir,
                                         const char *folder, gpuserve_error *error)
{
    struct source from = { .dir = dir, .model_folder = folder ? folder : "" };
    struct gsv_json_value *config = NULL;
    gpuserve_status status;

    if (!find_source(&from))
        return gsv_fail(error, GPUSERVE_E_NOT_FOUND,
                        "%s: neither tokenizer.json nor vocab.txt nor vocab.json with merges.txt",
                        gsv_dir_path(dir));
    status = read_object(&from, from.folder, "tokenizer_config.json", &config, error);
    if (status == GPUSERVE_OK)
        status = read_direction(t, config, error);
    if (status == GPUSERVE_OK)
        status = has(&from, "tokenizer.json") ? read_json(t, &from, error)
                                              : choose_old(t, &from, config, error);
    gsv_json_free(&config);
    return status;
}
