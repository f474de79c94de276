/*
 * pull.c - `gpuserve pull`: downloads a model from a hub into the Hugging Face cache.
 *
 *   file list -> free space check -> for each file: blob, then link in the snapshot -> ref
 *
 * After a LoRA adapter the same for its base model.
 *
 * With HF_HUB_OFFLINE or GPUSERVE_OFFLINE only the cache is searched. Prints the path of the
 * snapshot, or of the GGUF file in it.
 */
#include "cli/pull/pull.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/statvfs.h>

#define DESCRIPTION_BYTES ((size_t)16 << 20)
#define DEFAULT_REVISION "main"

static bool is_set(const char *variable)
{
    static const char *const yes[] = { "1", "ON", "YES", "TRUE" };
    const char *value = getenv(variable);

    for (size_t i = 0; value && i < sizeof(yes) / sizeof(yes[0]); i++) {
        if (strcasecmp(value, yes[i]) == 0)
            return true;
    }
    return false;
}

/* The variable that forbids the network, or NULL. */
static const char *offline_variable(void)
{
    if (is_set("HF_HUB_OFFLINE"))
        return "HF_HUB_OFFLINE";
    return is_set("GPUSERVE_OFFLINE") ? "GPUSERVE_OFFLINE" : NULL;
}

static int find_offline(const struct pull_cache *cache, const struct pull_request *request,
                        const char *revision, const char *variable)
{
    char *snapshot = cli_cache_snapshot(cache, revision, request->file);

    if (!snapshot) {
        cli_fail("%s%s%s: revision %s is not in the cache, and %s is set", request->name,
                 request->file ? "/" : "", request->file ? request->file : "", revision, variable);
        cli_hint("unset %s to download it", variable);
        return CLI_FAILED;
    }
    puts(snapshot);
    free(snapshot);
    return CLI_OK;
}

static int list_files(struct pull_list *list, struct pull_http *http,
                      const struct pull_request *request, const char *revision)
{
    char *escaped = cli_http_escape(revision, false);
    char *url = cli_format("%s/api/models/%s/revision/%s?blobs=true", http->endpoint, request->name,
                           escaped);
    size_t size;
    char *json = cli_http_get(http, url, DESCRIPTION_BYTES, &size, request->name);
    int result = CLI_FAILED;

    if (json)
        result = cli_pull_list(list, json, size, request);
    free(json);
    free(url);
    free(escaped);
    return result;
}

static int check_free_space(const struct pull_cache *cache, const struct pull_list *list)
{
    struct statvfs fs;

    if (statvfs(cache->folder, &fs) == 0 && list->total_bytes / fs.f_frsize > (uint64_t)fs.f_bavail)
        return cli_fail("%s: the download needs %llu bytes, %llu are free", cache->folder,
                        (unsigned long long)list->total_bytes,
                        (unsigned long long)fs.f_bavail * fs.f_frsize);
    return CLI_OK;
}

static int fetch_all(struct pull_job *job, const struct pull_list *list)
{
    int result = CLI_OK;

    job->total = (double)list->total_bytes;
    cli_progress_begin(&job->progress, "bytes", job->quiet);
    for (size_t i = 0; i < list->n && result == CLI_OK; i++) {
        result = cli_pull_file(job, &list->files[i]);
        if (result == CLI_OK)
            result = cli_cache_link(job->cache, list->commit, &list->files[i]);
    }
    cli_progress_end(&job->progress);
    return result;
}

/* *snapshot, owned, is the folder of the files, and *file the GGUF file in it or NULL; both only on
 * CLI_OK. */
static int pull_one(struct pull_http *http, const struct pull_cache *cache,
                    const struct pull_request *request, const char *revision, bool quiet,
                    char **snapshot, char **file)
{
    struct pull_job job = { .http = http, .cache = cache, .name = request->name, .quiet = quiet };
    struct pull_list list;
    char *folder = cli_format("%s/blobs/", cache->folder);
    int result = list_files(&list, http, request, revision);

    if (result == CLI_OK) {
        job.commit = list.commit;
        result = cli_make_folders(folder);
        if (result == CLI_OK)
            result = check_free_space(cache, &list);
        if (result == CLI_OK)
            result = fetch_all(&job, &list);
        /* The ref is written last, so it always names a complete snapshot. */
        if (result == CLI_OK && !cli_pull_is_commit(revision))
            result = cli_cache_set_ref(cache, revision, list.commit);
        if (result == CLI_OK) {
            const char *name = list.is_gguf ? list.files[0].name : NULL;

            *snapshot = cli_format("%s/snapshots/%s", cache->folder, list.commit);
            *file = name ? cli_copy(name, strlen(name)) : NULL;
        }
        cli_pull_list_free(&list);
    }
    free(folder);
    return result;
}

/* The base of a LoRA adapter. A base that is a path of the author's machine is left to the user. */
static int pull_base(struct pull_http *http, const char *snapshot, const char *cache_dir,
                     bool quiet)
{
    const struct cli_list none = { 0 };
    struct pull_request request = { .include = &none };
    struct pull_cache cache = { 0 };
    char *name = NULL, *revision = NULL, *base = NULL, *file = NULL;
    int result = CLI_OK;

    cli_pull_read_base(snapshot, &name, &revision);
    if (name && cli_pull_name_ok(name) && (!revision || cli_pull_revision_ok(revision))) {
        request.name = name;
        result = cli_cache_init(&cache, name, cache_dir);
        if (result == CLI_OK)
            result = pull_one(http, &cache, &request, revision ? revision : DEFAULT_REVISION, quiet,
                              &base, &file);
        cli_cache_reset(&cache);
    }
    free(name);
    free(revision);
    free(base);
    free(file);
    return result;
}

static int pull(struct pull_http *http, const struct pull_cache *cache,
                const struct pull_request *request, const char *revision,
                const struct cli_args *args)
{
    char *snapshot = NULL, *file = NULL;
    int result = pull_one(http, cache, request, revision, args->quiet, &snapshot, &file);

    if (result == CLI_OK)
        result = pull_base(http, snapshot, args->cache_dir, args->quiet);
    if (result == CLI_OK)
        printf("%s%s%s\n", snapshot, file ? "/" : "", file ? file : "");
    free(snapshot);
    free(file);
    return result;
}

int cli_pull(const struct cli_args *args)
{
    const char *revision = args->revision ? args->revision : DEFAULT_REVISION;
    const char *offline = offline_variable();
    struct pull_request request = { .include = &args->include };
    struct pull_cache cache;
    struct pull_http http;
    int result;

    if (args->n_rest < 1 || args->n_rest > 2) {
        cli_usage("pull needs one model, or one model and one of its GGUF files");
        cli_hint("example: gpuserve pull sentence-transformers/all-MiniLM-L6-v2");
        return CLI_USAGE;
    }
    if (!cli_pull_name_ok(args->rest[0]))
        return cli_usage("\"%s\" is not a valid model name of the hub", args->rest[0]);
    request.name = args->rest[0];
    request.file = args->n_rest == 2 ? args->rest[1] : NULL;
    if (request.file && (!cli_pull_path_ok(request.file) || !cli_pull_is_gguf(request.file)))
        return cli_usage("\"%s\" is not the name of a .gguf file", request.file);
    if (!cli_pull_revision_ok(revision))
        return cli_usage("--revision: \"%s\" is not a branch, tag or commit", revision);
    if (cli_cache_init(&cache, args->rest[0], args->cache_dir) != CLI_OK)
        return CLI_FAILED;
    if (offline) {
        result = find_offline(&cache, &request, revision, offline);
    } else {
        signal(SIGPIPE, SIG_IGN); /* a connection closed by the hub is reported as an error */
        result = cli_http_init(&http);
        if (result == CLI_OK)
            result = pull(&http, &cache, &request, revision, args);
        cli_http_reset(&http);
    }
    cli_cache_reset(&cache);
    return result;
}
