/*
 * model_path.c - resolves a model's name to its directory or GGUF file. Read-only; accesses no
 * network.
 *
 * gsv_hub_init() reads the environment once, when the context is created, as huggingface_hub does:
 * HF_HUB_CACHE, else HF_HOME/hub, else XDG_CACHE_HOME/huggingface/hub, else
 * ~/.cache/huggingface/hub.
 */
#define _GNU_SOURCE
#include "lib/runtime/plan/model_path.h"

#include "lib/base/alloc.h"
#include "lib/base/dir.h"
#include "lib/base/error.h"
#include "lib/base/utf8.h"
#include "lib/model/formats/checkpoint.h"
#include "lib/model/formats/formats.h"
#include "lib/model/formats/lora.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#define REVISION_MAX_BYTES 256
#define NAME_MAX_BYTES 512

static const char *set_or_null(const char *variable)
{
    const char *value = getenv(variable);

    return value && *value ? value : NULL;
}

/* Join `base` and `below`; NULL if base is NULL or out of memory (*failed distinguishes them). */
static char *join(const char *base, const char *below, bool *failed)
{
    char *path = NULL;

    if (!base)
        return NULL;
    if (asprintf(&path, "%s%s", base, below) < 0) {
        *failed = true;
        return NULL;
    }
    return path;
}

gpuserve_status gsv_hub_init(struct gsv_hub *hub, const char *cache_dir, gpuserve_error *error)
{
    const char *given = cache_dir ? cache_dir : set_or_null("HF_HUB_CACHE");
    const char *hf_home = set_or_null("HF_HOME"), *home = set_or_null("HOME");
    bool failed = false;
    char *cache = join(set_or_null("XDG_CACHE_HOME"), "", &failed);

    if (!cache)
        cache = join(home, "/.cache", &failed);
    if (given)
        hub->cache = join(given, "", &failed);
    else
        hub->cache =
            hf_home ? join(hf_home, "/hub", &failed) : join(cache, "/huggingface/hub", &failed);
    hub->models = join(cache, "/gpuserve/models", &failed);
    free(cache);
    return failed ? gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for the cache's path")
                  : GPUSERVE_OK;
}

void gsv_hub_reset(struct gsv_hub *hub)
{
    free(hub->cache);
    free(hub->models);
    hub->cache = hub->models = NULL;
}

static bool is_directory(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static bool is_file(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

/* Components of [A-Za-z0-9._-] without a leading dot, separated by single slashes. */
static bool is_name(const char *name)
{
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                  "0123456789._-";

    if (strlen(name) > NAME_MAX_BYTES)
        return false;
    for (;;) {
        const size_t length = strspn(name, allowed);

        if (length == 0 || name[0] == '.')
            return false;
        if (name[length] == '\0')
            return true;
        if (name[length] != '/')
            return false;
        name += length + 1;
    }
}

/* "org/name" as "models--org--name"; the capacity of `out` is twice the name plus a prefix. */
static void repo_folder(const char *name, char *out)
{
    out += sprintf(out, "models--");
    for (; *name; name++) {
        if (*name == '/')
            *out++ = '-';
        *out++ = *name == '/' ? '-' : *name;
    }
    *out = '\0';
}

/* Find the snapshot that refs/REVISION names, or whose own name is `revision`. *path stays NULL if
 * none exists. */
static gpuserve_status find_snapshot(const char *cache, const char *name, const char *revision,
                                     char **path, gpuserve_error *error)
{
    char folder[2 * NAME_MAX_BYTES + 16];
    char *ref = NULL, *commit = NULL, *found = NULL;
    const char *snapshot = revision;
    bool failed = false;
    size_t size = 0;

    repo_folder(name, folder);
    if (asprintf(&ref, "%s/%s/refs/%s", cache, folder, revision) < 0)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a path");
    if (gsv_file_read(ref, REVISION_MAX_BYTES, &commit, &size, NULL) == GPUSERVE_OK) {
        commit[strcspn(commit, " \t\r\n")] = '\0';
        snapshot = commit;
    }
    if (is_name(snapshot) && !strchr(snapshot, '/'))
        failed = asprintf(&found, "%s/%s/snapshots/%s", cache, folder, snapshot) < 0;
    free(ref);
    free(commit);
    if (failed)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a path");
    if (found && is_directory(found))
        *path = found;
    else
        free(found);
    return GPUSERVE_OK;
}

static gpuserve_status fail_no_name(const char *name, gpuserve_error *error)
{
    /* A long text is no name: its beginning suffices and leaves capacity for the rest. */
    gsv_fail(error, GPUSERVE_E_NOT_FOUND, "%.300s%s: neither a directory nor a model name", name,
             strlen(name) > 300 ? "..." : "");
    return gsv_hint(error, GPUSERVE_E_NOT_FOUND,
                    "a model name is NAME or OWNER/NAME of letters, digits, '.', '_' and '-', such "
                    "as sentence-transformers/all-MiniLM-L6-v2; @REVISION may follow");
}

static gpuserve_status find_own(const char *models, const char *name, char **path,
                                gpuserve_error *error)
{
    const char *slash = strrchr(name, '/');
    const char *names[] = { name, slash ? slash + 1 : NULL };

    for (size_t i = 0; i < 2 && names[i]; i++) {
        if (asprintf(path, "%s/%s", models, names[i]) < 0) {
            *path = NULL;
            return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a path");
        }
        if (is_directory(*path))
            return GPUSERVE_OK;
        free(*path);
        *path = NULL;
    }
    return GPUSERVE_OK;
}

static gpuserve_status fail_no_revision(const char *name, const char *revision,
                                        gpuserve_error *error)
{
    gsv_fail(error, GPUSERVE_E_NOT_FOUND, "%s: revision \"%s\" is not in the cache", name,
             revision);
    return gsv_hint(error, GPUSERVE_E_NOT_FOUND,
                    "download it first: gpuserve pull --revision %s %s", revision, name);
}

/* Find NAME@REVISION: a branch, tag or commit. */
static gpuserve_status find_revision(const struct gsv_hub *hub, const char *given, const char *at,
                                     char **path, gpuserve_error *error)
{
    char name[NAME_MAX_BYTES + 1];
    const size_t length = (size_t)(at - given);
    gpuserve_status st = GPUSERVE_OK;

    if (length <= NAME_MAX_BYTES) {
        memcpy(name, given, length);
        name[length] = '\0';
    }
    if (length > NAME_MAX_BYTES || !is_name(name) || !is_name(at + 1))
        return fail_no_name(given, error);
    if (hub->cache)
        st = find_snapshot(hub->cache, name, at + 1, path, error);
    return st == GPUSERVE_OK && !*path ? fail_no_revision(name, at + 1, error) : st;
}

static bool is_gguf(const char *path)
{
    const char *const suffix = strrchr(path, '.');

    return suffix && strcasecmp(suffix, ".gguf") == 0 && is_file(path);
}

gpuserve_status gsv_hub_find(const struct gsv_hub *hub, const char *name, char **path,
                             gpuserve_error *error)
{
    gpuserve_status st = GPUSERVE_OK;
    const char *at;

    *path = NULL;
    if (!name || !*name)
        return gsv_fail(error, GPUSERVE_E_INVALID, "the model's name is %s",
                        name ? "empty" : "NULL");
    if (gsv_is_random(name) || is_directory(name) || is_gguf(name)) {
        *path = gsv_copy_text(name, strlen(name));
        return *path ? GPUSERVE_OK : gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a path");
    }
    if (is_file(name))
        return gsv_fail_no_directory(name, error);
    at = strchr(name, '@');
    if (at)
        return find_revision(hub, name, at, path, error);
    if (!is_name(name))
        return fail_no_name(name, error);
    if (hub->cache)
        st = find_snapshot(hub->cache, name, "main", path, error);
    if (st == GPUSERVE_OK && !*path && hub->models)
        st = find_own(hub->models, name, path, error);
    if (st != GPUSERVE_OK || *path)
        return st;
    gsv_fail(error, GPUSERVE_E_NOT_FOUND, "%s: neither a directory nor a model in %s or %s", name,
             hub->cache ? hub->cache : "(no cache: HOME is not set)",
             hub->models ? hub->models : "(no cache: HOME is not set)");
    return gsv_hint(error, GPUSERVE_E_NOT_FOUND,
                    "give the model's directory, or download it first: gpuserve pull %s", name);
}

/* ------------------------------------------------------------------------------------- adapters */

static gpuserve_status open_base(const struct gsv_hub *hub, struct gsv_dir *dir, const char *name,
                                 gpuserve_error *error)
{
    static const char *const weights[] = { "model.safetensors", "model.safetensors.index.json",
                                           "pytorch_model.bin", "pytorch_model.bin.index.json" };
    struct gsv_dir *base = NULL;
    char *path = NULL, *next = NULL;
    gpuserve_status st;

    for (size_t i = 0; i < sizeof(weights) / sizeof(weights[0]); i++)
        if (gsv_dir_has_own(dir, weights[i]))
            return gsv_fail(error, GPUSERVE_E_UNSUPPORTED,
                            "%s: the directory has both a model, %s, and a LoRA adapter, "
                            "%s: remove one of them",
                            gsv_dir_path(dir), weights[i], GSV_LORA_CONFIG);
    st = gsv_hub_find(hub, name, &path, error);
    if (st == GPUSERVE_OK)
        st = gsv_model_dir_open(&base, path, error);
    if (st == GPUSERVE_OK)
        st = gsv_lora_base(&next, base, error);
    if (st == GPUSERVE_OK && next)
        st = gsv_fail(error, GPUSERVE_E_UNSUPPORTED, "%s: the base model is a LoRA adapter itself",
                      path);
    free(path);
    free(next);
    if (st == GPUSERVE_OK)
        return gsv_dir_set_base(dir, base, error);
    gsv_dir_close(&base);
    return gsv_fail_in(error, st, "%s: base model", gsv_dir_path(dir));
}

gpuserve_status gsv_hub_open(const struct gsv_hub *hub, struct gsv_dir **dir, const char *path,
                             gpuserve_error *error)
{
    char *base = NULL;
    gpuserve_status st = gsv_model_dir_open(dir, path, error);

    if (st == GPUSERVE_OK)
        st = gsv_lora_base(&base, *dir, error);
    if (st == GPUSERVE_OK && base)
        st = open_base(hub, *dir, base, error);
    free(base);
    if (st != GPUSERVE_OK)
        gsv_dir_close(dir);
    return st;
}

static gpuserve_status fail_line(const char *line, size_t length, const char *why,
                                 gpuserve_error *error)
{
    const gpuserve_status st = gsv_fail(error, GPUSERVE_E_INVALID, "adapters: \"%.*s\" %s",
                                        length < 200 ? (int)length : 200, line, why);

    return gsv_hint(error, st, "give NAME=DIRECTORY, the directory of a LoRA adapter");
}

/* Open the adapter of a line NAME=DIRECTORY. */
static gpuserve_status open_adapter(const struct gsv_hub *hub, struct gsv_adapter_dirs *adapters,
                                    const char *line, size_t length, gpuserve_error *error)
{
    const char *equals = memchr(line, '=', length);
    const size_t n_name = equals ? (size_t)(equals - line) : 0;
    char *name, *given, *path = NULL;
    gpuserve_status st;

    if (n_name == 0 || n_name + 1 == length || n_name > NAME_MAX_BYTES)
        return fail_line(line, length, "is not NAME=DIRECTORY", error);
    if (gsv_utf8_valid_length(line, n_name) != n_name)
        return fail_line(line, 0, "is not UTF-8", error);
    for (size_t i = 0; i < adapters->n; i++)
        if (strlen(adapters->names[i]) == n_name && !memcmp(adapters->names[i], line, n_name))
            return fail_line(line, n_name, "is the name of two adapters", error);
    if (adapters->n == GSV_MAX_ADAPTERS)
        return gsv_fail(error, GPUSERVE_E_TOO_LARGE, "adapters: over %d", GSV_MAX_ADAPTERS);
    name = gsv_copy_text(line, n_name);
    given = gsv_copy_text(equals + 1, length - n_name - 1);
    adapters->names[adapters->n] = name;
    adapters->n++; /* with a name or a directory of NULL: closed all the same */
    st = name && given ? gsv_hub_find(hub, given, &path, error)
                       : gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for an adapter");
    free(given);
    if (st == GPUSERVE_OK)
        st = gsv_model_dir_open(&adapters->dirs[adapters->n - 1], path, error);
    free(path);
    if (st == GPUSERVE_OK && !gsv_dir_has_own(adapters->dirs[adapters->n - 1], GSV_LORA_CONFIG))
        st = gsv_fail(error, GPUSERVE_E_NOT_FOUND, "%s/" GSV_LORA_CONFIG ": no such file",
                      gsv_dir_path(adapters->dirs[adapters->n - 1]));
    return st == GPUSERVE_OK ? st : gsv_fail_in(error, st, "adapters");
}

gpuserve_status gsv_hub_open_adapters(const struct gsv_hub *hub, struct gsv_adapter_dirs *adapters,
                                      const char *lines, gpuserve_error *error)
{
    gpuserve_status st = GPUSERVE_OK;

    *adapters = (struct gsv_adapter_dirs){ 0 };
    for (const char *line = lines; line && *line && st == GPUSERVE_OK;) {
        const size_t length = strcspn(line, "\n");

        if (length > 0)
            st = open_adapter(hub, adapters, line, length, error);
        line += length + (line[length] == '\n');
    }
    if (st != GPUSERVE_OK)
        gsv_hub_close_adapters(adapters);
    return st;
}

void gsv_hub_close_adapters(struct gsv_adapter_dirs *adapters)
{
    for (size_t i = 0; i < adapters->n; i++) {
        free(adapters->names[i]);
        gsv_dir_close(&adapters->dirs[i]);
    }
    adapters->n = 0;
}
