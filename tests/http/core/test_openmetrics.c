/*
 * test_openmetrics.c - a page of the Prometheus text format as OpenMetrics, point by point. The
 * whole page is read by prometheus-client in tests/http/server/test_traces.py.
 */
#include "lib/http/core/openmetrics.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static void put_exemplar(void *user, struct gsv_buffer *to, const char *histogram, size_t size,
                         uint64_t above_ns, uint64_t upto_ns)
{
    (void)user;
    gsv_buffer_format(to, " # {%.*s} %llu %llu", (int)size, histogram, (unsigned long long)above_ns,
                      (unsigned long long)(upto_ns == UINT64_MAX ? 0 : upto_ns));
}

static void expect(const char *page, const char *want)
{
    struct gsv_buffer to = { .maximum = 4096 };

    gsv_openmetrics_write(&to, page, strlen(page), put_exemplar, NULL);
    cr_assert_not(to.failed);
    cr_expect_eq(to.size, strlen(want), "%.*s", (int)to.size, to.bytes);
    cr_expect_eq(memcmp(to.bytes, want, to.size), 0, "%.*s", (int)to.size, to.bytes);
    gsv_buffer_reset(&to);
}

Test(openmetrics, forms)
{
    expect("", "# EOF\n");
    expect("# HELP a_total Say \"a\".\n# TYPE a_total counter\na_total 1\n",
           "# TYPE a counter\n# HELP a Say \\\"a\\\".\na_total 1\n# EOF\n");
    expect("# HELP a_count A.\n# TYPE a_count counter\na_count{b=\"c_bucket{\"} 1\n",
           "# TYPE a_count unknown\n# HELP a_count A.\na_count{b=\"c_bucket{\"} 1\n# EOF\n");
    expect("# HELP _total A.\n# TYPE _total counter\n", /* no name would be left */
           "# TYPE _total unknown\n# HELP _total A.\n# EOF\n");
    expect("# HELP a A.\n# TYPE a histogram\na_bucket{le=\"0.00025\"} 1\na_bucket{le=\"1\"} 2\n"
           "a_bucket{le=\"+Inf\"} 3\na_sum 4\na_count 3\n# HELP b B.\n# TYPE b histogram\n"
           "b_bucket{c=\"d\",le=\"2.5\"} 1",
           "# TYPE a histogram\n# HELP a A.\na_bucket{le=\"0.00025\"} 1 # {a} 0 250000\n"
           "a_bucket{le=\"1.0\"} 2 # {a} 250000 1000000000\n"
           "a_bucket{le=\"+Inf\"} 3 # {a} 1000000000 0\na_sum 4\na_count 3\n# TYPE b histogram\n"
           "# HELP b B.\nb_bucket{c=\"d\",le=\"2.5\"} 1 # {b} 0 2500000000\n# EOF\n");
}
