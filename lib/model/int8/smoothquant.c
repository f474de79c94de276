/*
 * smoothquant.c - creates INT8 linears with SmoothQuant: balances input and weight ranges, then
 * rounds the weights by the measured inputs (weight_rounding.c).
 *
 * A few columns of a transformer's activations are far larger than the rest, and one scale for a
 * whole row leaves few of the 255 levels to the others. So input column j is divided, and weight
 * column j multiplied, by s_j = sqrt(r_j / max |w_j|). The product is unchanged, and both sides
 * lose less precision. r_j is the fourth root of the mean of x_j^4. It is dominated by large
 * values, but not by the largest alone as a maximum is, which depends on chance.
 *
 * Inputs that are still far larger than the rest take several columns, if the device has them
 * (outlier channel splitting, Zhao et al. 2019): with c columns the steps of both sides are c times
 * finer, and r_j c takes the place of r_j. So one input of 100 times the range of others costs a
 * few columns, not the steps of all.
 *
 * The calibration texts run stage by stage, each through the INT8 linear just created. That takes a
 * third of the time of unquantized linears, and the ranges are those that later linears will see.
 *
 * LayerNorm's output also feeds the residual. So the scale is applied to the linear's input and not
 * folded into the LayerNorm.
 */
#include "lib/model/int8/staged_run.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/model/formats/checkpoint.h"
#include "lib/model/int8/int8.h"
#include "lib/model/weights/weights.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_FLOATS ((size_t)1 << 18)
#define MIN_SCALE 1e-3f
#define MAX_SCALE 1e3f
#define MAX_RANGE 3.0f

struct smoother {
    struct gsv_net *net;
    struct gsv_reader *reader;
    const struct gpuserve_host_batch *host;
    int32_t n_threads;
    struct gsv_staged_run run;
    float *chunk;    /* host, CHUNK_FLOATS plus one row */
    float *range;    /* host, [wide_columns] r, then 1 / s */
    float *squares;  /* host, [wide_columns] mean of x^2, then what the means leave of it */
    float *means;    /* host, [texts, wide_columns] the mean row of each text */
    float *u;        /* host, [wide_columns, texts] the means, scaled and transposed */
    float *scratch;  /* host, gsv_rounding_floats() */
    float *largest;  /* host, [wide_columns] max |w_j| */
    int32_t *copies; /* host, [wide_columns] columns of each input of the product */
};

static void smoother_reset(struct smoother *s)
{
    gsv_staged_close(&s->run);
    free(s->chunk);
    free(s->range);
    free(s->squares);
    free(s->means);
    free(s->u);
    free(s->scratch);
    free(s->largest);
    free(s->copies);
}

static gpuserve_status alloc_host(struct smoother *s, gpuserve_error *error)
{
    const size_t columns = (size_t)s->run.wide_columns;
    const size_t texts = (size_t)s->host->n_sequences;

    s->chunk = gsv_alloc_array(CHUNK_FLOATS + columns, sizeof(float));
    s->range = gsv_alloc_array(columns, sizeof(float));
    s->squares = gsv_alloc_array(columns, sizeof(float));
    s->means = gsv_alloc_array(columns * texts, sizeof(float));
    s->u = gsv_alloc_array(columns * texts, sizeof(float));
    s->scratch = gsv_alloc_array(gsv_rounding_floats(columns, texts, s->n_threads), sizeof(float));
    s->largest = gsv_alloc_array(columns, sizeof(float));
    s->copies = gsv_alloc_array(columns, sizeof(int32_t));
    if (!s->chunk || !s->range || !s->squares || !s->means || !s->u || !s->scratch || !s->largest ||
        !s->copies)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for calibration");
    return GPUSERVE_OK;
}

/* Add one row to the columns' sums of x, x^2 and x^4. */
static void add_row(float *restrict mean, float *restrict squares, float *restrict powers,
                    const float *restrict row, size_t columns, float weight)
{
    for (size_t j = 0; j < columns; j++) {
        const float square = row[j] * row[j];

        mean[j] += weight * row[j];
        squares[j] += weight * square;
        powers[j] += weight * square * square;
    }
}

static bool are_finite(const float *values, size_t rows, size_t columns, size_t ld)
{
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < columns; j++)
            if (!isfinite(values[i * ld + j]))
                return false;
    return true;
}

/* Measure one text: rows [row, end) of the stage's input. */
static gpuserve_status measure_text(struct smoother *s, const char *input, int32_t text,
                                    size_t columns, size_t ld, gpuserve_error *error)
{
    const size_t size = s->net->backend->activation_size(GPUSERVE_DTYPE_INT8);
    const size_t step = CHUNK_FLOATS / ld + 1;
    const size_t end = (size_t)s->host->cu_seqlens[text + 1];
    size_t row = (size_t)s->host->cu_seqlens[text];
    const float weight = 1.0f / (float)(end - row);

    for (; row < end; row += step) {
        const size_t rows = end - row < step ? end - row : step;
        const size_t n = rows * ld;
        char *to = (char *)s->chunk + n * (sizeof(float) - size); /* widened in place */
        const gpuserve_status st = s->net->backend->memory_read(
            s->net->device, to, input + row * ld * size, n * size, error);

        if (st != GPUSERVE_OK)
            return st;
        if (size != sizeof(float))
            gsv_floats_from_f16(s->chunk, to, n);
        /* Attention spreads a token that overflows over its text: none of it has a range. */
        if (!are_finite(s->chunk, rows, columns, ld))
            continue;
        for (size_t i = 0; i < rows; i++)
            add_row(s->means + (size_t)text * columns, s->squares, s->range, s->chunk + i * ld,
                    columns, weight);
    }
    return GPUSERVE_OK;
}

/* range[j] = the fourth root of the mean of x_j^4 over the stage's input, and the means for
 * set_squares(). Each text has the same weight: errors do not average out in a short one. */
static gpuserve_status measure_input(struct smoother *s, int32_t stage, size_t columns,
                                     gpuserve_error *error)
{
    const char *input = gsv_stage_input(s->net->spec, &s->run.at, stage);
    const size_t ld = (size_t)gsv_stage_input_ld(s->net->spec, &s->run.at, stage);
    const float texts = (float)s->host->n_sequences;
    gpuserve_status st = GPUSERVE_OK;

    memset(s->range, 0, columns * sizeof(float));
    memset(s->squares, 0, columns * sizeof(float));
    memset(s->means, 0, columns * (size_t)s->host->n_sequences * sizeof(float));
    for (int32_t i = 0; i < s->host->n_sequences && st == GPUSERVE_OK; i++)
        st = measure_text(s, input, i, columns, ld, error);
    for (size_t j = 0; j < columns; j++) {
        s->range[j] = sqrtf(sqrtf(s->range[j] / texts));
        s->squares[j] /= texts;
    }
    return st;
}

/* The mean squares of the scaled input: the means of the texts, and what these leave. */
static struct gsv_input_squares set_squares(struct smoother *s, size_t k)
{
    const size_t texts = (size_t)s->host->n_sequences;
    const float root = 1.0f / sqrtf((float)texts);

    for (size_t j = 0; j < k; j++) {
        float explained = 0.0f;

        s->squares[j] *= s->range[j] * s->range[j];
        for (size_t t = 0; t < texts; t++) {
            const float u = s->means[t * k + j] * s->range[j] * root;

            s->u[j * texts + t] = u;
            explained += u * u;
        }
        s->squares[j] = fmaxf(0.0f, s->squares[j] - explained);
    }
    return (struct gsv_input_squares){ k, texts, s->u, s->squares };
}

static void take_largest(float *restrict largest, const float *restrict row, size_t k)
{
    for (size_t j = 0; j < k; j++) {
        const float size = fabsf(row[j]);

        largest[j] = size > largest[j] ? size : largest[j];
    }
}

static void measure_weight(struct smoother *s, const float *weight, size_t n, size_t k)
{
    memset(s->largest, 0, k * sizeof(float));
    for (size_t i = 0; i < n; i++)
        take_largest(s->largest, weight + i * k, k);
}

static void multiply(float *restrict row, const float *restrict factors, size_t k)
{
    for (size_t j = 0; j < k; j++)
        row[j] *= factors[j];
}

/* The input whose columns have the largest range once balanced: its square is r_j max |w_j| /
 * copies_j. */
static size_t largest_input(const struct smoother *s, size_t k, float *square)
{
    size_t at = 0;

    *square = 0.0f;
    for (size_t j = 0; j < k; j++) {
        const float here = s->range[j] * s->largest[j] / (float)s->copies[j];

        if (here > *square) {
            *square = here;
            at = j;
        }
    }
    return at;
}

/* Gives columns to the inputs with the largest ranges, one by one, until none is above MAX_RANGE
 * times the mean of the squares' root, or no column is left. Returns whether any input has several.
 */
static bool choose_copies(struct smoother *s, size_t k)
{
    int32_t step;
    const int32_t max_copies = s->net->backend->int8_copies(s->net->device, (int32_t)k, &step);
    float limit = 0.0f, square;
    int32_t used = 0;

    for (size_t j = 0; j < k; j++) {
        s->copies[j] = 1;
        limit += s->range[j] * s->largest[j] / (float)k;
    }
    limit *= MAX_RANGE * MAX_RANGE;
    for (; used < max_copies; used++) {
        const size_t j = largest_input(s, k, &square);

        if (!(square > limit) && used % step == 0)
            break;
        s->copies[j]++;
    }
    return used > 0;
}

/* Multiply the weight's columns by s_j and store 1 / s_j in s->range. */
static void balance(struct smoother *s, float *weight, size_t n, size_t k)
{
    float *scales = s->largest; /* [k] max |w_j|, then s_j */

    for (size_t j = 0; j < k; j++) {
        const float range = s->range[j] * (float)s->copies[j];
        float scale = 1.0f; /* for a column of zeros */

        if (range > 0.0f && scales[j] > 0.0f)
            scale = fminf(fmaxf(sqrtf(range / scales[j]), MIN_SCALE), MAX_SCALE);
        scales[j] = scale;
        s->range[j] = 1.0f / scale;
    }
    for (size_t i = 0; i < n; i++)
        multiply(weight + i * k, scales, k);
}

/* Stage `step` of all layers' stages. */
static gpuserve_status smooth_stage(struct smoother *s, int32_t step, gpuserve_error *error)
{
    struct gsv_net *net = s->net;
    const int32_t stages = gsv_stage_count(net->spec), stage = step % stages;
    const int32_t index = gsv_stage_item(net->spec, step / stages, stage);
    const struct gsv_weight *item = &net->spec->items[index];
    const bool is_last = step + 1 == net->spec->config.n_layers * stages;
    struct gpuserve_linear_source source = { 0 };
    struct gsv_input_squares squares;
    gpuserve_status st;

    if (net->linears[index]) /* shared with an earlier layer */
        return is_last ? GPUSERVE_OK : gsv_staged_step(&s->run, step, error);
    st = measure_input(s, stage, (size_t)item->k, error);
    if (st == GPUSERVE_OK)
        st = gsv_read_linear(s->reader, item, &source, error);
    if (st != GPUSERVE_OK)
        return st;
    measure_weight(s, s->reader->floats, (size_t)item->n, (size_t)item->k);
    if (choose_copies(s, (size_t)item->k))
        source.copies = s->copies;
    balance(s, s->reader->floats, (size_t)item->n, (size_t)item->k);
    squares = set_squares(s, (size_t)item->k);
    source.dtype = GPUSERVE_DTYPE_INT8;
    source.input_scale = s->range;
    source.scale = s->chunk; /* free again; an output is a column of some activation */
    net->backend->int8_scales(net->device, &source, s->chunk);
    gsv_round_weights(s->reader->floats, source.scale, source.copies, (size_t)item->n, &squares,
                      s->scratch, s->n_threads);
    st = net->backend->linear_create(net->device, &net->linears[index], net->addresses[index],
                                     &source, error);
    if (st == GPUSERVE_OK && !is_last)
        st = gsv_staged_step(&s->run, step, error);
    return st;
}

gpuserve_status gsv_net_smooth(struct gsv_net *net, struct gsv_reader *reader,
                               const struct gpuserve_host_batch *batch, int32_t n_threads,
                               gpuserve_error *error)
{
    struct smoother s = {
        .net = net,
        .reader = reader,
        .host = batch,
        .n_threads = n_threads,
    };
    const int32_t steps = net->spec->config.n_layers * gsv_stage_count(net->spec);
    gpuserve_status st = gsv_staged_open(&s.run, net, batch, GPUSERVE_DTYPE_INT8, n_threads, error);

    if (st == GPUSERVE_OK)
        st = alloc_host(&s, error);
    if (st == GPUSERVE_OK)
        st = gsv_staged_step(&s.run, -1, error);
    for (int32_t i = 0; i < steps && st == GPUSERVE_OK; i++)
        st = smooth_stage(&s, i, error);
    smoother_reset(&s);
    return st;
}
