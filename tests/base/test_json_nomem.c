/*
 * test_json_nomem.c - JSON for jansson while one allocation fails: the result is complete or an
 * error.
 */
#include "lib/base/json_tree.h"
#include "tests/base/failing_malloc.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static const char text[] =
    "{\"a text of more than sixteen bytes\": [1, 2.5, true, null, \"another that is as long\"],"
    " \"object\": {\"numbers\": [1234567890123456, 0.12345678901234567], \"empty\": []},"
    " \"a third text, with \\u00e9 and \\\"marks\\\"\": \"and what it says at some length\"}";

static gpuserve_status parse(json_t **json)
{
    return gsv_json_parse(json, text, strlen(text), "text", (struct gsv_json_limits){ 100, 8 },
                          NULL);
}

static void fail_each(const json_t *whole, bool forever)
{
    bool fired = true;
    long n = 0;

    while (fired) {
        const long before = failing_malloc_live_blocks();
        json_t *json = NULL;
        gpuserve_status st;

        failing_malloc_arm(++n, forever);
        st = parse(&json);
        fired = failing_malloc_fired();
        failing_malloc_arm(0, false);
        cr_assert_eq(st, fired ? GPUSERVE_E_NOMEM : GPUSERVE_OK, "allocation %ld", n);
        cr_assert(fired ? json == NULL : json_equal(json, whole), "allocation %ld", n);
        json_decref(json);
        cr_assert_eq(failing_malloc_live_blocks(), before, "allocation %ld", n);
    }
    cr_expect_gt(n, 20, "only %ld allocations", n);
}

Test(json_nomem, damaged_nowhere)
{
    json_t *whole = NULL, *theirs = json_loads(text, 0, NULL);

    cr_assert_eq(parse(&whole), GPUSERVE_OK);
    cr_assert(json_equal(whole, theirs));
    fail_each(whole, false);
    fail_each(whole, true);
    json_decref(whole);
    json_decref(theirs);
}

/* A text that is longer than jansson's first buffer, which has to grow. */
Test(json_nomem, a_text_is_complete_or_absent)
{
    const size_t flags = JSON_INDENT(2) | JSON_SORT_KEYS;
    json_t *json = json_loads(text, 0, NULL);
    char *whole = json_dumps(json, flags);
    bool fired = true;
    long n = 0;

    cr_assert(whole && strlen(whole) > 256);
    while (fired) {
        const long before = failing_malloc_live_blocks();
        char *dumped;

        failing_malloc_arm(++n, false);
        dumped = gsv_json_dump(json, flags);
        fired = failing_malloc_fired();
        failing_malloc_arm(0, false);
        cr_assert(fired ? dumped == NULL : dumped && strcmp(dumped, whole) == 0, "allocation %ld",
                  n);
        free(dumped);
        cr_assert_eq(failing_malloc_live_blocks(), before, "allocation %ld", n);
    }
    cr_expect_gt(n, 1);
    cr_expect_null(gsv_json_dump(NULL, flags));
    free(whole);
    json_decref(json);
}
