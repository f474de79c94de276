/*
 * eval_vectors.c - the vectors that `gpuserve eval` compares: those of --precision and
 * --similarity.
 *
 *   vectors of `gpuserve embed` -> values of --precision as numbers -> unit length for the cosine
 *
 * As in the evaluators of sentence-transformers, int8 and uint8 values count as they are stored,
 * and the bits of binary vectors as 0 and 1.
 */
#include "cli/commands/eval/eval.h"
#include "cli/io/output.h"
#include "cli/model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

uint32_t cli_eval_normalize(const struct cli_args *args)
{
    /* Before a conversion to other types the model's own length counts, as in `gpuserve embed`. */
    return args->precision || args->similarity ? GPUSERVE_NORMALIZE_DEFAULT
                                               : GPUSERVE_NORMALIZE_YES;
}

int cli_eval_vectors_open(struct eval_vectors *vectors, gpuserve_model *model,
                          const struct cli_args *args)
{
    gpuserve_job job = GPUSERVE_JOB_INIT;
    int result;

    *vectors = (struct eval_vectors){ .precision = args->precision, .dot = args->similarity };
    result = cli_vector_dim(&vectors->dim, model, args);
    if (result != CLI_OK || !cli_has_ranges(args))
        return result;
    if (args->ranges)
        return cli_ranges_read(&vectors->ranges, args->ranges, vectors->dim);
    cli_vector_options(&job, args);
    job.task = GPUSERVE_TASK_EMBED;
    return cli_ranges_builtin(&vectors->ranges, model, &job, vectors->dim);
}

void cli_eval_vectors_close(struct eval_vectors *vectors)
{
    free(vectors->ranges);
    free(vectors->stored);
    memset(vectors, 0, sizeof(*vectors));
}

/* IEEE 754 binary16. */
static float from_half(uint16_t bits)
{
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    const float size =
        exponent ? ldexpf((float)(1024 + fraction), exponent - 25) : ldexpf((float)fraction, -24);

    return bits >> 15 ? -size : size;
}

static float stored_value(const struct eval_vectors *vectors, size_t i)
{
    const uint8_t *bytes = vectors->stored;
    uint16_t half;

    switch (vectors->precision) {
    case GPUSERVE_PRECISION_FLOAT16:
        memcpy(&half, bytes + 2 * i, sizeof(half));
        return from_half(half);
    case GPUSERVE_PRECISION_INT8:
        return (int8_t)bytes[i];
    case GPUSERVE_PRECISION_UINT8:
        return bytes[i];
    case GPUSERVE_PRECISION_BINARY: /* UBINARY minus 128 */
        return (float)((bytes[i / 8] ^ 128) >> (7 - i % 8) & 1);
    default:
        return (float)(bytes[i / 8] >> (7 - i % 8) & 1);
    }
}

static void scale_to_unit(float *row, size_t dim)
{
    double squares = 0;

    for (size_t i = 0; i < dim; i++)
        squares += (double)row[i] * row[i];
    for (size_t i = 0; i < dim && squares > 0; i++)
        row[i] = (float)(row[i] / sqrt(squares));
}

int cli_eval_vectors_convert(struct eval_vectors *vectors, float *rows, size_t n)
{
    const size_t bytes = gpuserve_quantized_bytes(vectors->precision, vectors->dim);
    gpuserve_error error = GPUSERVE_ERROR_INIT;

    if (vectors->precision == GPUSERVE_PRECISION_FLOAT32)
        return CLI_OK;
    vectors->stored = cli_grow(vectors->stored, &vectors->capacity, bytes, 1);
    for (size_t r = 0; r < n; r++) {
        float *row = rows + r * vectors->dim;

        if (gpuserve_quantize(row, 1, vectors->dim, vectors->precision, vectors->ranges,
                              vectors->stored, bytes, &error) != GPUSERVE_OK)
            return cli_fail_with(&error, "--precision");
        for (size_t i = 0; i < vectors->dim; i++)
            row[i] = stored_value(vectors, i);
        if (!vectors->dot)
            scale_to_unit(row, vectors->dim);
    }
    return CLI_OK;
}

int cli_eval_embed(struct fit_set *set, gpuserve_model *model, const char *what,
                   struct eval_vectors *vectors, const struct cli_args *args)
{
    const int result = cli_fit_embed(set, model, what, cli_eval_normalize(args), args);

    return result == CLI_OK ? cli_eval_vectors_convert(vectors, set->vectors, set->n) : result;
}
