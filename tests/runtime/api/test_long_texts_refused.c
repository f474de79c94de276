/*
 * test_long_texts_refused.c - bad input of long texts: options, spans, models, limits; each message
 * names field, value and limit.
 */
#include "tests/model/support.h"

#include <gpuserve/gpuserve.h>

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static gpuserve_model *open_model(uint32_t pooling)
{
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_model *model = NULL;

    options.device = "cpu";
    options.n_threads = 2;
    options.pooling = pooling;
    cr_assert_eq(gpuserve_model_open(&model, NULL, test_data("long-texts/model"), &options, &error),
                 GPUSERVE_OK, "%s", error.message);
    return model;
}

struct wrong {
    gpuserve_long_options options;
    gpuserve_status status;
    const char *words; /* of the message */
};

#define OPTIONS(...)                                              \
    {                                                             \
        .struct_size = sizeof(gpuserve_long_options), __VA_ARGS__ \
    }

static void expect_refused(gpuserve_model *model, const char *text, const struct wrong *wrong)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_long_texts *lt = (void *)1;
    const gpuserve_status st =
        gpuserve_long_texts_create(&lt, model, &text, NULL, 1, &wrong->options, &error);

    cr_expect_eq(st, wrong->status, "%s: %d %s", wrong->words, st, error.message);
    cr_expect(strstr(error.message, wrong->words), "%s: %s", wrong->words, error.message);
    cr_expect_null(lt);
}

Test(long_texts_refused, bad_options)
{
    static const struct wrong wrongs[] = {
        { OPTIONS(.method = 2), GPUSERVE_E_INVALID, "method is 2, outside 0 to 1" },
        { OPTIONS(.method = 1, .chunk_by = 3), GPUSERVE_E_INVALID, "chunk_by is 3" },
        { OPTIONS(.chunk_tokens = 3), GPUSERVE_E_INVALID, "need the method LATE" },
        { OPTIONS(.method = 1, .chunk_by = 2), GPUSERVE_E_INVALID, "`span_offsets` is NULL" },
        { OPTIONS(.window_tokens = 25), GPUSERVE_E_INVALID,
          "window_tokens is 25, the model's limit is 24" },
        { OPTIONS(.window_tokens = 3), GPUSERVE_E_INVALID,
          "window_tokens is 3, of which prompt and special tokens take 2" },
        { OPTIONS(.window_tokens = 10, .stride = 9), GPUSERVE_E_INVALID,
          "stride is 9, more than the 8 tokens of the text in a window of 10" },
        { OPTIONS(.stride = 2), GPUSERVE_E_INVALID, "stride is 2, less than an eighth of the 22" },
        { OPTIONS(.dimensions = 33), GPUSERVE_E_INVALID,
          "dimensions is 33, the model has 32 dimensions" },
        { OPTIONS(.normalize = 4), GPUSERVE_E_INVALID, "normalize is 4" },
        { OPTIONS(.prompt_name = "absent"), GPUSERVE_E_INVALID, "unknown prompt \"absent\"" },
        { OPTIONS(.prompt_name = "query", .prompt = "x"), GPUSERVE_E_INVALID, "both set" },
    };
    static const char *const text =
        "The quick brown fox runs over the lazy dog. The quick brown fox "
        "runs over the lazy dog and the cat.";
    gpuserve_model *model = open_model(0);
    const gpuserve_long_options none = GPUSERVE_LONG_OPTIONS_INIT;

    for (size_t i = 0; i < sizeof(wrongs) / sizeof(wrongs[0]); i++)
        expect_refused(model, text, &wrongs[i]);
    expect_refused(model, "a\xff", &(struct wrong){ none, GPUSERVE_E_INVALID, "text 0: " });
    gpuserve_model_close(&model);
}

Test(long_texts_refused, bad_spans)
{
    static const struct {
        gpuserve_span spans[2];
        const char *words;
    } wrongs[] = {
        { { { 0, 5 }, { 4, 9 } },
          "text 0: spans[1] begins at byte 4, before the end of the span before it, 5" },
        { { { 0, 5 }, { 6, 99 } }, "spans[1] is bytes 6 to 99, the text has 18 bytes" },
        { { { 0, 5 }, { 7, 7 } }, "spans[1] is empty: bytes 7 to 7" },
        { { { 0, 5 }, { 9, 8 } }, "spans[1] is empty: bytes 9 to 8" },
        { { { 0, 5 }, { 7, 12 } },
          "spans[1] is bytes 7 to 12: byte 7 is in the middle of a UTF-8" },
        { { { 0, 7 }, { 9, 12 } }, "spans[0] is bytes 0 to 7: byte 7 is in the middle of a UTF-8" },
        { { { 0, 5 }, { 5, 6 } }, "spans[1], bytes 5 to 6, holds the end of no token" },
    };
    static const char *const text = "A dog \xc3\xbc"
                                    "ber a cat."; /* the umlaut is bytes 6 and 7 */
    static const size_t offsets[2] = { 0, 2 }, none[2] = { 0, 0 };
    gpuserve_model *model = open_model(0);
    struct wrong wrong = { OPTIONS(.method = 1, .chunk_by = 2), GPUSERVE_E_INVALID, NULL };

    wrong.options.span_offsets = offsets;
    for (size_t i = 0; i < sizeof(wrongs) / sizeof(wrongs[0]); i++) {
        wrong.options.spans = wrongs[i].spans;
        wrong.words = wrongs[i].words;
        expect_refused(model, text, &wrong);
    }
    wrong.options.span_offsets = none;
    wrong.words = "no spans";
    expect_refused(model, text, &wrong);
    gpuserve_model_close(&model);
}

Test(long_texts_refused, unsupported_models)
{
    static const char *const text = "A dog";
    struct wrong wrong = { OPTIONS(.method = 1), GPUSERVE_E_UNSUPPORTED,
                           "the model's embedding is not their mean" };
    gpuserve_model *model = open_model(GPUSERVE_POOLING_CLS);
    gpuserve_long_options windows = GPUSERVE_LONG_OPTIONS_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_long_texts *lt = NULL;

    expect_refused(model, text, &wrong);
    cr_assert_eq(gpuserve_long_texts_create(&lt, model, &text, NULL, 1, &windows, &error),
                 GPUSERVE_OK);
    cr_expect_eq(gpuserve_long_texts_run(lt, model, NULL, &error), GPUSERVE_OK); /* any pooling */
    gpuserve_long_texts_free(&lt);
    gpuserve_model_close(&model);
}

/* Too large a text, too many chunks, a model that was swapped, a deadline. */
Test(long_texts_refused, limits_and_requirements)
{
    static const char *const text = "A dog";
    const size_t sizes[] = { GPUSERVE_LONG_TEXT_BYTES + 1 };
    gpuserve_model *model = open_model(0);
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_job how = GPUSERVE_JOB_INIT;
    gpuserve_long_result result = GPUSERVE_LONG_RESULT_INIT;
    gpuserve_long_texts *lt = NULL;
    char *large = calloc(1, GPUSERVE_LONG_TEXT_BYTES + 1);

    cr_expect_eq(gpuserve_long_texts_create(&lt, model, (const char *const[]){ large }, sizes, 1,
                                            NULL, &error),
                 GPUSERVE_E_TOO_LARGE);
    cr_expect(strstr(error.message, "text 0: the text has 16777217 bytes, the limit is 16777216"),
              "%s", error.message);
    free(large);
    cr_assert_eq(gpuserve_long_texts_create(&lt, model, &text, NULL, 1, NULL, &error), GPUSERVE_OK);
    how.expected_fingerprint = "other";
    cr_expect_eq(gpuserve_long_texts_run(lt, model, &how, &error), GPUSERVE_E_MISMATCH);
    how.expected_fingerprint = NULL;
    how.deadline_us = -1;
    cr_expect_eq(gpuserve_long_texts_run(lt, model, &how, &error), GPUSERVE_E_EXPIRED);
    cr_expect_eq(gpuserve_long_texts_result(lt, &result, &error), GPUSERVE_OK);
    cr_expect_null(result.vectors);
    how.deadline_us = 0; /* a failed run is repeated */
    cr_expect_eq(gpuserve_long_texts_run(lt, model, &how, &error), GPUSERVE_OK, "%s",
                 error.message);
    cr_expect_eq(gpuserve_long_texts_result(lt, &result, &error), GPUSERVE_OK);
    cr_expect_not_null(result.vectors);
    cr_expect_eq(gpuserve_long_texts_result(NULL, &result, &error), GPUSERVE_E_INVALID);
    cr_expect_str_eq(error.message, "`long_texts` is NULL");
    result.struct_size = 8;
    cr_expect_eq(gpuserve_long_texts_result(lt, &result, &error), GPUSERVE_E_INVALID);
    cr_expect(strstr(error.message, "gpuserve_long_result: struct_size is 8"), "%s", error.message);
    cr_expect_eq(gpuserve_long_texts_run(NULL, model, NULL, &error), GPUSERVE_E_INVALID);
    cr_expect_eq(gpuserve_long_texts_run(lt, NULL, NULL, &error), GPUSERVE_E_INVALID);
    gpuserve_long_texts_free(&lt);
    gpuserve_model_close(&model);
}

/* The job's field on its own. */
Test(long_texts_refused, prompt_in_ids)
{
    static const int32_t ids[] = { 2, 5, 3 };
    static const size_t offsets[] = { 0, 3 };
    gpuserve_model *model = open_model(0);
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_job job = GPUSERVE_JOB_INIT;
    float row[32];
    const char *const text = "A";

    job.n_items = 1;
    job.ids = ids;
    job.id_offsets = offsets;
    job.output = row;
    job.output_capacity = 32;
    job.prompt_name = "query";
    cr_expect_eq(gpuserve_run(model, &job, &error), GPUSERVE_E_INVALID);
    cr_expect(strstr(error.message, "a prompt cannot be combined with token ids"), "%s",
              error.message);
    job.prompt_in_ids = 1;
    cr_expect_eq(gpuserve_run(model, &job, &error), GPUSERVE_OK, "%s", error.message);
    job.prompt_in_ids = 2;
    cr_expect_eq(gpuserve_run(model, &job, &error), GPUSERVE_E_INVALID);
    job.prompt_in_ids = 1;
    job.ids = NULL;
    job.id_offsets = NULL;
    job.texts = &text;
    cr_expect_eq(gpuserve_run(model, &job, &error), GPUSERVE_E_INVALID);
    cr_expect(strstr(error.message, "prompt_in_ids"), "%s", error.message);
    gpuserve_model_close(&model);
}
