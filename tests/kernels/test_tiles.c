/*
 * test_tiles.c - the model of the tile registers, the products that use them, and the detection of
 * AMX. The other kernel tests run on the model too: see harness.h.
 */
#include "kernels/cpu/runtime/isa.h"
#include "kernels/cpu/runtime/cpu.h"
#include "tests/kernels/harness.h"
#include "tests/kernels/tile_model.h"

#include <float.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

Test(tiles, instruction_sets_are_reported)
{
    print_instruction_sets();
}

/* ---------------------------------------------------------------------------------- detection */

static struct gsv_amx_facts sapphire_rapids(void)
{
    return (struct gsv_amx_facts){
        .features = 1u << 22 | 1u << 24 | 1u << 25,
        .enabled = 7u << 5 | 3u << 17 | 7u,
        .palettes = 1,
        .palette_1 = { 1024u << 16 | 8192, 8u << 16 | 64, 16 },
    };
}

Test(tiles, amx_needs_the_processor_and_the_operating_system)
{
    const struct gsv_amx_facts whole = sapphire_rapids();
    struct gsv_amx_facts facts;

    cr_expect(gsv_amx_is_present(&whole));
    for (int bit = 22; bit <= 25; bit++) {
        facts = whole;
        facts.features &= ~(1u << bit);
        cr_expect_eq(gsv_amx_is_present(&facts), bit == 23, "feature bit %d", bit);
    }
    for (int bit = 17; bit <= 18; bit++) {
        facts = whole;
        facts.enabled &= ~(1ull << bit);
        cr_expect_not(gsv_amx_is_present(&facts), "XCR0 bit %d", bit);
    }
    facts = whole;
    facts.palettes = 0;
    cr_expect_not(gsv_amx_is_present(&facts), "no palette");
    for (int i = 0; i < 3; i++) {
        facts = whole;
        facts.palette_1[i] -= 8;
        cr_expect_not(gsv_amx_is_present(&facts), "other tiles, register %d", i);
    }
    facts = (struct gsv_amx_facts){ 0 };
    cr_expect_not(gsv_amx_is_present(&facts));
}

/* The permission is part of the choice: without it no table with tiles is chosen. */
Test(tiles, no_permission_means_no_tiles)
{
    const struct gsv_amx_facts facts = gsv_amx_read_facts();
    const bool usable = gsv_amx_is_present(&facts) && gsv_amx_request_permission();

    unsetenv("GPUSERVE_MAX_ISA");
    cr_expect_eq(strcmp(gsv_cpu_choose_isa()->name, "avx512_amx") == 0, usable);
    setenv("GPUSERVE_MAX_ISA", "avx512_bf16", 1);
    cr_expect_neq(strcmp(gsv_cpu_choose_isa()->name, "avx512_amx"), 0);
}

#if defined(__x86_64__)

/* True if a line of /proc/cpuinfo begins with `field` and contains `word`, which a blank or the
 * line's end follows. */
static bool cpuinfo_has(const char *field, const char *word)
{
    FILE *file = fopen("/proc/cpuinfo", "r");
    static char line[16384];
    bool found = false;

    cr_assert_not_null(file);
    while (!found && fgets(line, sizeof(line), file)) {
        const char *at = strncmp(line, field, strlen(field)) == 0 ? strstr(line, word) : NULL;

        found = at && strchr(" \n", at[strlen(word)]);
    }
    fclose(file);
    return found;
}

/*
 * Linux refuses the permission for tile data to a process with so small a signal stack. Where the
 * kernel refuses the stack instead, or grants both, the case cannot be made.
 */
Test(tiles, slow_bfloat16_is_chosen_by_name_alone)
{
    static char memory[2048];
    const stack_t small = { .ss_sp = memory, .ss_size = sizeof(memory) };
    const bool is_slow =
        cpuinfo_has("vendor_id", "GenuineIntel") && !cpuinfo_has("model\t", ": 85");
    const char *chosen;
    stack_t before;

    unsetenv("GPUSERVE_MAX_ISA");
    if (sigaltstack(&small, &before) != 0)
        return;
    chosen = gsv_cpu_choose_isa()->name;
    (void)sigaltstack(&before, NULL);
    if (strcmp(chosen, "avx512_amx") == 0 || !cpuinfo_has("flags", " avx512_bf16"))
        return;
    cr_expect_eq(strcmp(chosen, "avx512_bf16") == 0, !is_slow, "%s", chosen);
    setenv("GPUSERVE_MAX_ISA", "avx512_bf16", 1);
    cr_expect_str_eq(gsv_cpu_choose_isa()->name, "avx512_bf16");
}
#endif

#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)

/* -------------------------------------------------------------------------------------- model */

/* Tile 0: sums [rows][columns], 1: A [rows][depth], 2: B [depth][columns], in words. */
static struct gsv_tile_config shape_of(int rows, int columns, int depth)
{
    return (struct gsv_tile_config){
        .palette = 1,
        .rows = { (uint8_t)rows, (uint8_t)rows, (uint8_t)depth },
        .row_bytes = { (uint16_t)(4 * columns), (uint16_t)(4 * depth), (uint16_t)(4 * columns) },
    };
}

static void configure(int rows, int columns, int depth)
{
    const struct gsv_tile_config config = shape_of(rows, columns, depth);

    gsv_tile_model_configure(&config);
}

Test(tiles, model_of_tdpbusd)
{
    enum { ROWS = 3, COLUMNS = 5, DEPTH = 2 };
    uint8_t a[ROWS][4 * DEPTH];
    int8_t b[DEPTH][4 * COLUMNS];
    int32_t sums[ROWS][COLUMNS + 1] = { { 0 } };

    for (int i = 0; i < ROWS * 4 * DEPTH; i++)
        a[i / (4 * DEPTH)][i % (4 * DEPTH)] = (uint8_t)(255 - 7 * i);
    for (int i = 0; i < DEPTH * 4 * COLUMNS; i++)
        b[i / (4 * COLUMNS)][i % (4 * COLUMNS)] = (int8_t)(6 * i - 128);
    sums[1][2] = 1000;
    sums[2][COLUMNS] = 42; /* not of the tile */
    configure(ROWS, COLUMNS, DEPTH);
    gsv_tile_model_load(0, sums, sizeof(sums[0]));
    gsv_tile_model_load(1, a, sizeof(a[0]));
    gsv_tile_model_load(2, b, sizeof(b[0]));
    gsv_tile_model_dot_u8s8(0, 1, 2);
    gsv_tile_model_store(0, sums, sizeof(sums[0]));
    gsv_tile_model_release();
    for (int m = 0; m < ROWS; m++) {
        for (int n = 0; n < COLUMNS; n++) {
            int32_t want = m == 1 && n == 2 ? 1000 : 0;

            for (int k = 0; k < 4 * DEPTH; k++)
                want += a[m][k] * b[k / 4][4 * n + k % 4];
            cr_expect_eq(sums[m][n], want, "%d %d", m, n);
        }
    }
    cr_expect_eq(sums[2][COLUMNS], 42);
}

/* One sum of tdpbf16ps over `depth` pairs. */
static float dot_bf16(float sum, const float *x, const float *y, int depth)
{
    uint16_t a[32] = { 0 }, b[16][2] = { { 0 } };

    for (int i = 0; i < 2 * depth; i++) {
        a[i] = gsv_bf16_of(x[i]);
        b[i / 2][i % 2] = gsv_bf16_of(y[i]);
    }
    configure(1, 1, depth);
    gsv_tile_model_load(0, &sum, sizeof(sum));
    gsv_tile_model_load(1, a, sizeof(a));
    gsv_tile_model_load(2, b, sizeof(b[0]));
    gsv_tile_model_dot_bf16(0, 1, 2);
    gsv_tile_model_store(0, &sum, sizeof(sum));
    gsv_tile_model_release();
    return sum;
}

Test(tiles, model_of_tdpbf16ps_adds_even_and_odd_products_separately)
{
    /* Even products: 2^24 + 1 - 2^24; in order of k the 1 is lost. Odd: 3 + 4 + 5. */
    const float x[] = { 16777216.0f, 3.0f, 1.0f, 4.0f, -16777216.0f, 5.0f },
                one[] = { 1, 1, 1, 1, 1, 1 };
    /* 2^-24 is added to 1 after both chains, where it is half a unit: ties to even. */
    const float half[] = { 0.00000005960464477539063f, 0.0f };

    cr_expect_eq(dot_bf16(0.5f, x, one, 3), 12.5f);
    cr_expect_eq(dot_bf16(1.0f, half, one, 1), 1.0f);
    cr_expect_eq(dot_bf16(1.0f + FLT_EPSILON, half, one, 1), 1.0f + 2 * FLT_EPSILON);
    cr_expect(
        isnan(dot_bf16(0.0f, (const float[]){ INFINITY, 0.0f }, (const float[]){ 0.0f, 1.0f }, 1)));
}

Test(tiles, model_of_tdpbf16ps_flushes_denormals)
{
    const float tiny[] = { FLT_MIN / 2, 0.0f }, huge[] = { 1e30f, 0.0f }, one[] = { 1.0f, 0.0f };
    const float small[] = { 1e-30f, 0.0f }, zero[] = { 0.0f, 0.0f };
    const float smallest[] = { FLT_MIN, 0.0f }, quarter[] = { 0.25f, 0.0f };

    cr_expect_eq(dot_bf16(0.0f, tiny, huge, 1), 0.0f, "a denormal operand is zero");
    cr_expect_eq(dot_bf16(0.0f, small, small, 1), 0.0f, "a product too small is zero");
    cr_expect_eq(dot_bf16(0.0f, smallest, quarter, 1), 0.0f, "a denormal product is zero");
    cr_expect_eq(dot_bf16(FLT_MIN / 2, zero, one, 1), 0.0f, "a denormal sum is zero");
    cr_expect_eq(dot_bf16(-1.5f * FLT_MIN, smallest, one, 1), 0.0f, "a denormal result is zero");
    cr_expect_eq(dot_bf16(0.0f, smallest, one, 1), FLT_MIN);
}

#define REFUSED(name) Test(tiles, model_refuses_##name, .signal = SIGABRT)

REFUSED(tiles_without_configuration)
{
    gsv_tile_model_zero(0);
}

REFUSED(tiles_after_release)
{
    configure(2, 2, 2);
    gsv_tile_model_release();
    gsv_tile_model_dot_u8s8(0, 1, 2);
}

REFUSED(a_tile_without_rows)
{
    configure(2, 2, 2);
    gsv_tile_model_zero(3);
}

REFUSED(seventeen_rows)
{
    configure(17, 2, 2);
}

REFUSED(rows_of_more_than_64_bytes)
{
    configure(2, 17, 2);
}

REFUSED(another_palette)
{
    struct gsv_tile_config config = shape_of(2, 2, 2);

    config.palette = 2;
    gsv_tile_model_configure(&config);
}

REFUSED(reserved_bytes)
{
    struct gsv_tile_config config = shape_of(2, 2, 2);

    config.rows[8] = 1;
    gsv_tile_model_configure(&config);
}

REFUSED(b_of_another_depth)
{
    struct gsv_tile_config config = shape_of(4, 4, 4);

    config.rows[2] = 3;
    gsv_tile_model_configure(&config);
    gsv_tile_model_dot_bf16(0, 1, 2);
}

REFUSED(a_of_another_height)
{
    struct gsv_tile_config config = shape_of(4, 4, 4);

    config.rows[1] = 3;
    gsv_tile_model_configure(&config);
    gsv_tile_model_dot_u8s8(0, 1, 2);
}

REFUSED(sums_that_are_an_operand)
{
    configure(4, 4, 4);
    gsv_tile_model_dot_u8s8(0, 1, 0);
}

/* ----------------------------------------------------------------------------------- products */

#define MAX_K 1100
#define MAX_N 70
#define MAX_M 67

/* Extreme bytes, so that sums are large. `in` has stale bytes behind k, as a stream's buffer has.
 */
static void fill(uint8_t *in, size_t ld, int8_t *weight, int32_t panel, int32_t n, int32_t k)
{
    const int32_t depth = (k + 3) / 4 * 4;
    uint32_t x = 12345;

    for (size_t i = 0; i < MAX_M * ld; i++) {
        x = x * 1664525 + 1013904223;
        in[i] = x >> 30 ? (uint8_t)(x >> 20) : 255;
    }
    memset(weight, 0, (size_t)(MAX_N + 64) * MAX_K);
    for (int32_t j = 0; j < n; j++) {
        int8_t *to = weight + (size_t)(j / panel) * (size_t)(panel * depth);

        for (int32_t i = 0; i < k; i++) {
            x = x * 1664525 + 1013904223;
            to[(i / 4 * panel + j % panel) * 4 + i % 4] =
                (int8_t)(x >> 30 ? (int32_t)(x >> 20) % 255 - 127 : -127);
        }
    }
}

static int32_t exact_sum(const uint8_t *in, const int8_t *weight, int32_t panel, int32_t j,
                         int32_t k)
{
    const int8_t *w = weight + (size_t)(j / panel) * (size_t)(panel * ((k + 3) / 4 * 4));
    int32_t sum = 0;

    for (int32_t i = 0; i < k; i++)
        sum += in[i] * w[(i / 4 * panel + j % panel) * 4 + i % 4];
    return sum;
}

static void check_exact(const struct gsv_cpu_isa *isa, int32_t m, int32_t n, int32_t k)
{
    static uint8_t in[MAX_M * (MAX_K + 64)];
    static int8_t weight[(MAX_N + 64) * MAX_K];
    static float zeros[MAX_N + 64], ones[MAX_N + 64], out[MAX_M * MAX_N];
    const size_t ld = (size_t)(k + 63) / 64 * 64;
    const struct gsv_gemm_s8 gemm = {
        .in = in,
        .weight = weight,
        .scales = { .min = zeros, .step = ones, .scale = ones, .column_sum = zeros },
        .in_ld = ld,
        .k = (k + 3) / 4 * 4,
        .finish = { .bias = zeros, .out = out, .out_ld = MAX_N, .n = n },
    };
    const struct gsv_span span = { 0, m, 0, (n + isa->panel - 1) / isa->panel };

    for (size_t i = 0; i < MAX_N + 64; i++)
        ones[i] = 1.0f;
    fill(in, ld, weight, isa->panel, n, k);
    isa->gemm_s8(&gemm, &span);
    for (int32_t r = 0; r < m; r++)
        for (int32_t j = 0; j < n; j++)
            cr_assert_eq(out[r * MAX_N + j],
                         (float)exact_sum(in + (size_t)r * ld, weight, isa->panel, j, k),
                         "%s, %d x %d x %d: row %d, column %d", isa->name, (int)m, (int)n, (int)k,
                         (int)r, (int)j);
}

/* The tables that this processor can run: its own best, and those with the model. */
static size_t tables_of(const struct gsv_cpu_isa **tables)
{
    size_t count = 0;

    for (int i = 1; i < target_count(); i++) {
        const struct gsv_cpu_isa *isa = target_at(i)->device->isa;

        if (count == 0 || tables[count - 1] != isa)
            tables[count++] = isa;
    }
    return count;
}

/* The accumulators are exact integers, equal on every instruction set. */
Test(tiles, int8_sums_are_exact_on_every_table)
{
    static const int32_t rows[] = { 1, 2, 15, 16, 17, 31, 32, 33, 49, MAX_M };
    static const int32_t sizes[][2] = { { 1, 1 },   { 16, 64 },   { 17, 63 },      { 32, 65 },
                                        { 33, 4 },  { 48, 128 },  { 64, 100 },     { 65, 127 },
                                        { 70, 61 }, { 31, 1023 }, { MAX_N, MAX_K } };
    const struct gsv_cpu_isa *tables[MAX_TARGETS];
    const size_t count = tables_of(tables);

    cr_assert_geq(count, 2);
    for (size_t t = 0; t < count; t++)
        for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++)
            for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++)
                check_exact(tables[t], rows[r], sizes[s][0], sizes[s][1]);
}

/* The bfloat16 sums are those of the tile instruction: per step of 32 k, even and odd k apart. */
Test(tiles, bfloat16_sums_follow_the_instruction)
{
    enum { K = 100, N = 3, STEPS = (K + 31) / 32 };
    const struct gsv_cpu_isa *isa = &gsv_cpu_isa_avx2_tile_model;
    static uint16_t in[STEPS * 32], weight[K * 16];
    static const float bias[32];
    float x[STEPS * 32] = { 0 }, y[N][STEPS * 32] = { { 0 } }, out[N],
                    *values = make_floats(4 * K, 7);
    const struct gsv_gemm_bf16 gemm = {
        .in = in,
        .weight = weight,
        .in_ld = STEPS * 32,
        .k = K,
        .finish = { .bias = bias, .out = out, .out_ld = N, .n = N },
    };

    if (!__builtin_cpu_supports("avx2"))
        return;
    round_to_bf16(values, 4 * K);
    for (int i = 0; i < K; i++) {
        in[i] = gsv_bf16_of(x[i] = values[i]);
        for (int j = 0; j < N; j++)
            weight[(i / 2 * 16 + j) * 2 + i % 2] = gsv_bf16_of(y[j][i] = values[(j + 1) * K + i]);
    }
    isa->gemm_bf16(&gemm, &(struct gsv_span){ 0, 1, 0, 1 });
    for (int j = 0; j < N; j++) {
        float sum = 0.0f;

        for (int s = 0; s < STEPS; s++)
            sum = dot_bf16(sum, x + 32 * s, y[j] + 32 * s, 16);
        cr_expect_eq(out[j], sum, "column %d", j);
    }
    free_floats(values);
}

/* --------------------------------------------------------------------------- state of a thread */

static void run_linear(const struct target *t, uint32_t dtype)
{
    float *weight = make_floats(64 * 100, 1), *in = make_floats(40 * 100, 2);
    float *out = make_poison(40 * 64);
    struct gpuserve_stream *stream = open_stream(t, dtype, 40, 100, 1, 32);
    struct test_linear linear = open_linear(t, dtype, 64, 100, weight, NULL, NULL);
    const struct gpuserve_op_linear op = {
        .weight = linear.linear,
        .in = in,
        .out = out,
        .rows = 40,
        .in_ld = 100,
        .out_ld = 64,
    };

    cr_assert_eq(t->backend->linear(stream, &op), GPUSERVE_OK);
    t->backend->stream_destroy(&stream);
    close_linear(t, &linear);
    free_floats(weight);
    free_floats(in);
    free_floats(out);
}

static void run_attention(const struct target *t)
{
    const struct gpuserve_batch batch = make_batch((const int32_t[]){ 5, 40 }, 2);
    float *qkv = make_floats(45 * 3 * 64, 3), *out = make_poison(45 * 64);
    struct gpuserve_stream *stream =
        open_attention_stream(t, GPUSERVE_DTYPE_INT8, 45, 40, 2, 32, 0);
    const struct gpuserve_op_attention op = {
        .batch = &batch,
        .qkv = qkv,
        .out = out,
        .n_heads = 2,
        .head_size = 32,
        .scale = 0.2f,
    };

    cr_assert_eq(t->backend->attention(stream, &op), GPUSERVE_OK);
    t->backend->stream_destroy(&stream);
    free_floats(qkv);
    free_floats(out);
}

/* A buffer of rounded rows keeps what an earlier product left behind the rows of a later one. */
static void run_after_nan(const struct target *t, uint32_t dtype, float *out)
{
    float *weight = make_floats(40 * 160, 5), *in = make_floats(20 * 160, 6),
          *nans = make_poison(20 * 160);
    struct gpuserve_stream *stream = open_stream(t, dtype, 20, 160, 1, 32);
    struct test_linear wide = open_linear(t, dtype, 40, 160, weight, NULL, NULL);
    struct test_linear narrow = open_linear(t, dtype, 40, 130, weight, NULL, NULL);
    struct gpuserve_op_linear op = {
        .weight = wide.linear,
        .in = nans,
        .out = out,
        .rows = 20,
        .in_ld = 160,
        .out_ld = 40,
    };

    cr_assert_eq(t->backend->linear(stream, &op), GPUSERVE_OK);
    op.weight = narrow.linear;
    op.in = in;
    cr_assert_eq(t->backend->linear(stream, &op), GPUSERVE_OK);
    t->backend->stream_destroy(&stream);
    close_linear(t, &wide);
    close_linear(t, &narrow);
    free_floats(weight);
    free_floats(in);
    free_floats(nans);
}

Test(tiles, stale_rows_do_not_leak_into_a_product)
{
    for (int i = 1; i < target_count(); i++) {
        const struct target *t = target_at(i);
        float *out = make_poison(20 * 40);

        for (int bf16 = 0; bf16 <= (t->has_bf16 ? 1 : 0); bf16++) {
            run_after_nan(t, bf16 ? GPUSERVE_DTYPE_BFLOAT16 : GPUSERVE_DTYPE_INT8, out);
            for (int j = 0; j < 20 * 40; j++)
                cr_assert(isfinite(out[j]), "%s: element %d is %g", t->name, j, (double)out[j]);
        }
        free_floats(out);
    }
}

/* The caller's thread computes too: an operation must not leave tile state in it. */
Test(tiles, every_operation_uses_tiles_and_releases_them)
{
    for (int i = 1; i < target_count(); i++) {
        const struct target *t = target_at(i);
        long before = tile_model_products();

        if (!t->has_model)
            continue;
        run_linear(t, GPUSERVE_DTYPE_INT8);
        cr_expect_gt(tile_model_products(), before, "%s: int8", t->name);
        before = tile_model_products();
        run_linear(t, GPUSERVE_DTYPE_BFLOAT16);
        cr_expect_gt(tile_model_products(), before, "%s: bfloat16", t->name);
        before = tile_model_products();
        run_attention(t);
        if (t->device->isa->attention_16bit)
            cr_expect_gt(tile_model_products(), before, "%s: attention", t->name);
        cr_expect_eq(tile_model_configured(), 0, "%s: tiles stay configured", t->name);
    }
}
#endif
