/*
 * test_arrow.c - limits of the Arrow writer; its streams are read by pyarrow in test_arrow.py.
 */
#include "lib/http/core/arrow.h"

#include <criterion/criterion.h>
#include <string.h>

static bool fails(size_t n_elements, size_t first, size_t n)
{
    struct gsv_buffer to = { .maximum = 1 << 20 };
    void *values = gsv_arrow_put_batch(&to, GSV_ARROW_FLOAT32, n_elements, first, n, NULL, 0);
    const bool failed = to.failed;

    cr_expect_eq(values == NULL, failed);
    gsv_buffer_reset(&to);
    return failed;
}

/* Each size is computed without an overflow, and what is too much is not written. */
Test(arrow, sizes_that_overflow)
{
    cr_expect_not(fails(4, UINT32_MAX - 2, 2));
    cr_expect(fails(4, UINT32_MAX - 1, 2), "an index over 32 bits");
    cr_expect(fails(1, 0, (size_t)UINT32_MAX + 1), "more rows than indices");
    cr_expect(fails(SIZE_MAX / 4, 0, 5), "elements");
    cr_expect(fails(SIZE_MAX / 8 + 1, 0, 2), "bytes");
    cr_expect(fails(1 << 18, 0, 2), "more than the buffer may hold");
}

Test(arrow, a_list_is_shorter_than_2_31)
{
    struct gsv_buffer to = { 0 };

    gsv_arrow_put_schema(&to, GSV_ARROW_INT8, INT32_MAX, NULL, 0);
    cr_expect_not(to.failed);
    gsv_arrow_put_schema(&to, GSV_ARROW_INT8, (size_t)INT32_MAX + 1, NULL, 0);
    cr_expect(to.failed);
    gsv_buffer_reset(&to);
}

/* A buffer that is full at any byte: the writer reads and writes nothing outside. */
Test(arrow, memory_that_ends_anywhere)
{
    static const struct gsv_arrow_pair about[] = { { "model", "a" }, { "space", "" } };
    size_t whole = 0;

    for (size_t maximum = 1 << 12; maximum > 0;
         maximum = maximum == 1 << 12 ? whole : maximum - 1) {
        struct gsv_buffer to = { .maximum = maximum };
        void *values;

        gsv_arrow_put_schema(&to, GSV_ARROW_FLOAT16, 3, about, 2);
        values = gsv_arrow_put_batch(&to, GSV_ARROW_FLOAT16, 3, 0, 5, about, 1);
        if (values)
            memset(values, 1, 5 * 3 * 2);
        gsv_arrow_put_end(&to);
        cr_expect_eq(to.failed, whole > 0 && maximum < whole, "%zu bytes", maximum);
        whole = whole ? whole : to.size;
        cr_expect_eq(whole % 8, 0);
        gsv_buffer_reset(&to);
    }
}
