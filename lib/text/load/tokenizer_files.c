/*
 * tokenizer_files.c - selects and reads the files of a model directory's tokenizer.
 *
 * tokenizer.json has priority. Without it the older formats are read: vocab.txt (BERT), vocab.json
 * with merges.txt (RoBERTa, GPT-2, DeBERTa), sentencepiece.bpe.model (XLM-RoBERTa, CamemBERT),
 * spm.model (DeBERTa-v2), spiece.model (T5, ALBERT), whitespacetokenizer_config.json (the words of
 * sentence-transformers' WordEmbeddings).
 * "tokenizer_class", else the model type, selects among them. A GGUF file has its
 * own tokenizer.
 *
 * File sizes are bounded; text files must be UTF-8. gsv_tokenizer_finish() ends each path.
 */
#include "lib/base/error.h"
#include "lib/base/json_tree.h"
#include "lib/base/utf8.h"
#include "lib/text/load/gguf_tokens.h"
#include "lib/text/tokenizer_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORDS_NAME "whitespacetokenizer_config.json"

enum {
    MAX_FILE_BYTES = 64 << 20,
    MAX_CONFIG_BYTES = 8 << 20,
    MAX_NAME_BYTES = 4096,
};

/* The folders that are searched for the tokenizer's files. */
struct source {
    const struct gsv_dir *dir;
    const char *folder, *model_folder; /* model_folder has the model's config.json */
};

/* A file in memory. */
struct file {
    char name[MAX_NAME_BYTES]; /* "DIR/FILE", for messages */
    char *text;                /* owned */
    size_t size;
};

static bool has(const struct source *from, const char *file)
{
    return gsv_dir_has_in(from->dir, from->folder, file);
}

static gpuserve_status read_bytes(const struct source *from, const char *folder, const char *file,
                                  size_t max_bytes, struct file *read, gpuserve_error *error)
{
    char path[GSV_FILE_NAME_BYTES];

    read->text = NULL;
    (void)gsv_join_name(path, folder, file); /* cannot overflow: the file exists */
    snprintf(read->name, MAX_NAME_BYTES, "%s/%s", gsv_dir_path(gsv_dir_owner(from->dir, path)),
             path);
    return gsv_dir_read(from->dir, path, max_bytes, &read->text, &read->size, error);
}

/* Read a file and check that it is UTF-8. */
static gpuserve_status read_text(const struct source *from, const char *folder, const char *file,
                                 size_t max_bytes, struct file *read, gpuserve_error *error)
{
    const gpuserve_status status = read_bytes(from, folder, file, max_bytes, read, error);
    size_t valid;

    if (status != GPUSERVE_OK)
        return status;
    valid = gsv_utf8_valid_length(read->text, read->size);
    if (valid == read->size)
        return GPUSERVE_OK;
    free(read->text);
    read->text = NULL;
    return gsv_fail(error, GPUSERVE_E_FORMAT, "%s is not UTF-8 at byte %zu", read->name, valid);
}

/* Read a small JSON object; *json is NULL if the file does not exist. */
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
    return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: the file is not a JSON object", read.name);
}

/* ------------------------------------------------------------------ tokenizer formats */

typedef gpuserve_status (*read_fn)(struct gsv_tokenizer *t, const char *text, size_t size,
                                   const char *name, gpuserve_error *error);

/* Read a tokenizer that is one JSON file. */
static gpuserve_status read_json(struct gsv_tokenizer *t, const struct source *from,
                                 const char *name, read_fn read, gpuserve_error *error)
{
    struct file file;
    gpuserve_status status = read_text(from, from->folder, name, MAX_FILE_BYTES, &file, error);

    if (status == GPUSERVE_OK)
        status = read(t, file.text, file.size, file.name, error);
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
                                   enum gsv_tokenizer_class class,
                                   const struct gsv_vocab_files *files, gpuserve_error *error)
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

static gpuserve_status read_spm(struct gsv_tokenizer *t, const struct source *from,
                                enum gsv_tokenizer_class class, const char *name,
                                const struct gsv_vocab_files *files, gpuserve_error *error)
{
    struct file file;
    gpuserve_status status = read_bytes(from, from->folder, name, MAX_FILE_BYTES, &file, error);

    if (status == GPUSERVE_OK)
        status = gsv_tokenizer_read_spm(
            t, class, &(struct gsv_text_file){ file.name, file.text, file.size }, files, error);
    if (status == GPUSERVE_OK)
        status = gsv_tokenizer_finish(t, file.name, error);
    free(file.text);
    return status;
}

/* ------------------------------------------------------------------ selection */

static const struct kind {
    enum gsv_tokenizer_class class;
    const char *name, *model_type;
    const char *files[2]; /* the second may be NULL */
} kinds[] = {
    { GSV_CLASS_ROBERTA, "RobertaTokenizer", "roberta", { "vocab.json", "merges.txt" } },
    { GSV_CLASS_GPT2, "GPT2Tokenizer", "gpt2", { "vocab.json", "merges.txt" } },
    { GSV_CLASS_CAMEMBERT, "CamembertTokenizer", "camembert", { "sentencepiece.bpe.model" } },
    { GSV_CLASS_XLM_ROBERTA, "XLMRobertaTokenizer", "xlm-roberta", { "sentencepiece.bpe.model" } },
    { GSV_CLASS_DEBERTA, "DebertaTokenizer", "deberta", { "vocab.json", "merges.txt" } },
    { GSV_CLASS_DEBERTA_V2, "DebertaV2Tokenizer", "deberta-v2", { "spm.model" } },
    { GSV_CLASS_T5, "T5Tokenizer", "t5", { "spiece.model" } },
    { GSV_CLASS_ALBERT, "AlbertTokenizer", "albert", { "spiece.model" } },
    /* more model types of the same classes */
    { GSV_CLASS_XLM_ROBERTA,
      "XLMRobertaTokenizer",
      "xlm-roberta-xl",
      { "sentencepiece.bpe.model" } },
    { GSV_CLASS_T5, "MT5Tokenizer", "mt5", { "spiece.model" } },
    { GSV_CLASS_T5, "T5Tokenizer", "umt5", { "spiece.model" } },
    { GSV_CLASS_ROBERTA, "BartTokenizer", "bart", { "vocab.json", "merges.txt" } },
};

enum { N_KINDS = sizeof(kinds) / sizeof(kinds[0]) };

/* Find the tokenizer class as AutoTokenizer does: tokenizer_config.json, then config.json, then the
 * model type. `*name` is for messages. NULL: unknown class, or no file names one. */
static const struct kind *find_kind(const struct gsv_json_value *config,
                                    const struct gsv_json_value *model, const char **name)
{
    const char *class = gsv_json_get_string(gsv_json_member(config, "tokenizer_class"));
    const char *type = gsv_json_get_string(gsv_json_member(model, "model_type"));

    if (!class)
        class = gsv_json_get_string(gsv_json_member(model, "tokenizer_class"));
    *name = class ? class : type ? type : "a model without config.json";
    for (size_t i = 0; i < N_KINDS; i++) {
        const size_t size = strlen(kinds[i].name);

        if (class ? strncmp(class, kinds[i].name, size) == 0 &&
                        (class[size] == '\0' || strcmp(class + size, "Fast") == 0)
                  : type && strcmp(type, kinds[i].model_type) == 0)
            return &kinds[i];
    }
    return NULL;
}

/* The first missing file of a format, or NULL. */
static const char *find_lacking(const struct source *from, const struct kind *kind)
{
    for (size_t i = 0; i < 2; i++)
        if (kind->files[i] && !has(from, kind->files[i]))
            return kind->files[i];
    return NULL;
}

static gpuserve_status read_kind(struct gsv_tokenizer *t, const struct source *from,
                                 const struct gsv_json_value *model,
                                 const struct gsv_vocab_files *files, gpuserve_error *error)
{
    const char *name;
    const struct kind *kind = find_kind(files->config, model, &name);
    const char *lacking = kind ? find_lacking(from, kind) : NULL;

    if (kind && !lacking && kind->files[1])
        return read_merges(t, from, kind->class, files, error);
    if (kind && !lacking)
        return read_spm(t, from, kind->class, kind->files[0], files, error);
    if (has(from, "vocab.txt"))
        return read_vocab(t, from, files, error);
    if (kind)
        return gsv_fail(error, GPUSERVE_E_NOT_FOUND, "%s: the file %s is missing, which %s needs",
                        gsv_dir_path(from->dir), lacking, kind->name);
    return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                    "%s: the tokenizer of %s needs tokenizer.json; without it only the tokenizers "
                    "of %s, %s, %s, %s, %s, %s, %s, %s and BERT are supported",
                    gsv_dir_path(from->dir), name, kinds[0].name, kinds[1].name, kinds[2].name,
                    kinds[3].name, kinds[4].name, kinds[5].name, kinds[6].name, kinds[7].name);
}

static gpuserve_status read_old(struct gsv_tokenizer *t, const struct source *from,
                                const struct gsv_json_value *config, gpuserve_error *error)
{
    struct gsv_json_value *specials = NULL, *added = NULL, *model = NULL;
    gpuserve_status status =
        read_object(from, from->folder, "special_tokens_map.json", &specials, error);

    if (status == GPUSERVE_OK)
        status = read_object(from, from->folder, "added_tokens.json", &added, error);
    if (status == GPUSERVE_OK)
        status = read_object(from, from->model_folder, "config.json", &model, error);
    if (status == GPUSERVE_OK)
        status =
            read_kind(t, from, model, &(struct gsv_vocab_files){ config, specials, added }, error);
    gsv_json_free(&specials);
    gsv_json_free(&added);
    gsv_json_free(&model);
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

/* sentence-transformers saves the tokenizer in the transformer's folder; other models have it in
 * the directory itself. */
static bool find_source(struct source *from)
{
    static const char *const files[] = { "tokenizer.json",
                                         "vocab.txt",
                                         "vocab.json",
                                         "merges.txt",
                                         "spm.model",
                                         "spiece.model",
                                         "sentencepiece.bpe.model",
                                         WORDS_NAME };

    for (size_t i = 0; i < 2; i++) {
        from->folder = i == 0 ? from->model_folder : "";
        for (size_t k = 0; k < sizeof(files) / sizeof(files[0]); k++)
            if (has(from, files[k]))
                return true;
    }
    return false;
}

/* A GGUF file has its own tokenizer; other files next to it are not read. */
static gpuserve_status read_gguf(struct gsv_tokenizer *t, const struct gsv_dir *dir,
                                 gpuserve_error *error)
{
    struct gsv_gguf *gguf;
    gpuserve_status status = gsv_gguf_open(&gguf, dir, error);

    if (status == GPUSERVE_OK)
        status = gsv_tokenizer_read_gguf(t, gguf, error);
    if (status == GPUSERVE_OK)
        status = gsv_tokenizer_finish(t, gguf->shown, error);
    gsv_gguf_close(&gguf);
    return status;
}

gpuserve_status gsv_tokenizer_read_files(struct gsv_tokenizer *t, const struct gsv_dir *dir,
                                         const char *folder, gpuserve_error *error)
{
    struct source from = { .dir = dir, .model_folder = folder ? folder : "" };
    struct gsv_json_value *config = NULL;
    gpuserve_status status;

    if (gsv_dir_gguf(dir))
        return read_gguf(t, dir, error);
    if (!find_source(&from))
        return gsv_fail(error, GPUSERVE_E_NOT_FOUND,
                        "%s: neither tokenizer.json nor vocab.txt, vocab.json with merges.txt, "
                        "sentencepiece.bpe.model, spm.model or spiece.model",
                        gsv_dir_path(dir));
    status = read_object(&from, from.folder, "tokenizer_config.json", &config, error);
    if (status == GPUSERVE_OK)
        status = read_direction(t, config, error);
    if (status == GPUSERVE_OK && has(&from, "tokenizer.json"))
        status = read_json(t, &from, "tokenizer.json", gsv_tokenizer_read_json, error);
    else if (status == GPUSERVE_OK && has(&from, WORDS_NAME))
        status = read_json(t, &from, WORDS_NAME, gsv_tokenizer_read_whitespace, error);
    else if (status == GPUSERVE_OK)
        status = read_old(t, &from, config, error);
    gsv_json_free(&config);
    return status;
}
