/*
 * test_ref.c - the reference kernels against values that numpy and scipy computed in float64.
 *
 * Inputs are multiples of 1/16, exact in float32. Every other target runs the same inputs too, so
 * an error common to all our kernels cannot stay hidden.
 */
#include "tests/kernels/harness.h"

#include <string.h>

static const float x[] = { -1.6875f, 1.125f, -0.25f,   0.875f,   1.9375f,
                           0.125f,   0.0f,   -1.6875f, -0.9375f, -0.0f };
static const float w[] = { 0.6875f, 1.1875f, -0.5f,  -1.75f,  -0.875f,  1.625f,  -1.125f, -0.1875f,
                           1.75f,   -1.875f, 0.375f, 1.8125f, -1.0625f, 0.1875f, 1.625f };
static const float b[] = { -1.4375f, 0.0625f, 1.0f };
static const float linear_none[] = { -4.36328125f, -6.0f,        5.984375f,
                                     1.1328125f,   -1.05859375f, 2.6640625f };
static const float linear_gelu[] = { -2.79524998e-05f, -5.91952587e-09f, 5.98437499f,
                                     0.987080136f,     -0.153382207f,    2.65377879f };
static const float linear_gelu_tanh[] = { -1.10073246e-05f, -8.43964898e-11f, 5.984375f,
                                          0.986883976f,     -0.153555104f,    2.65425104f };
static const float linear_relu[] = { 0.0f, 0.0f, 5.984375f, 1.1328125f, 0.0f, 2.6640625f };
static const float linear_tanh[] = { -0.999675614f, -0.999987712f, 0.999987322f,
                                     0.811979641f,  -0.785125047f, 0.990340557f };
/* The largest weight of each output is 127 steps, on every instruction set. */
static const float w_scale[] = { 1.75f / 127, 1.875f / 127, 1.8125f / 127 };
static const float linear_silu[] = { -0.0548741446f, -0.0148357389f, 5.96934546f,
                                     0.856811301f,   -0.27267076f,   2.49055864f };
static const float x2[] = { 0.6875f,  -0.125f,  -1.1875f, -0.0625f, -0.5f,
                            -0.0625f, -0.5625f, 1.375f,   1.0625f,  -0.75f };
static const float gamma_[] = { 0.3125f, -0.875f, -0.1875f, -0.5625f, 0.625f };
static const float beta[] = { -0.5f, -0.1875f, 0.875f, -0.375f, 1.625f };
static const float layernorm[] = { -0.814744881f, -0.822404729f, 1.13491835f,  -0.691775494f,
                                   2.31540813f,   -0.17965348f,  0.517262345f, 0.888729137f,
                                   -1.05459226f,  0.778369911f };
static const float qkv[] = { -1.25f,   0.9375f,  -0.3125f, -0.3125f, 0.5625f,  0.0625f,
                             -0.3125f, -2.0f,    -1.625f,  0.8125f,  0.125f,   0.8125f,
                             1.8125f,  0.75f,    -1.8125f, -0.75f,   0.375f,   -1.0625f,
                             1.875f,   1.75f,    1.375f,   -0.125f,  1.375f,   -1.5f,
                             -0.75f,   -0.125f,  0.9375f,  -0.0625f, -1.4375f, -0.625f,
                             -0.6875f, -0.8125f, -1.3125f, -0.3125f, -0.1875f, 1.125f };
static const float bias[] = { 1.1875f, 0.0625f, -0.1875f, 1.125f,   1.5625f,
                              0.6875f, 1.1875f, 1.75f,    -1.8125f, 1.5f };
static const float attention[] = { 0.377743742f,  0.18664258f,  0.133756249f, 0.796300939f,
                                   -0.896768733f, 0.584927729f, 0.1384579f,   0.787602884f,
                                   -1.3125f,      -0.3125f,     -0.1875f,     1.125f };
static const float tokens[] = { -0.875f, -0.125f,  1.1875f, 0.875f,   -1.4375f, 0.625f,
                                -1.75f,  -0.5625f, 1.25f,   -0.3125f, 0.375f,   0.9375f };
static const float pool_cls[] = { -0.875f, -0.125f, -0.3125f, 0.375f };
static const float pool_mean[] = { -0.583333333f, -0.708333333f, -0.3125f, 0.375f };
static const float pool_max[] = { 0.875f, -0.125f, -0.3125f, 0.375f };
static const float pool_sqrt[] = { -1.01036297f, -1.22686932f, -0.3125f, 0.375f };
static const float pool_weighted[] = { -0.729166667f, -0.78125f, -0.3125f, 0.375f };
static const float pool_last[] = { -1.75f, -0.5625f, -0.3125f, 0.375f };
static const float pool_normalized[] = { -0.635707253f, -0.771930236f, -0.6401844f, 0.76822128f };
static const float softmax[] = { 0.0910530434f, 0.192759294f, 0.716187662f,  0.532534052f,
                                 0.0527280115f, 0.414737937f, 0.0410434717f, 0.134576363f,
                                 0.824380166f,  0.15434289f,  0.306947489f,  0.53870962f };
static const float sigmoid[] = { 0.294214972f, 0.468790627f, 0.766293643f, 0.705785028f,
                                 0.191932786f, 0.651354865f, 0.148047198f, 0.362969206f,
                                 0.777299861f, 0.422504635f, 0.5926666f,   0.718594393f };
static const float linear_int8[] = { -4.37297507f, -5.99648657f, 5.99663879f,
                                     1.11945682f,  -1.04285842f, 2.64514038f };

/* float32 represents the expected values to 6e-8 relative; the vectorized exp and erf add about
 * 2e-7. */
#define TOLERANCE 1e-6f, 1e-6f

static struct gpuserve_stream *small_stream(const struct target *t, uint32_t dtype)
{
    return open_stream(t, dtype, 8, 16, 2, 2);
}

static void run_linear(const struct target *t, uint32_t dtype, int32_t activation, float *out)
{
    struct gpuserve_stream *stream = small_stream(t, dtype);
    struct test_linear linear = dtype == GPUSERVE_DTYPE_INT8
                                    ? open_scaled_linear(t, dtype, 3, 5, w, b, NULL, w_scale)
                                    : open_linear(t, dtype, 3, 5, w, b, NULL);
    const struct gpuserve_op_linear op = { .weight = linear.linear,
                                           .in = x,
                                           .out = out,
                                           .rows = 2,
                                           .in_ld = 5,
                                           .out_ld = 3,
                                           .activation = activation };

    cr_assert_eq(t->backend->linear(stream, &op), GPUSERVE_OK);
    t->backend->stream_destroy(&stream);
    close_linear(t, &linear);
}

Test(ref, linear_is_what_numpy_says)
{
    static const struct {
        int32_t activation;
        const float *want;
    } cases[] = {
        { GPUSERVE_ACT_NONE, linear_none },           { GPUSERVE_ACT_GELU, linear_gelu },
        { GPUSERVE_ACT_GELU_TANH, linear_gelu_tanh }, { GPUSERVE_ACT_RELU, linear_relu },
        { GPUSERVE_ACT_TANH, linear_tanh },           { GPUSERVE_ACT_SILU, linear_silu },
    };

    for (int i = 0; i < target_count(); i++) {
        float out[6];

        for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
            run_linear(target_at(i), GPUSERVE_DTYPE_FLOAT32, cases[c].activation, out);
            cr_expect(all_close(out, cases[c].want, 6, TOLERANCE), "%s, activation %d: %s",
                      target_at(i)->name, (int)cases[c].activation, difference());
        }
        run_linear(target_at(i), GPUSERVE_DTYPE_INT8, GPUSERVE_ACT_NONE, out);
        cr_expect(all_close(out, linear_int8, 6, 2e-6f, 1e-6f), "%s, int8: %s", target_at(i)->name,
                  difference());
    }
}

Test(ref, layernorm_is_what_numpy_says)
{
    for (int i = 0; i < target_count(); i++) {
        const struct target *t = target_at(i);
        struct gpuserve_stream *stream = small_stream(t, GPUSERVE_DTYPE_FLOAT32);
        float out[10];
        const struct gpuserve_op_add_norm op = { .out = out,
                                                 .in = x,
                                                 .residual = x2,
                                                 .gamma = gamma_,
                                                 .beta = beta,
                                                 .eps = 1e-5f,
                                                 .rows = 2,
                                                 .cols = 5 };

        cr_assert_eq(t->backend->add_norm(stream, &op), GPUSERVE_OK);
        cr_expect(all_close(out, layernorm, 10, TOLERANCE), "%s: %s", t->name, difference());
        t->backend->stream_destroy(&stream);
    }
}

Test(ref, attention_is_what_numpy_says)
{
    static const int32_t lengths[] = { 2, 1 };
    const struct gpuserve_batch batch = make_batch(lengths, 2);

    for (int i = 0; i < target_count(); i++) {
        const struct target *t = target_at(i);
        struct gpuserve_stream *stream = small_stream(t, GPUSERVE_DTYPE_FLOAT32);
        float out[12];
        const struct gpuserve_op_attention op = { .batch = &batch,
                                                  .qkv = qkv,
                                                  .out = out,
                                                  .relative_bias = bias,
                                                  .bias_span = 3,
                                                  .n_heads = 2,
                                                  .head_size = 2,
                                                  .scale = 0.75f };

        cr_assert_eq(t->backend->attention(stream, &op), GPUSERVE_OK);
        cr_expect(all_close(out, attention, 12, TOLERANCE), "%s: %s", t->name, difference());
        t->backend->stream_destroy(&stream);
    }
}

Test(ref, pooling_is_what_numpy_says)
{
    static const struct {
        int32_t pooling, normalize;
        const float *want;
    } cases[] = {
        { GPUSERVE_POOL_CLS, 0, pool_cls },
        { GPUSERVE_POOL_MEAN, 0, pool_mean },
        { GPUSERVE_POOL_MAX, 0, pool_max },
        { GPUSERVE_POOL_MEAN_SQRT_LEN, 0, pool_sqrt },
        { GPUSERVE_POOL_WEIGHTED_MEAN, 0, pool_weighted },
        { GPUSERVE_POOL_LAST, 0, pool_last },
        { GPUSERVE_POOL_MEAN, 1, pool_normalized },
    };
    static const int32_t lengths[] = { 3, 1 };
    const struct gpuserve_batch batch = make_batch(lengths, 2);

    for (int i = 0; i < target_count(); i++) {
        const struct target *t = target_at(i);
        struct gpuserve_stream *stream = small_stream(t, GPUSERVE_DTYPE_FLOAT32);

        for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
            float out[4];
            const struct gpuserve_op_pool op = { .batch = &batch,
                                                 .in = tokens,
                                                 .out = out,
                                                 .pooling = cases[c].pooling,
                                                 .hidden = 3,
                                                 .columns = 2,
                                                 .out_ld = 2,
                                                 .normalize = cases[c].normalize };

            cr_assert_eq(t->backend->pool(stream, &op), GPUSERVE_OK);
            cr_expect(all_close(out, cases[c].want, 4, TOLERANCE), "%s, case %zu: %s", t->name, c,
                      difference());
        }
        t->backend->stream_destroy(&stream);
    }
}

Test(ref, scores_are_what_scipy_says)
{
    for (int i = 0; i < target_count(); i++) {
        const struct target *t = target_at(i);
        struct gpuserve_stream *stream = small_stream(t, GPUSERVE_DTYPE_FLOAT32);
        float data[12];
        struct gpuserve_op_rows op = { data, 4, 3, 3, GPUSERVE_ACT_SOFTMAX };

        memcpy(data, tokens, sizeof(data));
        cr_assert_eq(t->backend->activate(stream, &op), GPUSERVE_OK);
        cr_expect(all_close(data, softmax, 12, TOLERANCE), "%s: %s", t->name, difference());
        memcpy(data, tokens, sizeof(data));
        op.activation = GPUSERVE_ACT_SIGMOID;
        cr_assert_eq(t->backend->activate(stream, &op), GPUSERVE_OK);
        cr_expect(all_close(data, sigmoid, 12, TOLERANCE), "%s: %s", t->name, difference());
        t->backend->stream_destroy(&stream);
    }
}
