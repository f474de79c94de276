/*
 * test_structs.c - structs of callers that were compiled with another version.
 */
#include "lib/base/error.h"

#include <criterion/criterion.h>
#include <gpuserve/gpuserve.h>
#include <stdint.h>
#include <string.h>

/* gpuserve_swap_options as a later version may have it. */
struct later {
    uint32_t struct_size;
    uint32_t allow;
    const char *fingerprint;
    uint64_t new_field;
};

static gpuserve_status read_later(struct later *to, const struct later *from, gpuserve_error *error)
{
    return gsv_read_struct(to, sizeof(*to), from, "gpuserve_swap_options", error);
}

Test(structs, the_frozen_size_is_accepted_and_later_fields_are_zero)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct later to, from = { .struct_size = sizeof(gpuserve_swap_options),
                              .allow = 3,
                              .fingerprint = "f",
                              .new_field = 77 };

    memset(&to, 0xFF, sizeof(to));
    cr_assert_eq(read_later(&to, &from, &error), GPUSERVE_OK, "%s", error.message);
    cr_assert_eq(to.allow, 3);
    cr_assert_str_eq(to.fingerprint, "f");
    cr_assert_eq(to.new_field, 0, "a byte behind the caller's struct was read");
}

Test(structs, less_than_the_frozen_size_is_refused)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct later to, from = { .struct_size = sizeof(gpuserve_swap_options) - 1 };

    cr_assert_eq(read_later(&to, &from, &error), GPUSERVE_E_INVALID);
    cr_assert(strstr(error.message, "struct_size is 15, less than 16"), "%s", error.message);
}

Test(structs, an_older_output_struct_receives_its_own_fields)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct later to = { .struct_size = sizeof(gpuserve_swap_options), .new_field = 77 };
    const struct later from = {
        .struct_size = sizeof(from), .allow = 3, .fingerprint = "f", .new_field = 5
    };

    cr_assert_eq(gsv_write_struct(&to, &from, sizeof(from), "gpuserve_swap_options", &error),
                 GPUSERVE_OK, "%s", error.message);
    cr_assert_eq(to.struct_size, sizeof(gpuserve_swap_options));
    cr_assert_eq(to.allow, 3);
    cr_assert_str_eq(to.fingerprint, "f");
    cr_assert_eq(to.new_field, 77, "a byte behind the caller's struct was written");
    to.struct_size = sizeof(gpuserve_swap_options) - 1;
    to.allow = 9;
    cr_assert_eq(gsv_write_struct(&to, &from, sizeof(from), "gpuserve_swap_options", &error),
                 GPUSERVE_E_INVALID);
    cr_assert(strstr(error.message, "struct_size is 15, less than 16"), "%s", error.message);
    cr_assert_eq(to.allow, 9);
    cr_assert_eq(gsv_write_struct(NULL, &from, sizeof(from), "gpuserve_swap_options", &error),
                 GPUSERVE_E_INVALID);
}

Test(structs, a_struct_without_a_frozen_size_has_that_of_this_version)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct later to, from = { .struct_size = sizeof(from) - 8 };

    cr_assert_eq(gsv_read_struct(&to, sizeof(to), &from, "gpuserve_none", &error),
                 GPUSERVE_E_INVALID);
    from.struct_size = sizeof(from);
    cr_assert_eq(gsv_read_struct(&to, sizeof(to), &from, "gpuserve_none", &error), GPUSERVE_OK);
}
