/*
 * test_nomem.c - every allocation failed in turn; and none at all once an encoding is warm.
 */
#include "tests/base/failing_malloc.h"
#include "tests/text/support.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char text[] =
    "Na\xC3\xAFve unaffable words [NEW] and n\xC3\xA9w, \xE5\xAD\x97\xE3\x80\xAE\xE3\x80\xAF!";

/* A tokenizer that takes every way: added tokens of both kinds, a chain of steps. */
static char *rich_json(void)
{
    return tokenizer_json(
        "[{\"id\": 0, \"content\": \"[NEW]\", \"single_word\": false, \"lstrip\": false,"
        " \"rstrip\": false, \"normalized\": false, \"special\": true},"
        " {\"id\": 1, \"content\": \"N\\u00e9w\", \"single_word\": false, \"lstrip\": false,"
        " \"rstrip\": false, \"normalized\": true, \"special\": false}]",
        "{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFKC\"}, {\"type\":"
        " \"Replace\", \"pattern\": {\"String\": \"x\"}, \"content\": \"yy\"},"
        " {\"type\": \"BertNormalizer\", \"clean_text\": true, \"handle_chinese_chars\": true,"
        " \"lowercase\": true}]}",
        "{\"type\": \"BertPreTokenizer\"}",
        "{\"type\": \"BertProcessing\", \"sep\": [\"[SEP]\", 2], \"cls\": [\"[CLS]\", 1]}");
}

Test(nomem, loading_and_encoding_survive_any_failed_allocation)
{
    char folder[] = "/tmp/gpuserve-nomem-XXXXXX", path[256], *json = rich_json();
    long n = 1, loads = 0;
    bool through = false;
    struct gsv_dir *dir = NULL;
    FILE *file;

    cr_assert(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/tokenizer.json", folder);
    file = fopen(path, "w");
    cr_assert(file && fputs(json, file) >= 0 && fclose(file) == 0);
    cr_assert_eq(gsv_dir_open(&dir, folder, NULL), GPUSERVE_OK);
    for (; !through && n < 100000; n++) {
        const long before = failing_malloc_live_blocks();
        struct gsv_tokenizer *t = NULL;
        struct gsv_encoding e = { 0 };
        gpuserve_status status;

        failing_malloc_arm(n, false);
        status = gsv_tokenizer_load(&t, dir, NULL, NULL);
        loads += status == GPUSERVE_OK;
        if (status == GPUSERVE_OK)
            status =
                gsv_tokenizer_encode(t, &e, text, strlen(text), text, strlen(text), NULL, NULL);
        through = !failing_malloc_fired();
        failing_malloc_arm(0, false);
        cr_assert_eq(status, through ? GPUSERVE_OK : GPUSERVE_E_NOMEM, "allocation %ld", n);
        gsv_encoding_reset(&e);
        gsv_tokenizer_free(&t);
        cr_assert_eq(failing_malloc_live_blocks(), before, "allocation %ld leaks", n);
    }
    cr_expect(through);
    cr_expect_gt(loads, 5, "encoding was never reached");
    gsv_dir_close(&dir);
    unlink(path);
    rmdir(folder);
    free(json);
}

Test(nomem, a_warm_encoding_allocates_nothing)
{
    struct gsv_tokenizer *t = real_tokenizer("all-MiniLM-L6-v2"), *rich = NULL;
    struct gsv_tokenizer *each[2];
    char *json = rich_json();

    cr_assert_eq(load_text(&rich, "tokenizer.json", json, strlen(json), NULL), GPUSERVE_OK);
    free(json);
    each[0] = t;
    each[1] = rich;
    for (int i = 0; i < 2; i++) {
        struct gsv_encoding e = { 0 };

        cr_assert_eq(
            gsv_tokenizer_encode(each[i], &e, text, strlen(text), text, strlen(text), NULL, NULL),
            GPUSERVE_OK);
        failing_malloc_arm(1, true);
        for (int k = 0; k < 100; k++)
            cr_assert_eq(gsv_tokenizer_encode(each[i], &e, text, strlen(text), text,
                                              strlen(text) - (k % 2 ? 1 : 0), NULL, NULL),
                         GPUSERVE_OK);
        cr_expect(!failing_malloc_fired());
        failing_malloc_arm(0, false);
        gsv_encoding_reset(&e);
    }
    gsv_tokenizer_free(&t);
    gsv_tokenizer_free(&rich);
}
