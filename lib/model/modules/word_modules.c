/*
 * word_modules.c - reads the modules of sentence-transformers without a transformer: word vectors,
 * and an LSTM over them.
 *
 *   0_WordEmbeddings/wordembedding_config.json   the tokenizer's class, the token limit
 *   1_LSTM/lstm_config.json                      sizes of the layers
 */
#include "lib/model/modules/modules.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/base/json_tree.h"

#include <string.h>

#define WORDS_CONFIG "wordembedding_config.json"
#define LSTM_CONFIG "lstm_config.json"
#define MAX_INPUTS (1 << 16)
#define MAX_UNITS (1 << 14)
#define MAX_LAYERS 64
#define MAX_TOKENS 8192 /* the default has no limit: longer texts take more memory */

static gpuserve_status parse_words(struct gsv_modules *modules, const struct gsv_json_value *json,
                                   gpuserve_error *error)
{
    const char *class = "";
    int64_t limit = MAX_TOKENS;
    gpuserve_status st = gsv_json_string(json, "tokenizer_class", WORDS_CONFIG, &class, error);

    if (st == GPUSERVE_OK)
        st = gsv_json_int(json, "max_seq_length", WORDS_CONFIG, 1, INT32_MAX, &limit, error);
    if (st != GPUSERVE_OK)
        return st;
    if (strcmp(gsv_class_name(class), "WhitespaceTokenizer") != 0)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        WORDS_CONFIG ": tokenizer_class '%.128s' is not supported, only "
                                     "WhitespaceTokenizer is",
                        class);
    modules->max_tokens = (int32_t)(limit < MAX_TOKENS ? limit : MAX_TOKENS);
    return GPUSERVE_OK;
}

gpuserve_status gsv_word_embeddings_add(const struct gsv_module_reader *r, const char *folder)
{
    struct gsv_json_value *json;
    gpuserve_status st = gsv_read_json(&json, r->dir, folder, WORDS_CONFIG, r->error);

    r->modules->words.present = true;
    if (st != GPUSERVE_OK)
        return st;
    st = parse_words(r->modules, json, r->error);
    gsv_json_free(&json);
    return st == GPUSERVE_OK ? st
                             : gsv_fail_in(r->error, st, "%s/%s", gsv_dir_path(r->dir), folder);
}

static gpuserve_status need_size(const struct gsv_json_value *json, const char *key, int64_t max,
                                 int32_t *value, gpuserve_error *error)
{
    int64_t size = 0;
    const gpuserve_status st = gsv_json_int(json, key, LSTM_CONFIG, 1, max, &size, error);

    *value = (int32_t)size;
    if (st != GPUSERVE_OK || size > 0)
        return st;
    return gsv_fail(error, GPUSERVE_E_FORMAT, LSTM_CONFIG ": \"%s\" is missing", key);
}

/* The key of the input's width changed in release 6. */
static gpuserve_status parse_lstm(struct gsv_word_modules *words, const struct gsv_json_value *json,
                                  gpuserve_error *error)
{
    const char *inputs = gsv_json_member(json, "embedding_dimension") ? "embedding_dimension"
                                                                      : "word_embedding_dimension";
    int64_t n_layers = 1;
    gpuserve_status st = need_size(json, inputs, MAX_INPUTS, &words->inputs, error);

    if (st == GPUSERVE_OK)
        st = need_size(json, "hidden_dim", MAX_UNITS, &words->units, error);
    if (st == GPUSERVE_OK)
        st = gsv_json_int(json, "num_layers", LSTM_CONFIG, 1, MAX_LAYERS, &n_layers, error);
    words->n_layers = (int32_t)n_layers;
    words->is_bidirectional = true;
    return st == GPUSERVE_OK
               ? gsv_json_bool(json, "bidirectional", LSTM_CONFIG, &words->is_bidirectional, error)
               : st;
}

gpuserve_status gsv_lstm_add(const struct gsv_module_reader *r, const char *folder)
{
    struct gsv_word_modules *words = &r->modules->words;
    struct gsv_json_value *json;
    gpuserve_status st = gsv_read_json(&json, r->dir, folder, LSTM_CONFIG, r->error);

    if (st != GPUSERVE_OK)
        return st;
    st = parse_lstm(words, json, r->error);
    gsv_json_free(&json);
    if (st != GPUSERVE_OK)
        return gsv_fail_in(r->error, st, "%s/%s", gsv_dir_path(r->dir), folder);
    words->folder = gsv_copy_text(folder, strlen(folder));
    return words->folder ? GPUSERVE_OK : gsv_modules_nomem(r->dir, r->error);
}
