/*
 * test_job.c - invalid jobs are rejected entirely, with a message that names the field; and the
 * effect of each field of a valid job.
 */
#define _GNU_SOURCE /* memfd_create */
#include "tests/runtime/fake.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const char *const two[] = { "first text", "second one" };
static const char *const with_null[] = { "first text", NULL };
static const char *const not_utf8[] = { "first text", "bad \xFF here" };
static const int32_t ids[] = { 1, 20, 2, 1, 30, 40, 2 };
static const size_t offsets[] = { 0, 3, 7 };
static const size_t huge[] = { 10, ((size_t)1 << 30) + 1 };
static const size_t falling[] = { 0, 3, 2 };
static const size_t with_empty[] = { 0, 3, 3 };
static const size_t from_one[] = { 1, 3, 7 };
static const int32_t wild_ids[] = { 1, 20, 2, 1, FAKE_VOCAB, 40, 2 };
static const int32_t negative_ids[] = { 1, 20, 2, 1, 30, -1, 2 };
static float rows[4 * FAKE_DIM];

struct bad_job {
    const char *what;
    gpuserve_job job; /* changes to a valid job of two texts */
    gpuserve_status status;
    const char *words; /* required part of the message */
};

/* clang-format off */
#define GOOD .struct_size = sizeof(gpuserve_job), .n_items = 2, .output = rows, \
             .output_capacity = 2 * FAKE_DIM
static const struct bad_job bad_jobs[] = {
    { "struct_size 0", { .n_items = 2 }, GPUSERVE_E_INVALID, "struct_size is 0" },
    { "too small a struct", { .struct_size = 16 }, GPUSERVE_E_INVALID, "struct_size is 16" },
    { "no input", { GOOD }, GPUSERVE_E_INVALID, "neither" },
    { "both inputs", { GOOD, .texts = two, .ids = ids, .id_offsets = offsets }, GPUSERVE_E_INVALID, "both" },
    { "ids without offsets", { GOOD, .ids = ids }, GPUSERVE_E_INVALID, "no `id_offsets`" },
    { "offsets without ids", { GOOD, .texts = two, .id_offsets = offsets }, GPUSERVE_E_INVALID, "no `ids`" },
    { "pairs without texts", { GOOD, .ids = ids, .id_offsets = offsets, .pairs = two }, GPUSERVE_E_INVALID, "no `texts`" },
    { "sizes without pairs", { GOOD, .texts = two, .pair_sizes = offsets }, GPUSERVE_E_INVALID, "no `pairs`" },
    { "NULL text", { GOOD, .texts = with_null }, GPUSERVE_E_INVALID, "item 1: the text is NULL" },
    { "NULL pair", { GOOD, .texts = two, .pairs = with_null }, GPUSERVE_E_INVALID, "item 1: the pair is NULL" },
    { "not UTF-8", { GOOD, .texts = not_utf8 }, GPUSERVE_E_INVALID, "item 1: the text is not UTF-8 at byte 4" },
    { "pair not UTF-8", { GOOD, .texts = two, .pairs = not_utf8 }, GPUSERVE_E_INVALID, "item 1: the pair is not UTF-8 at byte 4" },
    { "prompt not UTF-8", { GOOD, .texts = two, .prompt = "\x80" }, GPUSERVE_E_INVALID, "prompt is not UTF-8" },
    { "falling offsets", { GOOD, .ids = ids, .id_offsets = falling }, GPUSERVE_E_INVALID, "item 1 begins at 3 and ends at 2" },
    { "offsets from one", { GOOD, .ids = ids, .id_offsets = from_one }, GPUSERVE_E_INVALID, "item 0 begins at 1" },
    { "no ids in an item", { GOOD, .ids = ids, .id_offsets = with_empty }, GPUSERVE_E_INVALID, "item 1 has no ids" },
    { "id past the vocabulary", { GOOD, .ids = wild_ids, .id_offsets = offsets }, GPUSERVE_E_INVALID, "item 1: token id 1000 at index 1 is outside 0 to 999" },
    { "negative id", { GOOD, .ids = negative_ids, .id_offsets = offsets }, GPUSERVE_E_INVALID, "item 1: token id -1 at index 2" },
    { "unknown task", { GOOD, .texts = two, .task = 99 }, GPUSERVE_E_INVALID, "job.task is 99" },
    { "unknown truncation", { GOOD, .texts = two, .truncation = 9 }, GPUSERVE_E_INVALID, "job.truncation is 9" },
    { "unknown normalize", { GOOD, .texts = two, .normalize = 9 }, GPUSERVE_E_INVALID, "job.normalize is 9" },
    { "unknown score", { GOOD, .texts = two, .score = 9, .task = GPUSERVE_TASK_CLASSIFY }, GPUSERVE_E_INVALID, "job.score is 9" },
    { "unknown priority", { GOOD, .texts = two, .priority = 3 }, GPUSERVE_E_INVALID, "job.priority is 3, outside 0 to 2" },
    { "unknown cache", { GOOD, .texts = two, .cache = 9 }, GPUSERVE_E_INVALID, "job.cache is 9" },
    { "no cache", { GOOD, .texts = two, .cache = GPUSERVE_CACHE_ON }, GPUSERVE_E_UNSUPPORTED, "the model has no cache" },
    { "too many dimensions", { GOOD, .texts = two, .dimensions = 9 }, GPUSERVE_E_INVALID, "job.dimensions is 9, the model has 8" },
    { "dimensions of a class", { GOOD, .texts = two, .dimensions = 2, .task = GPUSERVE_TASK_CLASSIFY }, GPUSERVE_E_INVALID, "only for embeddings" },
    { "normalized classes", { GOOD, .texts = two, .normalize = 1, .task = GPUSERVE_TASK_CLASSIFY }, GPUSERVE_E_INVALID, "only for embeddings" },
    { "scored embedding", { GOOD, .texts = two, .score = 1 }, GPUSERVE_E_INVALID, "only for classification" },
    { "unknown prompt", { GOOD, .texts = two, .prompt_name = "qury" }, GPUSERVE_E_INVALID, "\"query\", \"passage\"" },
    { "two prompts", { GOOD, .texts = two, .prompt_name = "query", .prompt = "x" }, GPUSERVE_E_INVALID, "both `prompt` and `prompt_name`" },
    { "prompt before ids", { GOOD, .ids = ids, .id_offsets = offsets, .prompt = "x" }, GPUSERVE_E_INVALID, "combined with token ids" },
    { "no output", { .struct_size = sizeof(gpuserve_job), .n_items = 2, .texts = two }, GPUSERVE_E_INVALID, "`output` is NULL" },
    { "output one too small", { .struct_size = sizeof(gpuserve_job), .n_items = 2, .texts = two, .output = rows, .output_capacity = 15 }, GPUSERVE_E_INVALID, "capacity for 15 floats, 2 rows of 8 need 16" },
    { "stride under a row", { GOOD, .texts = two, .output_stride = 7 }, GPUSERVE_E_INVALID, "output_stride is 7, less than the row width 8" },
    { "a text of a gigabyte", { GOOD, .texts = two, .text_sizes = huge }, GPUSERVE_E_TOO_LARGE, "item 1: the text has 1073741825 bytes, the limit is 1073741824" },
    { "a stride that overflows", { GOOD, .texts = two, .output_stride = SIZE_MAX }, GPUSERVE_E_TOO_LARGE, "2 rows, 18446744073709551615 floats apart" },
    { "stride past the end", { GOOD, .texts = two, .output_stride = 9 }, GPUSERVE_E_INVALID, "need 17" },
    { "token vectors past the end", { GOOD, .texts = two, .task = GPUSERVE_TASK_TOKEN_VECTORS }, GPUSERVE_E_INVALID, "8 rows of 8 need 64" },
    { "offsets of an embedding", { GOOD, .texts = two, .token_offsets = (size_t *)1 }, GPUSERVE_E_INVALID, "one row per token" },
    { "labels of tokens", { GOOD, .texts = two, .task = GPUSERVE_TASK_TOKEN_LABELS }, GPUSERVE_E_UNSUPPORTED, "not a token classifier" },
    { "too many items", { .struct_size = sizeof(gpuserve_job), .n_items = SIZE_MAX, .texts = two, .output = rows }, GPUSERVE_E_TOO_LARGE, "items" },
};
/* clang-format on */

Test(job, what_is_wrong_is_refused_in_words_and_outputs_stay)
{
    gpuserve_model *model = fake_open(0, 0, 0);

    for (size_t i = 0; i < sizeof(bad_jobs) / sizeof(bad_jobs[0]); i++) {
        const struct bad_job *bad = &bad_jobs[i];
        gpuserve_error error = GPUSERVE_ERROR_INIT;
        gpuserve_request *request = (gpuserve_request *)1;

        memset(rows, 0x33, sizeof(rows));
        cr_expect_eq(gpuserve_run(model, &bad->job, &error), bad->status, "%s: %s", bad->what,
                     error.message);
        cr_expect_eq(error.status, (int32_t)bad->status, "%s", bad->what);
        cr_expect_neq(strstr(error.message, bad->words), NULL, "%s: %s", bad->what, error.message);
        cr_expect_eq(gpuserve_submit(&request, model, &bad->job, NULL, NULL, NULL), bad->status,
                     "%s", bad->what);
        cr_expect_null(request, "%s", bad->what);
        for (size_t j = 0; j < sizeof(rows); j++)
            cr_assert_eq(((unsigned char *)rows)[j], 0x33, "%s", bad->what);
    }
    cr_expect_eq(fake_batches(), 0, "nothing ran");
    cr_expect_eq(gpuserve_run(model, NULL, NULL), GPUSERVE_E_INVALID);
    cr_expect_eq(gpuserve_run(NULL, &bad_jobs[0].job, NULL), GPUSERVE_E_INVALID);
    cr_expect_eq(gpuserve_embed(model, NULL, 2, rows, 16, NULL, NULL), GPUSERVE_E_INVALID);
    cr_expect_eq(gpuserve_embed(model, two, 2, NULL, 16, NULL, NULL), GPUSERVE_E_INVALID);
    gpuserve_model_close(&model);
}

/* One megabyte of text, repeated a thousand times. */
Test(job, a_prompt_of_a_gigabyte_is_refused)
{
    enum { PART = 1 << 20, PARTS = 1024 };
    const int fd = memfd_create("prompt", 0);
    char *part = malloc(PART), *prompt;
    gpuserve_model *model = fake_open(0, 0, 0);
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_job job = fake_job(two, 2, rows);

    memset(part, 'a', PART);
    cr_assert_eq(write(fd, part, PART), PART);
    prompt = mmap(NULL, (size_t)PART * (PARTS + 1), PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq(prompt, MAP_FAILED);
    for (size_t i = 0; i < PARTS; i++)
        cr_assert_neq(mmap(prompt + i * PART, PART, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0),
                      MAP_FAILED);
    cr_assert_neq(mmap(prompt + (size_t)PART * PARTS, PART, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
                  MAP_FAILED);
    prompt[(size_t)PART * PARTS] = 'a';
    job.prompt = prompt;
    cr_expect_eq(gpuserve_run(model, &job, &error), GPUSERVE_E_TOO_LARGE);
    cr_expect_str_eq(error.message, "the prompt has 1073741825 bytes, the limit is 1073741824");
    munmap(prompt, (size_t)PART * (PARTS + 1));
    close(fd);
    free(part);
    gpuserve_model_close(&model);
}

/* A job struct of a later version of the header. */
struct longer_job {
    gpuserve_job job;
    uint64_t later;
};

Test(job, structs_of_other_sizes_are_read_or_refused)
{
    gpuserve_model *model = fake_open(0, 0, 0);
    struct longer_job longer = { fake_job(two, 2, rows), 0 };
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_job options = { 0 };

    longer.job.struct_size = sizeof(longer);
    cr_expect_eq(gpuserve_run(model, &longer.job, &error), GPUSERVE_OK, "%s", error.message);
    longer.later = 1;
    cr_expect_eq(gpuserve_run(model, &longer.job, &error), GPUSERVE_E_INVALID);
    cr_expect_neq(strstr(error.message, "gpuserve_job: the field"), NULL, "%s", error.message);
    cr_expect_eq(gpuserve_embed(model, two, 2, rows, 16, &options, &error), GPUSERVE_E_INVALID);
    cr_expect_neq(strstr(error.message, "gpuserve_job: struct_size is 0"), NULL, "%s",
                  error.message);
    gpuserve_model_close(&model);
}

Test(job, nothing_to_do_is_done)
{
    gpuserve_model *model = fake_open(0, 0, 0);
    gpuserve_job job = GPUSERVE_JOB_INIT;
    size_t token_offset = 7;

    cr_expect_eq(gpuserve_run(model, &job, NULL), GPUSERVE_OK);
    cr_expect_eq(gpuserve_embed(model, NULL, 0, NULL, 0, NULL, NULL), GPUSERVE_OK);
    cr_expect_eq(gpuserve_classify(model, NULL, 0, NULL, 0, NULL, NULL), GPUSERVE_OK);
    job.task = GPUSERVE_TASK_TOKEN_VECTORS;
    job.token_offsets = &token_offset;
    cr_expect_eq(gpuserve_run(model, &job, NULL), GPUSERVE_OK);
    cr_expect_eq(token_offset, 0);
    gpuserve_model_close(&model);
}

Test(job, prompts_go_before_the_text)
{
    gpuserve_model *model = fake_open(0, 0, 0);
    gpuserve_job options = GPUSERVE_JOB_INIT;
    const char *const text[] = { "food" };
    float row[FAKE_DIM], want[FAKE_DIM];

    options.prompt_name = "passage";
    cr_expect_eq(gpuserve_embed(model, text, 1, row, FAKE_DIM, &options, NULL), GPUSERVE_OK);
    fake_vector("passage: food", want);
    cr_expect_eq(memcmp(row, want, sizeof(want)), 0);
    options.prompt_name = NULL;
    options.prompt = "eat my ";
    cr_expect_eq(gpuserve_embed(model, text, 1, row, FAKE_DIM, &options, NULL), GPUSERVE_OK);
    fake_vector("eat my food", want);
    cr_expect_eq(memcmp(row, want, sizeof(want)), 0);
    gpuserve_model_close(&model);
}

Test(job, sizes_let_texts_be_slices_and_hold_nul_bytes)
{
    gpuserve_model *model = fake_open(0, 0, 0);
    const char *const texts[] = { "foodie", "a\0b" };
    const size_t sizes[] = { 4, 3 };
    gpuserve_job job = fake_job(texts, 2, rows);
    float want[FAKE_DIM];
    gpuserve_item items[2];

    job.text_sizes = sizes;
    job.items = items;
    cr_expect_eq(gpuserve_run(model, &job, NULL), GPUSERVE_OK);
    fake_vector("food", want);
    cr_expect_eq(memcmp(rows, want, sizeof(want)), 0);
    cr_expect_eq(items[1].n_tokens, 3);
    gpuserve_model_close(&model);
}

Test(job, a_long_text_is_cut_and_told_or_refused)
{
    gpuserve_model *model = fake_open(0, 0, 0);
    char text[FAKE_MAX_TOKENS * 3];
    const char *const texts[] = { "short", text };
    gpuserve_item items[2];
    gpuserve_job job = fake_job(texts, 2, rows);
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    for (size_t i = 0; i < sizeof(text); i++)
        text[i] = i % 2 ? ' ' : 'a';
    text[sizeof(text) - 1] = '\0';
    job.items = items;
    cr_expect_eq(gpuserve_run(model, &job, NULL), GPUSERVE_OK);
    cr_expect_eq(items[0].truncated, 0);
    cr_expect_eq(items[1].truncated, 1);
    cr_expect_eq(items[1].n_tokens, FAKE_MAX_TOKENS);
    job.truncation = GPUSERVE_TRUNCATE_STRICT;
    cr_expect_eq(gpuserve_run(model, &job, &error), GPUSERVE_E_TOO_LARGE);
    cr_expect_neq(strstr(error.message, "item 1"), NULL, "%s", error.message);
    gpuserve_model_close(&model);
}

Test(job, rows_keep_their_stride_and_the_gap_is_untouched)
{
    gpuserve_model *model = fake_open(0, 0, 0);
    gpuserve_job job = fake_job(two, 2, rows);
    float want[FAKE_DIM];

    job.output_stride = FAKE_DIM + 3;
    job.output_capacity = 2 * FAKE_DIM + 3;
    for (size_t i = 0; i < 4 * FAKE_DIM; i++)
        rows[i] = -1;
    cr_expect_eq(gpuserve_run(model, &job, NULL), GPUSERVE_OK);
    for (size_t i = 0; i < 2; i++) {
        fake_vector(two[i], want);
        cr_expect_eq(memcmp(rows + i * job.output_stride, want, sizeof(want)), 0);
    }
    for (size_t i = 0; i < 3; i++)
        cr_expect_eq(rows[FAKE_DIM + i], -1);
    cr_expect_eq(rows[2 * FAKE_DIM + 3], -1);
    gpuserve_model_close(&model);
}

Test(job, token_vectors_have_a_row_for_each_token_and_pairs_their_second_type)
{
    gpuserve_model *model = fake_open(0, 0, 0);
    float vectors[16 * FAKE_DIM];
    gpuserve_job job = GPUSERVE_JOB_INIT;
    size_t token_offsets[3];

    job.task = GPUSERVE_TASK_TOKEN_VECTORS;
    job.n_items = 2;
    job.ids = ids;
    job.id_offsets = offsets;
    job.output = vectors;
    job.output_capacity = sizeof(vectors) / sizeof(vectors[0]);
    job.token_offsets = token_offsets;
    cr_expect_eq(gpuserve_run(model, &job, NULL), GPUSERVE_OK);
    for (size_t i = 0; i < 3; i++)
        cr_expect_eq(token_offsets[i], offsets[i]);
    for (size_t t = 0; t < 7; t++) {
        const float position = (float)(t < 3 ? t : t - 3);

        cr_expect_float_eq(vectors[t * FAKE_DIM], (float)ids[t] + position / 1000, 1e-4);
    }
    job.ids = NULL;
    job.id_offsets = NULL;
    job.n_items = 1;
    job.texts = two;
    job.pairs = two + 1;
    cr_expect_eq(gpuserve_run(model, &job, NULL), GPUSERVE_OK);
    cr_expect_eq(token_offsets[1], 6);
    cr_expect_lt(vectors[3 * FAKE_DIM], 1000);
    cr_expect_gt(vectors[4 * FAKE_DIM], 100000, "the pair's tokens are of type 1");
    gpuserve_model_close(&model);
}
