/*
 * real.c - helpers of tests with real models: texts, models, comparison.
 */
#define _GNU_SOURCE
#include "tests/runtime/real.h"

#include "tests/model/support.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_TEXTS 1024

json_t *read_json(const char *name)
{
    json_t *root = json_load_file(test_data(name), 0, NULL);

    cr_assert(root, "%s", name);
    return root;
}

const char *const *oracle_texts(size_t *n)
{
    static const char *texts[MAX_TEXTS];
    static size_t count;
    char *line = NULL;
    size_t capacity = 0;
    FILE *file;

    *n = count;
    if (count > 0)
        return texts;
    file = fopen(test_data("oracle/texts.jsonl"), "r");
    cr_assert_not_null(file);
    while (getline(&line, &capacity, file) > 0 && count < MAX_TEXTS) {
        json_t *row = json_loads(line, JSON_ALLOW_NUL, NULL);
        const json_t *text = json_object_get(row, "text");

        cr_assert_not_null(text);
        texts[count++] = strdup(json_string_value(text));
        json_decref(row);
    }
    free(line);
    fclose(file);
    *n = count;
    return texts;
}

gpuserve_model *open_real(const char *name, uint32_t dtype, uint32_t n_threads)
{
    gpuserve_context_options context_options = GPUSERVE_CONTEXT_OPTIONS_INIT;
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_context *context = NULL;
    gpuserve_model *model = NULL;

    context_options.n_threads = n_threads;
    cr_assert_eq(gpuserve_context_create(&context, &context_options, &error), GPUSERVE_OK, "%s",
                 error.message);
    options.device = "cpu";
    options.dtype = dtype;
    cr_assert_eq(gpuserve_model_open(&model, context, real_model(name), &options, &error),
                 GPUSERVE_OK, "%s", error.message);
    gpuserve_context_unref(&context);
    return model;
}

uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static int count_entries(const char *path)
{
    DIR *dir = opendir(path);
    int n = 0;

    cr_assert_not_null(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

int count_threads(void)
{
    return count_entries("/proc/self/task");
}

int settled_threads(void)
{
    int before, now = count_threads();

    do {
        before = now;
        usleep(100000);
        now = count_threads();
    } while (now != before);
    return now;
}

int count_descriptors(void)
{
    return count_entries("/proc/self/fd");
}

size_t resident_bytes(void)
{
    unsigned long all = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");

    cr_assert_not_null(file);
    cr_assert_eq(fscanf(file, "%lu %lu", &all, &resident), 2);
    fclose(file);
    return resident * (size_t)sysconf(_SC_PAGESIZE);
}
