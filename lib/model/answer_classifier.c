/*
 * answer_classifier.c - rerankers that are language models: they answer whether a document meets a
 * query with one token, and the score is the difference of the logits of two tokens, "yes" and
 * "no".
 *
 * Recognized: a LogitScore module of sentence-transformers, and Qwen3ForCausalLM without
 * modules.json. Softmax over the two logits gives the sigmoid of their difference, so the
 * classifier is one row: that of "yes" minus that of "no", of the output projection or, if these
 * are tied, of the word embeddings.
 *
 * The template of a pair is Qwen3-Reranker's. A chat template is a program, which is not run: it is
 * recognized by its texts, in order. One for rerankers with other texts is refused.
 */
#include "lib/model/weight_map.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TEMPLATE_BYTES (1 << 20)

static const char judge[] = "Judge whether the Document meets the requirements";

static const struct gsv_pair_template qwen3_reranker = {
    .name = "qwen3-reranker",
    .before =
        "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query "
        "and the Instruct provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n"
        "<|im_start|>user\n",
    .instruction_key = "<Instruct>: ",
    .instruction = "Given a web search query, retrieve relevant passages that answer the query",
    .text_key = "\n<Query>: ",
    .pair_key = "\n<Document>: ",
    .after = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
};

/* ------------------------------------------------------------------------------- chat template */

/* The end of `part` at `at`, or NULL. In a string of the template a newline and a quote may be
 * written with a backslash. */
static const char *match(const char *at, const char *part)
{
    for (; *part; part++) {
        if (*at == '\\' && ((*part == '\n' && at[1] == 'n') || (*part == '"' && at[1] == '"')))
            at += 2;
        else if (*at == *part)
            at++;
        else
            return NULL;
    }
    return at;
}

/* The end of the first match at or after `at`, or NULL. */
static const char *find(const char *at, const char *part)
{
    const char *end = NULL;

    for (; *at && !end; at++)
        end = match(at, part);
    return end;
}

/* Skip statements and comments; the first output, inside a string of "{{" or outside. */
static const char *find_output(const char *at)
{
    while (*at) {
        const char *end = strncmp(at, "{%", 2) == 0   ? strstr(at, "%}")
                          : strncmp(at, "{#", 2) == 0 ? strstr(at, "#}")
                                                      : NULL;

        if (end) {
            at = end + 2;
            at += *at == '\n'; /* trim_blocks */
        } else if (strncmp(at, "{{", 2) == 0) {
            at += 2 + (at[2] == '-');
            at += strspn(at, " ");
            return at + (*at == '"' || *at == '\'');
        } else {
            break;
        }
    }
    return at;
}

/* "{{-" and its like remove white space before it, which a piece may end with. */
static bool strips_before(const char *at)
{
    return *at == '{' && at[1] && at[2] == '-';
}

/* True if a template has the texts of qwen3_reranker in order. The default instruction may be set
 * anywhere. The final newline of a file is not part of the template. */
static bool is_qwen3_reranker(const char *text)
{
    const char *const parts[] = { qwen3_reranker.instruction_key, qwen3_reranker.text_key,
                                  qwen3_reranker.pair_key, qwen3_reranker.after };
    const char *at = match(find_output(text), qwen3_reranker.before);

    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]) && at; i++) {
        at = i == 0 ? match(at, parts[i]) : find(at, parts[i]);
        if (at && strips_before(at))
            return false;
    }
    return at && *at && find(text, qwen3_reranker.instruction);
}

/* Read the template of chat_template.jinja, else of tokenizer_config.json; *text is owned, NULL if
 * there is none. */
static gpuserve_status read_template(char **text, const struct gsv_dir *dir, const char *folder,
                                     gpuserve_error *error)
{
    char path[GSV_FILE_NAME_BYTES];
    struct gsv_json_value *json;
    const char *found;
    gpuserve_status st;
    size_t size;

    *text = NULL;
    if (gsv_dir_has_in(dir, folder, "chat_template.jinja") &&
        gsv_join_name(path, folder, "chat_template.jinja"))
        return gsv_dir_read(dir, path, MAX_TEMPLATE_BYTES, text, &size, error);
    st = gsv_read_optional_json(&json, dir, folder, "tokenizer_config.json", error);
    if (st != GPUSERVE_OK || !json)
        return st;
    found = gsv_json_get_string(gsv_json_member(json, "chat_template"));
    if (found) {
        *text = gsv_copy_text(found, strlen(found));
        if (!*text)
            st = gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a chat template");
    }
    gsv_json_free(&json);
    return st;
}

static gpuserve_status fail_template(const struct gsv_dir *dir, gpuserve_error *error)
{
    return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                    "%s: the chat template is not supported: of rerankers only Qwen3-Reranker's is",
                    gsv_dir_path(dir));
}

/* -------------------------------------------------------------------------------- recognition */

static bool is_qwen3_causal(const struct gsv_spec *spec)
{
    return !spec->modules.present && strcmp(spec->config.architecture, "Qwen3ForCausalLM") == 0 &&
           strcmp(spec->config.model_type, "qwen3") == 0;
}

gpuserve_status gsv_spec_find_answers(struct gsv_spec *spec, const struct gsv_dir *dir,
                                      bool is_embedder, gpuserve_error *error)
{
    const struct gsv_config *config = &spec->config;
    const bool module = spec->modules.scores_answers;
    char *text;
    gpuserve_status st;

    if (spec->modules.is_alone && !config->classifies)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        "%s/modules.json: the Pooling module is missing, and '%.64s' is no "
                        "classifier",
                        gsv_dir_path(dir), config->architecture);
    if (module && (!config->family->masked || config->family->masked->transform ||
                   !strstr(config->architecture, "ForCausalLM")))
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        "%s/modules.json: LogitScore needs a language model, not '%.64s'",
                        gsv_dir_path(dir), config->architecture);
    if (module && config->caps_logits)
        return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                        "%s/config.json: \"final_logit_softcapping\" is not supported with the "
                        "module LogitScore",
                        gsv_dir_path(dir));
    spec->facts.scores_answers = !is_embedder && (module || is_qwen3_causal(spec));
    spec->facts.needs_answers = spec->facts.scores_answers && !module;
    if (is_embedder || (!spec->facts.scores_answers && !config->classifies))
        return GPUSERVE_OK;
    st = read_template(&text, dir, spec->modules.transformer, error);
    if (st != GPUSERVE_OK)
        return st;
    if (spec->facts.needs_answers || (text && is_qwen3_reranker(text)))
        spec->facts.pair_template = &qwen3_reranker;
    else if (module || (text && strstr(text, judge)))
        st = fail_template(dir, error);
    free(text);
    return st;
}

/* -------------------------------------------------------------------------------------- weights */

gpuserve_status gsv_collect_answers(struct gsv_spec *spec, gpuserve_error *error)
{
    const struct gsv_modules *modules = &spec->modules;
    char name[GSV_TENSOR_NAME_BYTES];
    gpuserve_status st;

    snprintf(name, sizeof(name), "%s.weight", spec->config.family->masked->decoder);
    if (!gsv_checkpoint_find(&spec->weights, name, &spec->answers))
        spec->answers = spec->items[spec->word].weight[0];
    st = gsv_check_tensor(&spec->answers, (uint64_t)spec->config.vocab_size,
                          (uint64_t)spec->config.hidden_size, error);
    if (st != GPUSERVE_OK)
        return st;
    gsv_add_item(spec, GSV_ITEM_LINEAR_EXACT, 1, spec->config.hidden_size);
    spec->n_classifier = 1;
    return spec->facts.needs_answers ? GPUSERVE_OK
                                     : gsv_spec_set_answers(spec, modules->yes, modules->no, error);
}

gpuserve_status gsv_spec_set_answers(struct gsv_spec *spec, int32_t yes, int32_t no,
                                     gpuserve_error *error)
{
    struct gsv_weight *item = &spec->items[spec->first_classifier];
    const int32_t n = spec->config.vocab_size;

    if (yes < 0 || yes >= n || no < -1 || no >= n)
        return gsv_fail(error, GPUSERVE_E_FORMAT,
                        "the answers have the token ids %d and %d, outside the vocabulary of %d",
                        yes, no, n);
    item->weight[0] = gsv_tensor_rows(&spec->answers, yes, 1);
    if (no >= 0)
        item->weight[1] = gsv_tensor_rows(&spec->answers, no, 1);
    item->subtracts = no >= 0;
    return GPUSERVE_OK;
}
