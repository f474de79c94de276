/*
 * test_dlopen.c - the library loaded by dlopen(), used and unloaded: it leaves nothing behind.
 *
 * LIBRARY is the path of the library.
 */
#include <gpuserve/gpuserve.h>

#include <criterion/criterion.h>
#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N_LIGHT = 1000, N_WITH_MODEL = 5, DIM = 128 };

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

static bool is_mapped(const char *name)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[1024];
    bool found = false;

    cr_assert_not_null(maps);
    while (fgets(line, sizeof(line), maps))
        found |= strstr(line, name) != NULL;
    fclose(maps);
    return found;
}

static void *symbol(void *library, const char *name)
{
    void *found = dlsym(library, name);

    cr_assert_not_null(found, "%s", name);
    return found;
}

#define LOAD(function)                          \
    __typeof__(&gpuserve_##function) function = \
        (__typeof__(&gpuserve_##function))symbol(library, "gpuserve_" #function)

static void use_context(void *library)
{
    LOAD(context_create);
    LOAD(context_metrics);
    LOAD(context_doctor);
    LOAD(context_unref);
    gpuserve_context *context = NULL;
    size_t size;

    cr_assert_eq(context_create(&context, NULL, NULL), GPUSERVE_OK);
    cr_assert_eq(context_metrics(context, NULL, 0, &size, NULL), GPUSERVE_OK);
    cr_assert_eq(context_doctor(context, NULL, NULL, 0, &size, NULL), GPUSERVE_OK);
    context_unref(&context);
}

static void use_model(void *library)
{
    static const char *const texts[] = { "a text" };
    LOAD(model_open);
    LOAD(embed);
    LOAD(completion_fd);
    LOAD(model_close);
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_model *model = NULL;
    float row[DIM];
    char path[1024];
    const char *models = getenv("GPUSERVE_TEST_MODELS"), *cache = getenv("XDG_CACHE_HOME");

    if (models)
        snprintf(path, sizeof(path), "%s/splade-tiny", models);
    else if (cache && *cache)
        snprintf(path, sizeof(path), "%s/gpuserve/models/splade-tiny", cache);
    else
        snprintf(path, sizeof(path), "%s/.cache/gpuserve/models/splade-tiny", getenv("HOME"));
    cr_assert_eq(access(path, R_OK), 0, "%s is missing: run ./dev models splade-tiny", path);
    cr_assert_eq(model_open(&model, NULL, path, NULL, &error), GPUSERVE_OK, "%s", error.message);
    cr_assert_eq(embed(model, texts, 1, row, DIM, NULL, &error), GPUSERVE_OK, "%s", error.message);
    cr_assert_geq(completion_fd(model), 0);
    model_close(&model);
}

Test(dlopen, the_library_leaves_nothing_behind)
{
    int threads = 0, descriptors = 0;

    for (int i = 0; i < N_LIGHT; i++) {
        void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);

        cr_assert_not_null(library, "%s", dlerror());
        use_context(library);
        if (i < N_WITH_MODEL)
            use_model(library);
        cr_assert_eq(dlclose(library), 0);
        cr_assert(!is_mapped("libgpuserve"), "round %d: still mapped", i);
        if (i == 0) {
            threads = count_entries("/proc/self/task");
            descriptors = count_entries("/proc/self/fd");
        }
    }
    cr_expect_eq(count_entries("/proc/self/task"), threads);
    cr_expect_eq(count_entries("/proc/self/fd"), descriptors);
}
