/*
 * test_json_tree.c - the JSON tree, and the one of jansson values, against jansson's result for the
 * same bytes.
 *
 * Inputs: the fuzz corpus, hand-written texts, and thousands of damaged ones.
 */
#include "lib/base/json_tree.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <jansson.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct gsv_json_limits limits = { 100000, 64 };

static bool same(const struct gsv_json_value *ours, const json_t *theirs)
{
    const char *key;
    json_t *member;
    size_t i = 0;

    switch (json_typeof(theirs)) {
    case JSON_NULL:
        return ours->kind == GSV_JSON_NULL;
    case JSON_TRUE:
    case JSON_FALSE:
        return ours->kind == GSV_JSON_BOOL && ours->is.boolean == json_is_true(theirs);
    case JSON_INTEGER: /* only "-0" differs */
        return ours->kind == GSV_JSON_INT ? ours->is.whole == (int64_t)json_integer_value(theirs)
                                          : ours->kind == GSV_JSON_NUMBER && ours->is.real == 0 &&
                                                json_integer_value(theirs) == 0;
    case JSON_REAL: /* integers beyond 64 bits too */
        return ours->kind == GSV_JSON_INT
                   ? (double)ours->is.whole == json_real_value(theirs)
                   : ours->kind == GSV_JSON_NUMBER && ours->is.real == json_real_value(theirs);
    case JSON_STRING:
        return ours->kind == GSV_JSON_STRING && ours->n == json_string_length(theirs) &&
               memcmp(ours->is.text, json_string_value(theirs), ours->n + 1) == 0;
    case JSON_ARRAY:
        if (ours->kind != GSV_JSON_ARRAY || gsv_json_count(ours) != json_array_size(theirs))
            return false;
        for (i = 0; i < ours->n; i++)
            if (!same(gsv_json_at(ours, i), json_array_get(theirs, i)))
                return false;
        return true;
    default:
        if (ours->kind != GSV_JSON_OBJECT || ours->n != json_object_size(theirs))
            return false;
        json_object_foreach((json_t *)theirs, key, member)
        {
            /* jansson keeps the order of the fields. */
            if (strcmp(ours->is.fields[i]->key, key) != 0 ||
                gsv_json_member(ours, key) != ours->is.fields[i] ||
                !same(ours->is.fields[i], member))
                return false;
            i++;
        }
        return true;
    }
}

static json_t *read_with_jansson(const char *text, size_t size)
{
    static const size_t flags = JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL;
    json_error_t error;
    json_t *json = json_loadb(text, size, flags, &error);

    if (!json && json_error_code(&error) == json_error_numeric_overflow)
        json = json_loadb(text, size, flags | JSON_DECODE_INT_AS_REAL, &error);
    return json;
}

static bool compare(const char *text, size_t size)
{
    struct gsv_json_value *ours = NULL;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    json_t *theirs = read_with_jansson(text, size), *values = NULL;
    const gpuserve_status st = gsv_json_read(&ours, text, size, "case", limits, &error);
    const bool accepted = st == GPUSERVE_OK;

    cr_expect_eq(gsv_json_parse(&values, text, size, "case", limits, NULL), st, "%.*s", (int)size,
                 text);
    cr_expect_eq(accepted, values != NULL);
    if (accepted && values)
        cr_expect(same(ours, values), "%.*s", (int)size, text);
    json_decref(values);
    if (st == GPUSERVE_E_TOO_LARGE) { /* jansson does not have our limits */
        json_decref(theirs);
        return false;
    }
    cr_expect_eq(accepted, theirs != NULL, "%.*s: %s", (int)size, text, error.message);
    cr_expect_eq(accepted, ours != NULL);
    if (accepted && theirs)
        cr_expect(same(ours, theirs), "%.*s", (int)size, text);
    gsv_json_free(&ours);
    json_decref(theirs);
    return accepted;
}

static const char *const texts[] = {
    "{\"a\": [1, -2.5e3, true, false, null, \"x\\n\\u00e9\\ud83d\\ude00\"], \"b\": {}, \"c\": []}",
    "[0, -1, 9223372036854775807, -9223372036854775808, 9223372036854775808, 1e-12, 0.1]",
    "[1000000000000000019884624838656, 512, 1E+2, 1e400]",
    "[1e308, 1.7976931348623157e308, 4.9e-324, 2.2250738585072014e-308, 123456789012345678]",
    "{\"id2label\": {\"0\": \"no\", \"1\": \"yes\"}, \"\": 1, \"\\u0041\": 2}",
    "  \"a \\\"text\\\" with \\\\ and \\u0000\"  ",
    "{\"a\": 1, \"a\": 2}",
    "[[[[[[[[[[]]]]]]]]]]",
    "nul",
    "truefalse",
    "01",
    "-",
    "-0",
    "1.",
    ".5",
    "1e",
    "+1",
    "[1,]",
    "{\"a\":1,}",
    "[1 2]",
    "{\"a\" 1}",
    "{a: 1}",
    "\"\\ud800\"",
    "\"\\ud800\\u0041\"",
    "\"\\x\"",
    "\"\x01\"",
    "\"\xC3\x28\"",
    "{\"a\\u0000b\": 1}",
    "",
    " ",
    "[1] x",
};

Test(json_tree, equals_janssons)
{
    size_t n_good = 0;

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        n_good += compare(texts[i], strlen(texts[i]));
    cr_expect_eq(n_good, 7, "%zu", n_good);
}

Test(json_tree, equals_janssons_for_damaged_texts)
{
    static const char pieces[] = "{}[]\",:\\0123456789-+.eEtrufalsn \xC3\xA9";
    uint32_t random = 1;
    size_t n_good = 0;

    for (int round = 0; round < 40000; round++) {
        const char *text = texts[(size_t)round % 6];
        char damaged[256];
        size_t size = strlen(text);

        memcpy(damaged, text, size);
        for (int i = 0; i <= round % 3; i++) {
            random = random * 1664525u + 1013904223u;
            const size_t at = (random >> 8) % size;
            random = random * 1664525u + 1013904223u;
            if (round % 4 == 0) {
                memmove(damaged + at, damaged + at + 1, --size - at);
                continue;
            }
            damaged[at] = pieces[(random >> 8) % (sizeof(pieces) - 1)];
        }
        n_good += compare(damaged, size);
    }
    cr_expect_gt(n_good, 2000, "%zu", n_good);
}

Test(json_tree, equals_janssons_for_kept_fuzz_inputs)
{
    DIR *folder = opendir(FUZZ_CORPUS);
    const struct dirent *entry;
    size_t n = 0;

    cr_assert_not_null(folder);
    while ((entry = readdir(folder))) {
        char path[1024], *bytes = malloc(1 << 20);
        size_t size;
        FILE *file;

        snprintf(path, sizeof(path), "%s/%s", FUZZ_CORPUS, entry->d_name);
        file = entry->d_name[0] == '.' ? NULL : fopen(path, "rb");
        if (file) {
            size = fread(bytes, 1, 1 << 20, file);
            fclose(file);
            compare(bytes, size);
            n++;
        }
        free(bytes);
    }
    closedir(folder);
    cr_expect_gt(n, 5);
}

Test(json_tree, a_number_is_the_same_in_every_locale)
{
    static const char text[] = "[0.5, 1e-12]";
    struct gsv_json_value *root = NULL;

    if (!setlocale(LC_ALL, "de_DE.UTF-8")) /* if missing, "C" is sufficient */
        setlocale(LC_ALL, "C");
    cr_assert_eq(gsv_json_read(&root, text, strlen(text), "case", limits, NULL), GPUSERVE_OK);
    cr_expect_eq(gsv_json_at(root, 0)->is.real, 0.5);
    cr_expect_eq(gsv_json_at(root, 1)->is.real, 1e-12);
    gsv_json_free(&root);
}

Test(json_tree, absent_things_are_nothing)
{
    cr_expect_null(gsv_json_member(NULL, "a"));
    cr_expect_null(gsv_json_at(NULL, 0));
    cr_expect_null(gsv_json_get_string(NULL));
    cr_expect_eq(gsv_json_count(NULL), 0);
    cr_expect_eq(gsv_json_get_int(NULL), 0);
    cr_expect(!gsv_json_is(NULL, GSV_JSON_NULL));
    gsv_json_free(NULL);
}
