/*
 * reservations.c - a context whose plugin has two devices of 12 GB, and models that only reserve
 * memory there.
 *
 * The models are fakes (fake.h) with a configured weight size; nothing is allocated.
 */
#include "tests/runtime/memory/reservations.h"

#include "tests/runtime/fake.h"
#include "tests/runtime/plugin_folder.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *const reservations_text[1] = { "a text of words" };

static char plugin_dir[PLUGIN_FOLDER_BYTES];

gpuserve_context *make_context(uint32_t policy, uint32_t wait_ms)
{
    gpuserve_context_options options = GPUSERVE_CONTEXT_OPTIONS_INIT;
    gpuserve_context *context = NULL;

    plugin_folder_make(plugin_dir, "plugin-small");
    options.plugin_dir = plugin_dir;
    options.n_threads = 2;
    options.memory_policy = policy;
    options.memory_wait_ms = wait_ms;
    cr_assert_eq(gpuserve_context_create(&context, &options, NULL), GPUSERVE_OK);
    return context;
}

void end_context(gpuserve_context **context)
{
    gpuserve_context_unref(context);
    plugin_folder_remove(plugin_dir);
}

gpuserve_model_options named(const char *name)
{
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;

    options.device = "cuda:0";
    options.dtype = GPUSERVE_DTYPE_FLOAT32;
    options.name = name;
    return options;
}

gpuserve_status try_open(gpuserve_model **model, gpuserve_context *context, uint64_t weights,
                         const gpuserve_model_options *options, gpuserve_error *error)
{
    fake_set_weights(weights);
    return gpuserve_model_open(model, context, ".", options, error);
}

gpuserve_model *open_named(gpuserve_context *context, const char *name, uint64_t weights)
{
    const gpuserve_model_options options = named(name);
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_model *model = NULL;

    cr_assert_eq(try_open(&model, context, weights, &options, &error), GPUSERVE_OK, "%s",
                 error.message);
    return model;
}

void check_answer(gpuserve_model *model)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    float row[FAKE_DIM], want[FAKE_DIM];

    fake_vector(reservations_text[0], want);
    cr_assert_eq(gpuserve_embed(model, reservations_text, 1, row, FAKE_DIM, NULL, &error),
                 GPUSERVE_OK, "%s", error.message);
    cr_expect_eq(memcmp(row, want, sizeof(row)), 0);
}

const char *told(gpuserve_context *context, const char *name)
{
    static char json[8192];
    char key[64], *begin, *end;

    cr_assert_eq(gpuserve_context_models(context, json, sizeof(json), NULL, NULL), GPUSERVE_OK);
    snprintf(key, sizeof(key), "\"name\": \"%s\"", name);
    begin = strstr(json, key);
    if (!begin) {
        snprintf(key, sizeof(key), "\"name\":\"%s\"", name);
        begin = strstr(json, key);
    }
    cr_assert_not_null(begin, "%s in %s", name, json);
    end = strchr(begin, '}');
    cr_assert_not_null(end);
    *end = '\0';
    return begin;
}

void expect_state(gpuserve_context *context, const char *name, const char *state)
{
    const char *model = told(context, name);

    cr_expect_not_null(strstr(model, state), "%s in %s", state, model);
}

void expect_words(const char *message, const char *const *words, size_t n)
{
    for (size_t i = 0; i < n; i++)
        cr_expect_not_null(strstr(message, words[i]), "\"%s\" in: %s", words[i], message);
}
