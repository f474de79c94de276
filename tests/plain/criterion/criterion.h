/*
 * criterion.h - as much of Criterion as the tests use, where Criterion's own runner crashes before
 * the first test: under ThreadSanitizer, and in programs for another processor under QEMU.
 *
 * Each test is a child process here too. A failed cr_assert_ ends it, a failed cr_expect_ is noted.
 * The last line printed is Criterion's summary. Everywhere else the real Criterion is used.
 */
#ifndef GSV_PLAIN_CRITERION_H
#define GSV_PLAIN_CRITERION_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The options that Test() takes after its two names. */
struct plain_options {
    void (*init)(void);
    void (*fini)(void);
    double timeout;
    int signal;
    int exit_code;
    bool disabled;
    const char *description;
};

struct plain_test {
    const char *suite, *name;
    void (*run)(void);
    struct plain_options options;
    struct plain_test *next;
};

/* Called before main() by each Test(). */
void plain_register(struct plain_test *test);

/* Notes a failure; does not return when it is fatal. */
void plain_fail(bool fatal, const char *file, int line, const char *what, const char *format, ...);

#ifdef __cplusplus
}
#endif

#define Test(suite_, name_, ...)                                               \
    static void suite_##_##name_##_run(void);                                  \
    static struct plain_test suite_##_##name_##_test;                          \
    __attribute__((constructor)) static void suite_##_##name_##_register(void) \
    {                                                                          \
        const struct plain_options options = { __VA_ARGS__ };                  \
        suite_##_##name_##_test.suite = #suite_;                               \
        suite_##_##name_##_test.name = #name_;                                 \
        suite_##_##name_##_test.run = suite_##_##name_##_run;                  \
        suite_##_##name_##_test.options = options;                             \
        plain_register(&suite_##_##name_##_test);                              \
    }                                                                          \
    static void suite_##_##name_##_run(void)

/* The message after the condition may be absent: "" joins a literal, or stands alone. */
#define PLAIN_CHECK(fatal, condition, what, ...)                         \
    do {                                                                 \
        if (!(condition))                                                \
            plain_fail(fatal, __FILE__, __LINE__, what, "" __VA_ARGS__); \
    } while (0)

#define cr_fail(...) plain_fail(false, __FILE__, __LINE__, "failed", "" __VA_ARGS__)
#define cr_assert_fail(...) plain_fail(true, __FILE__, __LINE__, "failed", "" __VA_ARGS__)

#define cr_expect(c, ...) PLAIN_CHECK(false, c, #c, ##__VA_ARGS__)
#define cr_expect_not(c, ...) PLAIN_CHECK(false, !(c), "not " #c, ##__VA_ARGS__)
#define cr_expect_eq(a, b, ...) PLAIN_CHECK(false, (a) == (b), #a " == " #b, ##__VA_ARGS__)
#define cr_expect_neq(a, b, ...) PLAIN_CHECK(false, (a) != (b), #a " != " #b, ##__VA_ARGS__)
#define cr_expect_lt(a, b, ...) PLAIN_CHECK(false, (a) < (b), #a " < " #b, ##__VA_ARGS__)
#define cr_expect_leq(a, b, ...) PLAIN_CHECK(false, (a) <= (b), #a " <= " #b, ##__VA_ARGS__)
#define cr_expect_gt(a, b, ...) PLAIN_CHECK(false, (a) > (b), #a " > " #b, ##__VA_ARGS__)
#define cr_expect_geq(a, b, ...) PLAIN_CHECK(false, (a) >= (b), #a " >= " #b, ##__VA_ARGS__)
#define cr_expect_null(a, ...) PLAIN_CHECK(false, !(a), #a " is NULL", ##__VA_ARGS__)
#define cr_expect_not_null(a, ...) PLAIN_CHECK(false, !!(a), #a " is not NULL", ##__VA_ARGS__)
#define cr_expect_str_eq(a, b, ...) \
    PLAIN_CHECK(false, strcmp(a, b) == 0, #a " is the text " #b, ##__VA_ARGS__)
#define cr_expect_str_neq(a, b, ...) \
    PLAIN_CHECK(false, strcmp(a, b) != 0, #a " is not the text " #b, ##__VA_ARGS__)
#define cr_expect_str_empty(a, ...) PLAIN_CHECK(false, !*(a), #a " is empty", ##__VA_ARGS__)
#define cr_expect_float_eq(a, b, e, ...)                                                  \
    PLAIN_CHECK(false, fabs((double)(a) - (double)(b)) <= (double)(e), #a " is near " #b, \
                ##__VA_ARGS__)
#define cr_expect_arr_eq(a, b, n, ...) \
    PLAIN_CHECK(false, memcmp(a, b, n) == 0, #a " has the bytes of " #b, ##__VA_ARGS__)

#define cr_assert(c, ...) PLAIN_CHECK(true, c, #c, ##__VA_ARGS__)
#define cr_assert_not(c, ...) PLAIN_CHECK(true, !(c), "not " #c, ##__VA_ARGS__)
#define cr_assert_float_eq(a, b, e, ...)                                                 \
    PLAIN_CHECK(true, fabs((double)(a) - (double)(b)) <= (double)(e), #a " is near " #b, \
                ##__VA_ARGS__)
#define cr_assert_eq(a, b, ...) PLAIN_CHECK(true, (a) == (b), #a " == " #b, ##__VA_ARGS__)
#define cr_assert_neq(a, b, ...) PLAIN_CHECK(true, (a) != (b), #a " != " #b, ##__VA_ARGS__)
#define cr_assert_lt(a, b, ...) PLAIN_CHECK(true, (a) < (b), #a " < " #b, ##__VA_ARGS__)
#define cr_assert_leq(a, b, ...) PLAIN_CHECK(true, (a) <= (b), #a " <= " #b, ##__VA_ARGS__)
#define cr_assert_gt(a, b, ...) PLAIN_CHECK(true, (a) > (b), #a " > " #b, ##__VA_ARGS__)
#define cr_assert_geq(a, b, ...) PLAIN_CHECK(true, (a) >= (b), #a " >= " #b, ##__VA_ARGS__)
#define cr_assert_null(a, ...) PLAIN_CHECK(true, !(a), #a " is NULL", ##__VA_ARGS__)
#define cr_assert_not_null(a, ...) PLAIN_CHECK(true, !!(a), #a " is not NULL", ##__VA_ARGS__)
#define cr_assert_str_eq(a, b, ...) \
    PLAIN_CHECK(true, strcmp(a, b) == 0, #a " is the text " #b, ##__VA_ARGS__)
#define cr_assert_arr_eq(a, b, n, ...) \
    PLAIN_CHECK(true, memcmp(a, b, n) == 0, #a " has the bytes of " #b, ##__VA_ARGS__)

#endif
