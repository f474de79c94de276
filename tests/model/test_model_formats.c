/*
 * test_model_formats.c - conversions between float32 and the types of weight files: every code of
 * the 8-bit and 16-bit types against its definition, and int8 rows read in any chunks.
 */
#define _GNU_SOURCE
#include "lib/base/error.h"
#include "lib/model/formats/checkpoint_writer.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The value of a code by the definition of a small floating-point type. `finite_top`: the largest
 * exponent is an ordinary one, and only all ones is NaN. */
static double defined(unsigned code, int mantissa_bits, int exponent_bits, bool finite_top)
{
    const unsigned mantissa = code & ((1u << mantissa_bits) - 1);
    const unsigned top = (1u << exponent_bits) - 1;
    const unsigned exponent = code >> mantissa_bits & top;
    const int bias = (int)(top >> 1);
    const double sign = code >> (mantissa_bits + exponent_bits) ? -1.0 : 1.0;

    if (exponent == top && (finite_top ? mantissa == (1u << mantissa_bits) - 1 : mantissa != 0))
        return NAN;
    if (exponent == top && !finite_top)
        return sign * INFINITY;
    if (exponent == 0)
        return sign * ldexp(mantissa, 1 - bias - mantissa_bits);
    return sign * ldexp(mantissa + (1u << mantissa_bits), (int)exponent - bias - mantissa_bits);
}

static void expect_equal(float got, double want, unsigned code)
{
    const float value = (float)want;

    if (isnan(want))
        cr_expect(isnan(got), "code %u is %g, not NaN", code, (double)got);
    else
        cr_expect_arr_eq(&got, &value, sizeof(got), "code %u is %g, not %g", code, (double)got,
                         want);
}

Test(model_formats, every_float8_code_has_its_value)
{
    unsigned char codes[256];
    float e4m3[256], e5m2[256];

    for (unsigned i = 0; i < 256; i++)
        codes[i] = (unsigned char)i;
    gsv_floats_from_f8_e4m3(e4m3, codes, 256);
    gsv_floats_from_f8_e5m2(e5m2, codes, 256);
    for (unsigned i = 0; i < 256; i++) {
        expect_equal(e4m3[i], defined(i, 3, 4, true), i);
        expect_equal(e5m2[i], defined(i, 2, 5, false), i);
    }
    cr_expect_eq(e4m3[0x7E], 448.0f);
    cr_expect_eq(e5m2[0x7B], 57344.0f);
    cr_expect(isinf(e5m2[0x7C]));
}

Test(model_formats, every_16_bit_code_survives_both_ways)
{
    for (unsigned i = 0; i < 65536; i++) {
        const uint16_t code = (uint16_t)i;
        float value;
        uint16_t back;

        gsv_floats_from_f16(&value, &code, 1);
        if (isfinite(value)) {
            gsv_floats_to_f16(&back, &value, 1);
            cr_assert_eq(back, code, "float16 %u", i);
        }
        gsv_floats_from_bf16(&value, &code, 1);
        if (isfinite(value)) {
            gsv_floats_to_bf16(&back, &value, 1);
            cr_assert_eq(back, code, "bfloat16 %u", i);
        }
    }
}

static uint16_t f16(float value)
{
    uint16_t code;

    gsv_floats_to_f16(&code, &value, 1);
    return code;
}

Test(model_formats, values_between_codes_go_to_the_nearest_and_ties_to_even)
{
    for (unsigned i = 0; i < 0x7BFF; i++) { /* positive finite float16 with a successor */
        const uint16_t codes[2] = { (uint16_t)i, (uint16_t)(i + 1) };
        float pair[2], middle;

        gsv_floats_from_f16(pair, codes, 2);
        middle = (pair[0] + pair[1]) / 2.0f; /* exact: float32 has more digits */
        cr_assert_eq(f16(middle), i % 2 == 0 ? i : i + 1, "between %u and its successor", i);
        cr_assert_eq(f16(nextafterf(middle, 0.0f)), i);
        cr_assert_eq(f16(nextafterf(middle, INFINITY)), i + 1);
        cr_assert_eq(f16(-nextafterf(middle, INFINITY)), 0x8000u + i + 1);
    }
}

Test(model_formats, int8_rows_are_symmetric_and_use_the_whole_range)
{
    const float from[12] = { 1.0f, -2.0f, 0.5f,    127.0f, 0.0f, 0.0f,
                             0.0f, 0.0f,  -1e-30f, 1e30f,  0.0f, -1e30f };
    signed char codes[12];
    float scales[3];

    gsv_floats_to_rows(codes, scales, from, 3, 4);
    cr_expect_eq(scales[0], 1.0f);
    cr_expect_eq(codes[1], -2);
    cr_expect_eq(codes[2], 0, "0.5 is a tie");
    cr_expect_eq(codes[3], 127);
    cr_expect_eq(scales[1], 1.0f, "a row of zeros");
    cr_expect_eq(codes[9], 127);
    cr_expect_eq(codes[11], -127);
    cr_expect_eq(codes[8], 0);
}

/* -------------------------------------------------------------------------------------- chunks */

enum { ROWS = 67, COLUMNS = 129 };

/* A file with one matrix: rows of float32. */
static void write_source(const char *folder)
{
    char path[256], header[256];
    const int length =
        snprintf(header, sizeof(header),
                 "{\"m.weight\":{\"dtype\":\"F32\",\"shape\":[%d,%d],\"data_offsets\":[0,%d]}}",
                 ROWS, COLUMNS, ROWS * COLUMNS * 4);
    const uint64_t size = (uint64_t)length;
    FILE *file;

    snprintf(path, sizeof(path), "%s/model.safetensors", folder);
    file = fopen(path, "wb");
    cr_assert(file);
    fwrite(&size, sizeof(size), 1, file);
    fwrite(header, 1, size, file);
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        const float value = sinf((float)i) * (float)(1 + i / COLUMNS);

        fwrite(&value, sizeof(value), 1, file);
    }
    fclose(file);
}

static void open_weights(struct gsv_checkpoint *checkpoint, const char *folder)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct gsv_dir *dir;

    cr_assert_eq(gsv_dir_open(&dir, folder, &error), GPUSERVE_OK);
    cr_assert_eq(gsv_checkpoint_open(checkpoint, dir, "", &error), GPUSERVE_OK, "%s",
                 error.message);
    gsv_dir_close(&dir);
}

static void remove_folder(const char *folder)
{
    static const char *const names[] = { "model.safetensors", "model.int8.safetensors" };
    char path[256];

    for (size_t i = 0; i < 2; i++) {
        snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
        unlink(path);
    }
    cr_expect_eq(rmdir(folder), 0);
}

static void read_floats(const struct gsv_tensor *tensor, uint64_t first, size_t n, float *to)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    unsigned char *raw = malloc(gsv_tensor_raw_bytes(tensor, first, n) + 1);

    cr_assert_leq(gsv_tensor_raw_bytes(tensor, first, n), n * GSV_MAX_RAW_BYTES);
    cr_assert_eq(gsv_tensor_fetch(tensor, first, n, raw, &error), GPUSERVE_OK, "%s", error.message);
    gsv_tensor_floats(tensor, first, n, raw, to);
    free(raw);
}

Test(model_formats, int8_rows_are_the_same_in_any_chunks)
{
    char source[] = "/tmp/gsv-formats-XXXXXX", made[] = "/tmp/gsv-formats-XXXXXX";
    const struct gsv_write_options options = { .type = GSV_TENSOR_I8_ROWS,
                                               .max_file_bytes = UINT64_MAX };
    static float whole[ROWS * COLUMNS], part[ROWS * COLUMNS], wide[ROWS * COLUMNS];
    struct gsv_checkpoint from, to;
    struct gsv_write_facts facts = { 0 };
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    struct gsv_tensor tensor, rows;
    int fd;

    cr_assert(mkdtemp(source) && mkdtemp(made));
    write_source(source);
    open_weights(&from, source);
    fd = open(made, O_RDONLY | O_DIRECTORY);
    cr_assert_eq(gsv_checkpoint_write(&from, fd, made, &options, &facts, &error), GPUSERVE_OK, "%s",
                 error.message);
    cr_expect_eq(facts.n_quantized, 1);
    cr_expect_eq(facts.bytes_after, ROWS * (COLUMNS + 4));
    /* Files that exist are never overwritten. */
    cr_expect_eq(gsv_checkpoint_write(&from, fd, made, &options, &facts, &error), GPUSERVE_E_IO);
    close(fd);
    open_weights(&to, made);
    cr_assert(gsv_checkpoint_find(&to, "m.weight", &tensor));
    cr_assert_eq(tensor.type, GSV_TENSOR_I8_ROWS);
    read_floats(&tensor, 0, ROWS * COLUMNS, whole);
    cr_assert(gsv_checkpoint_find(&from, "m.weight", &rows));
    read_floats(&rows, 0, ROWS * COLUMNS, wide);
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        const float step = (float)(1 + i / COLUMNS) / 127.0f; /* at least the scale of the row */

        cr_assert_float_eq(whole[i], wide[i], 0.51f * step, "element %d", i);
    }
    for (size_t chunk = 1; chunk < 400; chunk += 7) {
        for (size_t first = 0; first < ROWS * COLUMNS; first += chunk) {
            const size_t left = ROWS * COLUMNS - first;

            read_floats(&tensor, first, left < chunk ? left : chunk, part + first);
        }
        cr_assert_arr_eq(part, whole, sizeof(whole), "chunks of %zu", chunk);
    }
    rows = tensor; /* some rows as a tensor of their own, as the decoder of a masked model has */
    rows.offset += 5 * COLUMNS;
    rows.count = 3 * COLUMNS;
    read_floats(&rows, 0, 3 * COLUMNS, part);
    cr_expect_arr_eq(part, whole + 5 * COLUMNS, 3 * COLUMNS * sizeof(float));
    gsv_checkpoint_close(&from);
    gsv_checkpoint_close(&to);
    remove_folder(source);
    remove_folder(made);
}
