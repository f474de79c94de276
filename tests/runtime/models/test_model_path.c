/*
 * test_model_path.c - resolves model names to directories; rejects names that leave the cache.
 */
#include "lib/runtime/plan/model_path.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char home[64];

static void make_folder(const char *below)
{
    char path[512];

    snprintf(path, sizeof(path), "%s", home);
    for (const char *part = below; *part;) {
        const size_t length = strcspn(part, "/");

        snprintf(path + strlen(path), sizeof(path) - strlen(path), "/%.*s", (int)length, part);
        mkdir(path, 0700);
        part += length + (part[length] == '/');
    }
}

static void make_file(const char *below, const char *content)
{
    char path[512];
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s", home, below);
    file = fopen(path, "w");
    cr_assert_not_null(file);
    fputs(content, file);
    fclose(file);
}

static void make_home(void)
{
    strcpy(home, "/tmp/gpuserve-home-XXXXXX");
    cr_assert_not_null(mkdtemp(home));
    setenv("HOME", home, 1);
    unsetenv("HF_HUB_CACHE");
    unsetenv("HF_HOME");
    unsetenv("XDG_CACHE_HOME");
    make_folder(".cache/huggingface/hub/models--org--net/refs");
    make_folder(".cache/huggingface/hub/models--org--net/snapshots/abc123");
    make_file(".cache/huggingface/hub/models--org--net/refs/main", "abc123\n");
    make_folder(".cache/huggingface/hub/models--org--evil/refs");
    make_file(".cache/huggingface/hub/models--org--evil/refs/main", "../../../../..");
    make_folder(".cache/huggingface/hub/models--org--gone/refs");
    make_file(".cache/huggingface/hub/models--org--gone/refs/main", "no-such-snapshot");
    make_folder(".cache/gpuserve/models/own-net");
    make_folder(".cache/gpuserve/models/.hidden");
}

static void remove_home(void)
{
    char command[128];

    snprintf(command, sizeof(command), "rm -r '%s'", home);
    cr_expect_eq(system(command), 0);
}

/* Expects `below`, relative to the home; NULL: not found. */
static void expect_found(const struct gsv_hub *hub, const char *name, const char *below)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    char want[512];
    char *path = NULL;
    const gpuserve_status st = gsv_hub_find(hub, name, &path, &error);

    if (!below) {
        cr_expect_eq(st, GPUSERVE_E_NOT_FOUND, "%s", name);
        cr_expect_null(path);
        cr_expect_gt(strlen(error.hint), 0);
        return;
    }
    snprintf(want, sizeof(want), "%s/%s", home, below);
    cr_assert_eq(st, GPUSERVE_OK, "%s: %s", name, error.message);
    cr_expect_str_eq(path, want);
    free(path);
}

Test(hub, names_are_found_in_both_caches, .init = make_home, .fini = remove_home)
{
    struct gsv_hub hub = { 0 };

    cr_assert_eq(gsv_hub_init(&hub, NULL, NULL), GPUSERVE_OK);
    expect_found(&hub, "org/net", ".cache/huggingface/hub/models--org--net/snapshots/abc123");
    expect_found(&hub, "own-net", ".cache/gpuserve/models/own-net");
    expect_found(&hub, "any-org/own-net", ".cache/gpuserve/models/own-net");
    expect_found(&hub, "org/gone", NULL);
    gsv_hub_reset(&hub);
}

Test(hub, revisions_are_branches_tags_and_commits_in_the_cache, .init = make_home,
     .fini = remove_home)
{
    static const char *const nowhere[] = {
        "org/net@",          "org/net@v2",   "org/net@evil",     "org/net@../main",  "@main",
        "org/net@main@main", "org/net@/etc", "own-net@main",     "org/net@refs//pr", "org/net@.git",
        "org/../net@main",   "org/net@ ",    "org/net@abc123/x", "org/none@main"
    };
    struct gsv_hub hub = { 0 };
    char long_name[1000] = "";

    make_folder(".cache/huggingface/hub/models--org--net/refs/refs/pr");
    make_folder(".cache/huggingface/hub/models--org--net/snapshots/def456");
    make_file(".cache/huggingface/hub/models--org--net/refs/v1.0", "def456");
    make_file(".cache/huggingface/hub/models--org--net/refs/refs/pr/2", "def456\n");
    make_file(".cache/huggingface/hub/models--org--net/refs/evil", "../../models--org--net");
    cr_assert_eq(gsv_hub_init(&hub, NULL, NULL), GPUSERVE_OK);
    expect_found(&hub, "org/net@main", ".cache/huggingface/hub/models--org--net/snapshots/abc123");
    expect_found(&hub, "org/net@v1.0", ".cache/huggingface/hub/models--org--net/snapshots/def456");
    expect_found(&hub, "org/net@refs/pr/2",
                 ".cache/huggingface/hub/models--org--net/snapshots/def456");
    expect_found(&hub, "org/net@def456",
                 ".cache/huggingface/hub/models--org--net/snapshots/def456");
    for (size_t i = 0; i < sizeof(nowhere) / sizeof(nowhere[0]); i++)
        expect_found(&hub, nowhere[i], NULL);
    memset(long_name, 'a', sizeof(long_name) - 1);
    long_name[900] = '@';
    expect_found(&hub, long_name, NULL);
    gsv_hub_reset(&hub);
}

Test(hub, names_that_are_paths_in_disguise_lead_nowhere, .init = make_home, .fini = remove_home)
{
    static const char *const names[] = { "..",       "../own-net",   "own-net/../..", ".hidden",
                                         "a//b",     "/nonexistent", "own net",       "own-net/",
                                         "org/evil", "org\\net",     "org/net\n" };
    static char long_name[4000];
    const char *const no_names[] = { "own net", "org\\net", "org/net\n", "a//b", "own-net/" };
    struct gsv_hub hub = { 0 };
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    char *path = NULL;

    cr_assert_eq(chdir(home), 0);
    cr_assert_eq(gsv_hub_init(&hub, NULL, NULL), GPUSERVE_OK);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strncmp(names[i], "..", 2) != 0 || strlen(names[i]) > 2)
            expect_found(&hub, names[i], NULL);
    }
    for (size_t i = 0; i < sizeof(no_names) / sizeof(no_names[0]); i++) {
        error = (gpuserve_error)GPUSERVE_ERROR_INIT;
        cr_expect_eq(gsv_hub_find(&hub, no_names[i], &path, &error), GPUSERVE_E_NOT_FOUND);
        cr_expect_not_null(strstr(error.message, "nor a model name"), "%s", error.message);
    }
    memset(long_name, 'a', sizeof(long_name) - 1);
    expect_found(&hub, long_name, NULL);
    cr_expect_eq(gsv_hub_find(&hub, long_name, &path, &error), GPUSERVE_E_NOT_FOUND);
    cr_expect_not_null(strstr(error.message, "a...: neither a directory nor a model name"), "%s",
                       error.message);
    cr_expect_eq(gsv_hub_find(&hub, "", &path, NULL), GPUSERVE_E_INVALID);
    cr_expect_eq(gsv_hub_find(&hub, NULL, &path, NULL), GPUSERVE_E_INVALID);
    gsv_hub_reset(&hub);
}

/* An existing file is not searched for in the cache; the error says that it is a file. */
Test(hub, a_file_is_no_model, .init = make_home, .fini = remove_home)
{
    static const struct {
        const char *name, *words;
    } cases[] = {
        { "x.onnx", "ONNX" }, { "x.ONNX", "ONNX" }, { "x.bin", "a file" }, { "plain", "a file" }
    };
    struct gsv_hub hub = { 0 };

    cr_assert_eq(gsv_hub_init(&hub, NULL, NULL), GPUSERVE_OK);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        gpuserve_error error = GPUSERVE_ERROR_INIT;
        char *found = NULL, path[512];

        make_file(cases[i].name, "bytes");
        snprintf(path, sizeof(path), "%s/%s", home, cases[i].name);
        cr_expect_eq(gsv_hub_find(&hub, path, &found, &error), GPUSERVE_E_UNSUPPORTED, "%s", path);
        cr_expect_not_null(strstr(error.message, cases[i].words), "%s", error.message);
        cr_expect_null(strstr(error.hint, "pull"), "%s", error.hint);
        cr_expect_null(found);
        unlink(path);
    }
    gsv_hub_reset(&hub);
}

Test(hub, a_gguf_file_is_a_model, .init = make_home, .fini = remove_home)
{
    struct gsv_hub hub = { 0 };
    char *found = NULL, path[512];

    cr_assert_eq(gsv_hub_init(&hub, NULL, NULL), GPUSERVE_OK);
    make_file("x.GGUF", "bytes");
    snprintf(path, sizeof(path), "%s/x.GGUF", home);
    cr_expect_eq(gsv_hub_find(&hub, path, &found, NULL), GPUSERVE_OK);
    cr_expect_str_eq(found, path);
    free(found);
    unlink(path);
    gsv_hub_reset(&hub);
}

Test(hub, the_environment_moves_the_cache_as_it_does_for_others, .init = make_home,
     .fini = remove_home)
{
    struct gsv_hub hub = { 0 };
    char path[128];

    setenv("XDG_CACHE_HOME", "/xdg", 1);
    cr_assert_eq(gsv_hub_init(&hub, NULL, NULL), GPUSERVE_OK);
    cr_expect_str_eq(hub.cache, "/xdg/huggingface/hub");
    cr_expect_str_eq(hub.models, "/xdg/gpuserve/models");
    gsv_hub_reset(&hub);
    setenv("HF_HOME", "/hf", 1);
    cr_assert_eq(gsv_hub_init(&hub, NULL, NULL), GPUSERVE_OK);
    cr_expect_str_eq(hub.cache, "/hf/hub");
    gsv_hub_reset(&hub);
    setenv("HF_HUB_CACHE", "/hub", 1);
    cr_assert_eq(gsv_hub_init(&hub, NULL, NULL), GPUSERVE_OK);
    cr_expect_str_eq(hub.cache, "/hub");
    gsv_hub_reset(&hub);
    snprintf(path, sizeof(path), "%s/.cache/huggingface/hub", home);
    cr_assert_eq(gsv_hub_init(&hub, path, NULL), GPUSERVE_OK);
    expect_found(&hub, "org/net", ".cache/huggingface/hub/models--org--net/snapshots/abc123");
    gsv_hub_reset(&hub);
    unsetenv("HF_HUB_CACHE");
    unsetenv("HF_HOME");
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    cr_assert_eq(gsv_hub_init(&hub, NULL, NULL), GPUSERVE_OK);
    expect_found(&hub, "org/net", NULL);
    gsv_hub_reset(&hub);
}
