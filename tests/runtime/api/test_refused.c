/*
 * test_refused.c - calls with one invalid argument each: rejected, the message names the argument,
 * and no output is written.
 */
#include "tests/model/support.h"
#include "tests/runtime/folder.h"

#include <gpuserve/gpuserve.h>

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct folder folder;
static gpuserve_context *context;
static gpuserve_error error;

static void expect(gpuserve_status got, gpuserve_status status, const char *says)
{
    cr_expect_eq(got, status, "status %d, %d was expected (%s): %s", got, status, says,
                 error.message);
    cr_expect(strstr(error.message, says), "'%s' is not in: %s", says, error.message);
    error = (gpuserve_error)GPUSERVE_ERROR_INIT;
}

static void begin(const char *model)
{
    gpuserve_context_options options = GPUSERVE_CONTEXT_OPTIONS_INIT;

    options.n_threads = 2;
    error = (gpuserve_error)GPUSERVE_ERROR_INIT;
    folder_make(&folder, model);
    cr_assert_eq(gpuserve_context_create(&context, &options, &error), GPUSERVE_OK);
}

static gpuserve_model *open_model(void)
{
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
    gpuserve_model *model = NULL;

    options.device = "cpu";
    cr_assert_eq(gpuserve_model_open(&model, context, folder.path, &options, &error), GPUSERVE_OK,
                 "%s", error.message);
    return model;
}

static void end(void)
{
    gpuserve_context_unref(&context);
    folder_remove(&folder);
}

static void expect_not_opened(gpuserve_model_options options, const char *says)
{
    gpuserve_model *model = (gpuserve_model *)&folder;
    gpuserve_footprint footprint = { .struct_size = sizeof(footprint) };

    options.device = "cpu";
    expect(gpuserve_model_footprint(context, folder.path, &options, &footprint, &error),
           GPUSERVE_E_INVALID, says);
    expect(gpuserve_model_open(&model, context, folder.path, &options, &error), GPUSERVE_E_INVALID,
           says);
    cr_expect_null(model);
}

#define WITH(member, value) \
    ((gpuserve_model_options){ .struct_size = sizeof(gpuserve_model_options), .member = (value) })

Test(refused, options_of_a_model)
{
    begin("bert-single");
    expect_not_opened(WITH(dtype, GPUSERVE_DTYPE_INT8 + 1), "dtype is 6, outside 0 to 5");
    expect_not_opened(WITH(pooling, GPUSERVE_POOLING_LAST + 1), "pooling is 7, outside 0 to 6");
    expect_not_opened(WITH(use_mmap, 2), "use_mmap is 2");
    expect_not_opened(WITH(warmup, 1000001), "warmup is 1000001");
    expect_not_opened(WITH(keep, 2), "keep is 2");
    expect_not_opened(WITH(when_suspended, GPUSERVE_SUSPENDED_REFUSE + 1), "when_suspended is");
    expect_not_opened(WITH(on_device_lost, GPUSERVE_LOST_GPU_OR_CPU + 1), "on_device_lost is");
    expect_not_opened(WITH(cache_bytes, (UINT64_C(1) << 46) + 1), "cache_bytes is");
    expect_not_opened(WITH(max_batch_tokens, (1u << 20) + 1), "max_batch_tokens is 1048577");
    expect_not_opened(WITH(max_tokens, 41), "max_tokens is 41, the model's limit is 40");
    expect_not_opened(WITH(max_tokens, 2), "max_tokens is 2, but every text has 2 special tokens");
    expect_not_opened(WITH(n_threads, 3), "n_threads is 3");
    expect_not_opened(WITH(name, "a\xFF"), "name is not UTF-8 at byte 1");
    expect_not_opened(WITH(version, "\xC3"), "version is not UTF-8 at byte 0");
    end();
}

Test(refused, a_tokenizer_with_ids_that_the_model_lacks)
{
    gpuserve_model *model = NULL;
    char path[128];
    FILE *f;

    begin("bert");
    snprintf(path, sizeof(path), "%s/vocab.txt", folder.path);
    f = fopen(path, "a");
    cr_assert(f);
    fputs("one more\n", f);
    fclose(f);
    expect(gpuserve_model_open(&model, context, folder.path, NULL, &error), GPUSERVE_E_FORMAT,
           "the tokenizer has ids up to 96, the model's embedding table only 96 rows");
    cr_expect_null(model);
    end();
}

/* Without special tokens, an empty text has no tokens. */
Test(refused, a_text_without_tokens)
{
    static const char *const texts[] = { "w5", "" };
    gpuserve_model *model;
    float rows[2 * FOLDER_HIDDEN];
    char path[128];
    FILE *f;

    begin("bert");
    snprintf(path, sizeof(path), "%s/tokenizer.json", folder.path);
    f = fopen(path, "w");
    cr_assert(f);
    fputs("{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":[],"
          "\"normalizer\":null,\"pre_tokenizer\":null,\"post_processor\":null,\"decoder\":null,"
          "\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"[UNK]\",\"continuing_subword_prefix\":"
          "\"##\",\"max_input_chars_per_word\":9,\"vocab\":{\"[UNK]\":0,\"w5\":1}}}",
          f);
    fclose(f);
    model = open_model();
    cr_expect_eq(gpuserve_embed(model, texts, 1, rows, 2 * FOLDER_HIDDEN, NULL, &error),
                 GPUSERVE_OK, "%s", error.message);
    expect(gpuserve_embed(model, texts, 2, rows, 2 * FOLDER_HIDDEN, NULL, &error),
           GPUSERVE_E_INVALID, "item 1: the text has no tokens");
    gpuserve_model_close(&model);
    end();
}

/* If the model files have no token limit, transformers writes an absurdly large one. */
Test(refused, a_limit_beyond_all_models)
{
    static const struct {
        const char *text;
        size_t limit;
    } cases[] = { { "1e30", 40 }, { "12", 12 } };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        gpuserve_model *model;
        char path[128];
        FILE *f;

        begin("bert");
        snprintf(path, sizeof(path), "%s/tokenizer_config.json", folder.path);
        f = fopen(path, "w");
        cr_assert(f);
        fprintf(f, "{\"tokenizer_class\":\"BertTokenizer\",\"model_max_length\":%s}",
                cases[i].text);
        fclose(f);
        model = open_model();
        cr_expect_eq(gpuserve_model_max_tokens(model), cases[i].limit, "%s", cases[i].text);
        gpuserve_model_close(&model);
        end();
    }
}

Test(refused, options_of_a_context)
{
    gpuserve_context_options options = GPUSERVE_CONTEXT_OPTIONS_INIT;

    error = (gpuserve_error)GPUSERVE_ERROR_INIT;
    expect(gpuserve_context_create(NULL, &options, &error), GPUSERVE_E_INVALID, "NULL");
    options.log_level = -1;
    expect(gpuserve_context_create(&context, &options, &error), GPUSERVE_E_INVALID, "log_level");
    options.log_level = GPUSERVE_LOG_DEBUG + 1;
    expect(gpuserve_context_create(&context, &options, &error), GPUSERVE_E_INVALID, "log_level");
    options.log_level = 0;
    options.memory_policy = GPUSERVE_MEMORY_EVICT + 1;
    expect(gpuserve_context_create(&context, &options, &error), GPUSERVE_E_INVALID,
           "memory_policy");
    options.memory_policy = 0;
    options.reserved = 1;
    expect(gpuserve_context_create(&context, &options, &error), GPUSERVE_E_INVALID, "reserved");
    options.reserved = 0;
    options.n_threads = 4097;
    expect(gpuserve_context_create(&context, &options, &error), GPUSERVE_E_INVALID, "n_threads");
    cr_expect_null(context);
}

Test(refused, places_that_are_not_there)
{
    gpuserve_model *model = NULL;

    begin("bert-single");
    expect(gpuserve_model_open(NULL, context, folder.path, NULL, &error), GPUSERVE_E_INVALID,
           "NULL");
    expect(gpuserve_model_open(&model, context, NULL, NULL, &error), GPUSERVE_E_INVALID, "NULL");
    cr_expect_null(model);
    end();
}

Test(refused, what_to_tokenize)
{
    static const char text[] = "w5 w6";
    gpuserve_tokenize_options options = GPUSERVE_TOKENIZE_OPTIONS_INIT;
    gpuserve_span spans[8];
    gpuserve_model *model;
    int32_t ids[8] = { 7 };
    char back[32];
    size_t n = 0;

    begin("bert-single");
    model = open_model();
    expect(gpuserve_tokenize(model, NULL, 1, ids, NULL, 8, &n, NULL, &error), GPUSERVE_E_INVALID,
           "`text` is NULL");
    expect(gpuserve_tokenize(model, text, (size_t)1 << 31, ids, NULL, 8, &n, NULL, &error),
           GPUSERVE_E_TOO_LARGE, "2147483648 bytes, the limit is 2147483647");
    expect(gpuserve_tokenize(model, text, 5, ids, NULL, 8, NULL, NULL, &error), GPUSERVE_E_INVALID,
           "`n_tokens` is NULL");
    expect(gpuserve_tokenize(model, text, 5, NULL, NULL, 8, &n, NULL, &error), GPUSERVE_E_INVALID,
           "`ids` is NULL but the capacity is 8");
    expect(gpuserve_tokenize(model, text, 5, NULL, spans, 0, &n, NULL, &error), GPUSERVE_E_INVALID,
           "`spans` is set, but `ids` is NULL");
    expect(gpuserve_tokenize(model, text, 5, ids, NULL, 3, &n, NULL, &error), GPUSERVE_E_TOO_LARGE,
           "capacity for 3 tokens, the text has 4");
    options.no_special = 2;
    expect(gpuserve_tokenize(model, text, 5, ids, NULL, 8, &n, &options, &error),
           GPUSERVE_E_INVALID, "no_special is 2, neither 0 nor 1");
    options.no_special = 0;
    options.truncation = GPUSERVE_TRUNCATE_STRICT + 1;
    expect(gpuserve_tokenize(model, text, 5, ids, NULL, 8, &n, &options, &error),
           GPUSERVE_E_INVALID, "truncation is 4, outside 0 to 3");
    cr_expect_eq(ids[0], 7, "nothing was written");
    expect(gpuserve_detokenize(model, NULL, 1, 0, back, sizeof(back), &n, &error),
           GPUSERVE_E_INVALID, "`ids` is NULL");
    ids[0] = 5;
    expect(gpuserve_detokenize(model, ids, 1, 2, back, sizeof(back), &n, &error),
           GPUSERVE_E_INVALID, "skip_special is 2");
    expect(gpuserve_detokenize(model, ids, 1, -1, back, sizeof(back), &n, &error),
           GPUSERVE_E_INVALID, "skip_special is -1");
    ids[0] = -1;
    expect(gpuserve_detokenize(model, ids, 1, 0, back, sizeof(back), &n, &error),
           GPUSERVE_E_INVALID, "-1");
    ids[0] = FOLDER_VOCAB;
    expect(gpuserve_detokenize(model, ids, 1, 0, back, sizeof(back), &n, &error),
           GPUSERVE_E_INVALID, "96");
    ids[0] = 5;
    expect(gpuserve_detokenize(model, ids, 1, 0, back, 1, &n, &error), GPUSERVE_E_TOO_LARGE, "");
    gpuserve_model_close(&model);
    end();
}

/* Tasks that a kind of model does not support. */
static void expect_unable(const char *model_name, uint32_t task, const char *says)
{
    static const char *const texts[] = { "w5" };
    gpuserve_job job = GPUSERVE_JOB_INIT;
    gpuserve_model *model;
    float output[256] = { 7 };

    begin(model_name);
    model = open_model();
    job.task = task;
    job.n_items = 1;
    job.texts = texts;
    job.output = output;
    job.output_capacity = 256;
    expect(gpuserve_run(model, &job, &error), GPUSERVE_E_UNSUPPORTED, says);
    cr_expect_eq(output[0], 7, "nothing was written");
    gpuserve_model_close(&model);
    end();
}

Test(refused, tasks_of_other_models)
{
    expect_unable("bert-single", GPUSERVE_TASK_EMBED, "only classifies");
    expect_unable("bert-single", GPUSERVE_TASK_SPARSE, "no sparse vectors");
    expect_unable("bert-single", GPUSERVE_TASK_TOKEN_LABELS, "not a token classifier");
    expect_unable("bert", GPUSERVE_TASK_CLASSIFY, "no classifier head");
    expect_unable("bert-tokens", GPUSERVE_TASK_CLASSIFY, "labels tokens, not texts");
    expect_unable("bert-tokens", GPUSERVE_TASK_EMBED, "labels tokens");
}

Test(refused, options_of_classifying)
{
    static const char *const texts[] = { "w5" };
    gpuserve_job options = GPUSERVE_JOB_INIT;
    gpuserve_model *model;
    float scores[16];

    begin("bert-single");
    model = open_model();
    options.reserved = 1;
    expect(gpuserve_classify(model, texts, 1, scores, 16, &options, &error), GPUSERVE_E_INVALID,
           "job.reserved is not zero");
    gpuserve_model_close(&model);
    end();
}

Test(refused, lists_of_ids)
{
    gpuserve_job job = GPUSERVE_JOB_INIT;
    gpuserve_model *model;
    int32_t ids[41];
    size_t offsets[2] = { 0, 41 };
    float output[32] = { 7 };

    begin("bert");
    model = open_model();
    for (size_t i = 0; i < 41; i++)
        ids[i] = 5;
    job.n_items = 1;
    job.ids = ids;
    job.id_offsets = offsets;
    job.output = output;
    job.output_capacity = 32;
    expect(gpuserve_run(model, &job, &error), GPUSERVE_E_TOO_LARGE, "41");
    offsets[1] = 40;
    cr_expect_eq(gpuserve_run(model, &job, &error), GPUSERVE_OK, "%s", error.message);
    output[0] = 7;
    ids[39] = FOLDER_VOCAB;
    expect(gpuserve_run(model, &job, &error), GPUSERVE_E_INVALID, "96");
    ids[39] = -1;
    expect(gpuserve_run(model, &job, &error), GPUSERVE_E_INVALID, "-1");
    cr_expect_eq(output[0], 7, "nothing was written");
    gpuserve_model_close(&model);
    end();
}

static void ignore(void *user, const char *text, size_t size)
{
    (void)user, (void)text, (void)size;
}

static void expect_no_profile(gpuserve_profile_options how, const char *says)
{
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;

    options.device = "cpu";
    expect(gpuserve_model_profile(context, folder.path, &options, &how, ignore, NULL, &error),
           GPUSERVE_E_INVALID, says);
}

#define HOW(member, value)                                                        \
    ((gpuserve_profile_options){ .struct_size = sizeof(gpuserve_profile_options), \
                                 .member = (value) })

Test(refused, what_to_profile)
{
    static const char *const texts[] = { "w5", NULL };
    gpuserve_profile_options how = HOW(texts, texts);

    begin("bert");
    expect_no_profile(HOW(text_tokens, 2), "text_tokens is 2, outside 3 to");
    expect_no_profile(HOW(text_tokens, 41), "text_tokens is 41, outside 3 to");
    expect_no_profile(HOW(n_texts, 1000000), "1000000 texts of");
    expect_no_profile(HOW(rounds, 10001), "rounds is 10001, the limit is 10000");
    expect_no_profile(HOW(timing, GPUSERVE_PROFILE_DIFFERENCES + 1), "timing is 3, outside 0 to 2");
    how.n_texts = 2;
    expect_no_profile(how, "text 1 is NULL");
    how.n_texts = 0;
    expect_no_profile(how, "`texts` is set, but n_texts is 0");
    expect(gpuserve_model_profile(context, NULL, NULL, NULL, ignore, NULL, &error),
           GPUSERVE_E_INVALID, "is NULL");
    expect(gpuserve_model_profile(context, folder.path, NULL, NULL, NULL, NULL, &error),
           GPUSERVE_E_INVALID, "is NULL");
    end();
}
