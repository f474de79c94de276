/*
 * plan_json.c - a measurement as JSON, and from a file.
 *
 * A file comes from another machine or an earlier run, so every number is checked: finite, positive
 * where a rate or a length is, and no more of them than the arrays hold.
 */
#include "cli/commands/plan/plan.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MIN_NUMBER 1e-9 /* of what is above 0 */
#define MAX_NUMBER 1e15
#define WITHIN_BYTES 32

/* --------------------------------------------------------------------------------------- write */

static json_t *array_of(const double *values, size_t n)
{
    json_t *array = json_array();

    for (size_t i = 0; i < n; i++)
        json_array_append_new(array, json_real(values[i]));
    return array;
}

static json_t *rounds_of(const struct plan_dtype *dtype)
{
    json_t *array = json_array();

    for (size_t i = 0; i < dtype->n_rounds; i++)
        json_array_append_new(array, json_pack("{s:f, s:f}", "batch_s", dtype->rounds[i].batch_s,
                                               "token_s", dtype->rounds[i].token_s));
    return array;
}

static json_t *dtype_of(const struct plan_dtype *dtype)
{
    return json_pack("{s:s, s:o, s:o, s:f, s:f, s:f, s:f}", "dtype", dtype->name, "rounds",
                     rounds_of(dtype), "factors", array_of(dtype->factors, dtype->n_factors),
                     "texts_per_s_one_thread", dtype->one_thread, "texts_per_s_all_threads",
                     dtype->all_threads, "base_bytes", dtype->memory.base_bytes, "bytes_per_thread",
                     dtype->memory.per_thread_bytes);
}

json_t *plan_to_json(const struct plan_measured *measured)
{
    json_t *dtypes = json_array();

    for (size_t i = 0; i < measured->n_dtypes; i++)
        json_array_append_new(dtypes, dtype_of(&measured->dtypes[i]));
    return json_pack("{s:s, s:i, s:f, s:o, s:o}", "processor", measured->processor, "threads",
                     measured->threads, "max_batch_tokens", measured->max_batch_tokens, "lengths",
                     array_of(measured->lengths, measured->n_lengths), "dtypes", dtypes);
}

/* ---------------------------------------------------------------------------------------- read */

/* The file and the object in it, "measured.dtypes[0].rounds[0]", for messages. */
struct json_path {
    const char *path;
    char dtype[WITHIN_BYTES], round[WITHIN_BYTES]; /* ".dtypes[0]", ".rounds[0]", or empty */
};

static int refuse(const struct json_path *at, const char *key, const char *expected)
{
    return cli_fail("%s: measured%s%s.%s: expected %s", at->path, at->dtype, at->round, key,
                    expected);
}

/* A number from `min` on. */
static int read_number(const struct json_path *at, const json_t *object, const char *key,
                       double min, double *value)
{
    const json_t *number = json_object_get(object, key);
    char expected[64];

    *value = json_number_value(number);
    if (!json_is_number(number) || !(*value >= min && *value <= MAX_NUMBER)) {
        snprintf(expected, sizeof(expected), "a number from %g to %g", min, MAX_NUMBER);
        return refuse(at, key, expected);
    }
    return CLI_OK;
}

static int read_numbers(const struct json_path *at, const json_t *object, const char *key,
                        double *values, size_t max, size_t *n)
{
    const json_t *array = json_object_get(object, key), *number;
    char expected[64];
    size_t i;

    *n = json_array_size(array);
    snprintf(expected, sizeof(expected), "a list of 1 to %zu numbers from %g to %g", max,
             MIN_NUMBER, MAX_NUMBER);
    if (*n == 0 || *n > max)
        return refuse(at, key, expected);
    json_array_foreach((json_t *)array, i, number)
    {
        values[i] = json_number_value(number);
        if (!json_is_number(number) || !(values[i] >= MIN_NUMBER && values[i] <= MAX_NUMBER))
            return refuse(at, key, expected);
    }
    return CLI_OK;
}

static int read_rounds(const struct json_path *at, const json_t *object, struct plan_dtype *dtype)
{
    const json_t *array = json_object_get(object, "rounds"), *round;
    size_t i;

    dtype->n_rounds = json_array_size(array);
    if (dtype->n_rounds == 0 || dtype->n_rounds > PLAN_MAX_ROUNDS)
        return refuse(at, "rounds", "a list of 1 to 200 rounds");
    json_array_foreach((json_t *)array, i, round)
    {
        struct cli_service *service = &dtype->rounds[i];
        struct json_path inner = *at;

        snprintf(inner.round, sizeof(inner.round), ".rounds[%zu]", i);
        if (read_number(&inner, round, "batch_s", 0, &service->batch_s) != CLI_OK ||
            read_number(&inner, round, "token_s", 0, &service->token_s) != CLI_OK)
            return CLI_FAILED;
        if (service->batch_s + service->token_s < 1e-12)
            return refuse(&inner, "token_s", "a time above 0 here or in batch_s");
    }
    return CLI_OK;
}

static int read_dtype(const struct json_path *at, const json_t *object, struct plan_dtype *dtype)
{
    const char *name = json_string_value(json_object_get(object, "dtype"));
    struct plan_memory *memory = &dtype->memory;

    if (!name || !*name || strlen(name) >= sizeof(dtype->name))
        return refuse(at, "dtype", "a name of 1 to 15 bytes");
    strcpy(dtype->name, name);
    if (read_rounds(at, object, dtype) != CLI_OK ||
        read_numbers(at, object, "factors", dtype->factors, PLAN_MAX_FACTORS, &dtype->n_factors) !=
            CLI_OK ||
        read_number(at, object, "texts_per_s_one_thread", MIN_NUMBER, &dtype->one_thread) !=
            CLI_OK ||
        read_number(at, object, "texts_per_s_all_threads", MIN_NUMBER, &dtype->all_threads) !=
            CLI_OK ||
        read_number(at, object, "base_bytes", 0, &memory->base_bytes) != CLI_OK)
        return CLI_FAILED;
    return read_number(at, object, "bytes_per_thread", 0, &memory->per_thread_bytes);
}

static int read_measured(const char *path, const json_t *object, struct plan_measured *measured)
{
    const json_t *dtypes = json_object_get(object, "dtypes"), *dtype;
    const char *processor = json_string_value(json_object_get(object, "processor"));
    const struct json_path at = { .path = path };
    double threads;
    size_t i;

    snprintf(measured->processor, sizeof(measured->processor), "%s", processor ? processor : "CPU");
    if (read_number(&at, object, "threads", 1, &threads) != CLI_OK ||
        read_number(&at, object, "max_batch_tokens", 1, &measured->max_batch_tokens) != CLI_OK ||
        read_numbers(&at, object, "lengths", measured->lengths, PLAN_MAX_LENGTHS,
                     &measured->n_lengths) != CLI_OK)
        return CLI_FAILED;
    if (threads > 4096 || threads != floor(threads))
        return refuse(&at, "threads", "a whole number up to 4096");
    measured->threads = (int)threads;
    measured->n_dtypes = json_array_size(dtypes);
    if (measured->n_dtypes == 0 || measured->n_dtypes > PLAN_MAX_DTYPES)
        return refuse(&at, "dtypes", "a list of 1 to 4 dtypes");
    json_array_foreach((json_t *)dtypes, i, dtype)
    {
        struct json_path inner = at;

        snprintf(inner.dtype, sizeof(inner.dtype), ".dtypes[%zu]", i);
        if (read_dtype(&inner, dtype, &measured->dtypes[i]) != CLI_OK)
            return CLI_FAILED;
    }
    return CLI_OK;
}

int plan_from_file(struct plan_measured *measured, const char *path)
{
    json_error_t error;
    json_t *file = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    int result;

    memset(measured, 0, sizeof(*measured));
    if (!file)
        return cli_fail("%s: %s (line %d)", path, error.text, error.line);
    result = read_measured(path, json_object_get(file, "measured"), measured);
    json_decref(file);
    return result;
}
