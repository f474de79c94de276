/*
 * test_selector.c - parsing of device selectors: each keyword, and each error.
 */
#define _GNU_SOURCE
#include "lib/runtime/devices/selector.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static struct gsv_selector selector;
static gpuserve_error error;

static gpuserve_status parse(const char *text)
{
    error = (gpuserve_error)GPUSERVE_ERROR_INIT;
    return gsv_selector_parse(&selector, text, &error);
}

static void good(const char *text)
{
    cr_assert_eq(parse(text), GPUSERVE_OK, "%s: %s", text, error.message);
}

struct wrong {
    const char *text, *message, *hint;
};

static void refused(const struct wrong *wrong)
{
    cr_expect_eq(parse(wrong->text), GPUSERVE_E_INVALID, "%s", wrong->text);
    cr_expect(strstr(error.message, wrong->message), "%s: %s", wrong->text, error.message);
    cr_expect(!wrong->hint || strstr(error.hint, wrong->hint), "%s: %s", wrong->text, error.hint);
}

/* `begin` followed by `n` words as a list. */
static const char *list(const char *begin, const char *word, int n)
{
    static char text[GSV_SELECTOR_BYTES];
    size_t at = (size_t)snprintf(text, sizeof(text), "auto:%s=%s", begin, word);

    for (int i = 1; i < n; i++)
        at += (size_t)snprintf(text + at, sizeof(text) - at, ",%s", word);
    return text;
}

Test(selector, kinds)
{
    char long_name[GSV_SELECTOR_BYTES + 1];

    good(NULL);
    cr_expect(selector.kind == GSV_SELECT_AUTO && !selector.has_options);
    good("cpu");
    cr_expect_eq(selector.kind, GSV_SELECT_CPU);
    good("cuda:7");
    cr_expect(selector.kind == GSV_SELECT_CUDA && selector.index == 7);
    good("cuda:*");
    cr_expect_eq(selector.kind, GSV_SELECT_ALL);
    good("GPU-8000");
    cr_expect(selector.kind == GSV_SELECT_UUID && strcmp(selector.uuid, "GPU-8000") == 0);
    refused(&(struct wrong){ "cuda:1234567", "is not a device", "cuda:N" });
    refused(&(struct wrong){ "cuda:", "is not a device", "cuda:N" });
    refused(&(struct wrong){ "cuda:1x", "is not a device", "cuda:N" });
    refused(&(struct wrong){ "cuad", "is not a device", "did you mean \"cuda\"?" });
    refused(&(struct wrong){ "GPU-", "is not a device", NULL });
    memset(long_name, 'G', sizeof(long_name));
    long_name[sizeof(long_name) - 1] = 0;
    refused(&(struct wrong){ long_name, "longer than 2048 bytes", NULL });
    long_name[sizeof(long_name) - 2] = 0;
    refused(&(struct wrong){ long_name, "is not a device", NULL });
}

Test(selector, lists)
{
    char text[12 * (GSV_SELECTOR_LIST + 1)] = "";

    good("cuda:3,cuda:0,cuda:12");
    cr_expect(selector.kind == GSV_SELECT_LIST && selector.n_list == 3);
    cr_expect(selector.list[0] == 3 && selector.list[1] == 0 && selector.list[2] == 12);
    refused(&(struct wrong){ "cuda:0,cuda:1,cuda:0", "has cuda:0 twice", NULL });
    refused(&(struct wrong){ "cuda:0,", "is not a device", "cuda:N,cuda:N" });
    refused(&(struct wrong){ "cuda:0,,cuda:1", "is not a device", NULL });
    refused(&(struct wrong){ "cuda:0,1", "is not a device", NULL });
    refused(&(struct wrong){ "cuda:0,cuda:", "is not a device", NULL });
    refused(&(struct wrong){ "cuda:0,cuda:1x", "is not a device", NULL });
    refused(&(struct wrong){ "cuda:*,cuda:1", "is not a device", NULL });
    refused(&(struct wrong){ "cuda:0,cpu", "is not a device", NULL });
    refused(&(struct wrong){ "cpu,cuda:0", "is not a device", NULL });
    for (int i = 0; i < GSV_SELECTOR_LIST; i++)
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%scuda:%d", i ? "," : "", i);
    good(text);
    cr_expect_eq(selector.n_list, GSV_SELECTOR_LIST);
    strcat(text, ",cuda:999");
    refused(&(struct wrong){ text, "has more than 32 devices", NULL });
}

Test(selector, options)
{
    good("auto:order=load");
    cr_expect(selector.order == GSV_ORDER_LOAD && selector.limit == 1);
    cr_expect(selector.max_load == 0.5 && selector.max_memory == 0.5 && !selector.include_unknown);
    good("auto:limit=3,max_load=0.25,max_memory=75%,memory_free=8G,include_unknown=yes");
    cr_expect(selector.limit == 3 && selector.max_load == 0.25 && selector.max_memory == 0.75);
    cr_expect(selector.memory_free_bytes == UINT64_C(8) << 30 && selector.include_unknown);
    good("auto:exclude=0,3,exclude_uuid=GPU-1,GPU-2,max_load=1.");
    cr_expect(selector.n_exclude == 2 && selector.exclude[1] == 3 && selector.n_exclude_uuid == 2);
    cr_expect(selector.max_load == 1);
    for (size_t i = 0; i < 3; i++) {
        static const char *const yes[] = { "yes", "1", "true" }, *const no[] = { "no", "0",
                                                                                 "false" };
        char text[40];

        snprintf(text, sizeof(text), "auto:include_unknown=%s", yes[i]);
        good(text);
        cr_expect(selector.include_unknown);
        snprintf(text, sizeof(text), "auto:include_unknown=%s", no[i]);
        good(text);
        cr_expect_not(selector.include_unknown);
    }
    good(list("exclude", "1", 32));
    good(list("exclude_uuid", "GPU-1", 32));
}

Test(selector, sizes)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } cases[] = { { "0", 0 },
                  { "17", UINT64_C(17) << 20 },
                  { "4k", 4096 },
                  { "4KiB", 4096 },
                  { "4mb", 4 << 20 },
                  { "2T", UINT64_C(2) << 40 },
                  { "999999999M", UINT64_C(999999999) << 20 },
                  { "16777215T", UINT64_C(16777215) << 40 } };
    char text[60];

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        snprintf(text, sizeof(text), "auto:memory_free=%s", cases[i].text);
        good(text);
        cr_expect_eq(selector.memory_free_bytes, cases[i].bytes, "%s", cases[i].text);
    }
}

Test(selector, words_that_are_none)
{
    static const char part[] = "expected a fraction such as 0.5 or 50%";
    static const char size[] = "expected MiB or a size such as 8G";
    static const struct wrong cases[] = {
        { "auto:", "unknown option \"\"", "order, limit" },
        { "auto:limt=2", "unknown option \"limt\"", "did you mean limit?" },
        { "auto:li=2", "unknown option \"li\"", NULL },
        { "auto:limitless=2", "unknown option \"limitless\"", NULL },
        { "auto:order=loda", "unknown order \"loda\"", "did you mean load?" },
        { "auto:order=lo", "unknown order \"lo\"", NULL },
        { "auto:order=anything", "unknown order \"anything\"", "valid: first, index" },
        { "auto:order=an_order_of_more_than_24_letters", "unknown order", "valid: first" },
        { "auto:order=load,2", "unknown option \"2\"", NULL },
        { "auto:limit=0", "limit=0: expected a number from 1 to 999999", NULL },
        { "auto:limit=", "limit=: expected a number", NULL },
        { "auto:limit=-1", "limit=-1: expected a number", NULL },
        { "auto:limit=1a", "limit=1a: expected a number", NULL },
        { "auto:limit=1000000", "limit=1000000: expected a number", NULL },
        { "auto:max_load=", part, NULL },
        { "auto:max_load=%", part, NULL },
        { "auto:max_load=.", part, NULL },
        { "auto:max_load=-1", part, NULL },
        { "auto:max_load=1e3", part, NULL },
        { "auto:max_load=0.5.5", part, NULL },
        { "auto:max_load=0.1234567890123456", part, NULL },
        { "auto:max_memory=half", part, NULL },
        { "auto:memory_free=", size, NULL },
        { "auto:memory_free=G", size, NULL },
        { "auto:memory_free=8X", size, NULL },
        { "auto:memory_free=-8", size, NULL },
        { "auto:memory_free=8:", size, NULL },
        { "auto:memory_free=1/", size, NULL },
        { "auto:memory_free=1234567890", size, NULL },
        { "auto:memory_free=16777216T", size, NULL },
        { "auto:include_unknown=maybe", "expected yes or no", NULL },
        { "auto:exclude=a", "exclude=a: not a GPU index", NULL },
        { "auto:exclude=1,,2", "exclude=: not a GPU index", NULL },
        { "auto:exclude_uuid=", "exclude_uuid=: not a UUID", NULL },
    };
    char text[160], uuid[GSV_UUID_BYTES + 1];

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        refused(&cases[i]);
    refused(
        &(struct wrong){ list("exclude", "1", 33), "exclude=1: the list has more than 32", NULL });
    refused(&(struct wrong){ list("exclude_uuid", "GPU-1", 33),
                             "exclude_uuid=GPU-1: the list has more than 32", NULL });
    memset(uuid, 'a', sizeof(uuid));
    uuid[GSV_UUID_BYTES] = 0;
    snprintf(text, sizeof(text), "auto:exclude_uuid=%s", uuid);
    refused(&(struct wrong){ text, "not a UUID", NULL });
    snprintf(text, sizeof(text), "auto:exclude_uuid=%s", uuid + 1);
    good(text);
}

/* A word much longer than all names has no suggestion. */
Test(selector, the_nearest_name)
{
    static const char *const names[] = { "order", "a_name_of_just_20_letter" };
    const char *const long_word = "a_name_of_more_than_24_letterz";

    cr_expect_str_eq(gsv_nearest("oder", 4, names, 2), "order");
    cr_expect_str_eq(gsv_nearest("rodar", 5, names, 2), "order");
    cr_expect_null(gsv_nearest("words", 5, names, 1));
    cr_expect_null(gsv_nearest(long_word, strlen(long_word), names, 2));
    cr_expect_null(gsv_nearest("order_in_letters_of_other", 25, names, 1));
}
