/*
 * test_json_members.c - lib/base: JSON fields of the wrong type or out of range, overlong numbers,
 * truncated text.
 */
#include "lib/base/json_reader.h"
#include "lib/base/json_tree.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct gsv_json_value *json;
static gpuserve_error error;

static void read_json(const char *text)
{
    static const struct gsv_json_limits limits = { 100, 8 };

    error = (gpuserve_error)GPUSERVE_ERROR_INIT;
    cr_assert_eq(gsv_json_read(&json, text, strlen(text), "t", limits, &error), GPUSERVE_OK, "%s",
                 error.message);
}

static void expect_refused(gpuserve_status st, const char *says)
{
    cr_expect_eq(st, GPUSERVE_E_FORMAT);
    cr_expect(strstr(error.message, says), "'%s' is not in: %s", says, error.message);
}

Test(json_members, of_the_wrong_kind)
{
    static const char *const others[] = { "text", "object", "array", "truth" };
    int64_t whole = 7;
    double real = 7;
    bool boolean = true;
    const char *text = "7";

    read_json("{\"text\":\"1\",\"object\":{},\"array\":[],\"truth\":false,\"whole\":5,\"real\":1.5,"
              "\"huge\":9007199254740992.0,\"null\":null}");
    for (size_t i = 0; i < 4; i++) {
        expect_refused(gsv_json_int(json, others[i], "t", 0, 9, &whole, &error), "whole number");
        expect_refused(gsv_json_double(json, others[i], "t", 0, 9, &real, &error), "not a number");
    }
    expect_refused(gsv_json_int(json, "real", "t", 0, 9, &whole, &error), "whole number");
    expect_refused(gsv_json_int(json, "huge", "t", 0, INT64_MAX, &whole, &error), "whole number");
    expect_refused(gsv_json_int(json, "whole", "t", 0, 4, &whole, &error), "is 5, outside 0 to 4");
    expect_refused(gsv_json_int(json, "whole", "t", 6, 9, &whole, &error), "is 5, outside 6 to 9");
    expect_refused(gsv_json_double(json, "real", "t", 0, 1, &real, &error), "outside 0 to 1");
    expect_refused(gsv_json_double(json, "real", "t", 2, 3, &real, &error), "outside 2 to 3");
    expect_refused(gsv_json_bool(json, "whole", "t", &boolean, &error), "not true or false");
    expect_refused(gsv_json_bool(json, "text", "t", &boolean, &error), "not true or false");
    expect_refused(gsv_json_string(json, "whole", "t", &text, &error), "not a string");
    expect_refused(gsv_json_need(json, "text", GSV_JSON_ARRAY, "t", &error), "not an array");
    expect_refused(gsv_json_need(json, "absent", GSV_JSON_ARRAY, "t", &error), "is missing");
    cr_expect(whole == 7 && real > 6.9 && boolean && strcmp(text, "7") == 0, "left as they were");
    cr_expect_eq(gsv_json_need(json, "array", GSV_JSON_ARRAY, "t", &error), GPUSERVE_OK);
    cr_expect_eq(gsv_json_int(json, "null", "t", 0, 9, &whole, &error), GPUSERVE_OK);
    gsv_json_free(&json);
}

Test(json_members, a_number_of_too_many_digits)
{
    static const struct gsv_json_limits limits = { 10, 4 };
    char text[512];

    error = (gpuserve_error)GPUSERVE_ERROR_INIT;
    memset(text, '0', sizeof(text));
    memcpy(text, "0.", 2);
    cr_expect_eq(gsv_json_read(&json, text, 400, "t", limits, &error), GPUSERVE_OK, "%s",
                 error.message);
    gsv_json_free(&json);
    expect_refused(gsv_json_read(&json, text, 401, "t", limits, &error),
                   "more than 400 characters");
    cr_expect_null(json);
}

/* Bytes after the end are never read. */
Test(json_members, a_reader_stops_at_the_end)
{
    static const char text[] = "{\"a\":1}";
    struct gsv_json_slice key;
    bool more;

    error = (gpuserve_error)GPUSERVE_ERROR_INIT;
    for (size_t size = 0; size < 5; size++) {
        struct gsv_json_reader r = gsv_json_reader_of((struct gsv_json_slice){ text, size }, "t");
        gpuserve_status st = gsv_json_reader_open(&r, '{', &error);

        if (size > 0) {
            cr_expect_eq(st, GPUSERVE_OK);
            st = gsv_json_reader_key(&r, true, &more, &key, &error);
        }
        cr_expect_eq(st, GPUSERVE_E_FORMAT, "%zu bytes", size);
    }
}
