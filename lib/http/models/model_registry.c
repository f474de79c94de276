/*
 * model_registry.c - opens, names, tests, replaces and unloads the served models.
 *
 * Loads run one at a time under `loading`, without `lock`. The write lock is held only to swap an
 * entry's model; the old one is released after it. A replacement must pass one test text first.
 */
#include "lib/http/models/model_registry.h"

#include "lib/base/alloc.h"
#include "lib/base/clock.h"
#include "lib/base/error.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_NAME_BYTES = 256, TRIED_TOKENS = 64 };

/* --------------------------------------------------------------------------------------- models */

static json_t *read_facts(gpuserve_model *model, gpuserve_error *error)
{
    size_t capacity = 0, size = 0;
    char *text = NULL;
    json_t *facts = NULL;
    gpuserve_status st;

    while ((st = gpuserve_model_info(model, text, capacity, &size, error)) ==
               GPUSERVE_E_TOO_LARGE ||
           (st == GPUSERVE_OK && !text)) {
        free(text);
        capacity = size;
        text = malloc(capacity);
        if (!text)
            break;
    }
    if (text && st == GPUSERVE_OK)
        facts = json_loads(text, 0, NULL);
    free(text);
    if (!facts && st == GPUSERVE_OK)
        gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a model's info");
    return facts;
}

static const char *text_of(const json_t *facts, const char *key)
{
    const char *text = json_string_value(json_object_get(facts, key));

    return text ? text : "";
}

/* 0 if it is unknown: the path of a model is a directory or a file. */
static time_t modified_time(const char *path)
{
    struct stat status;

    return stat(path, &status) == 0 ? status.st_mtime : 0;
}

static struct gsv_served *describe(gpuserve_model *model, bool owned, const char *name,
                                   gpuserve_error *error)
{
    struct gsv_served *served = calloc(1, sizeof(*served));

    if (!served) {
        gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for model \"%s\"", name);
        return NULL;
    }
    served->properties = (gpuserve_model_properties)GPUSERVE_MODEL_PROPERTIES_INIT;
    if (gpuserve_model_get_properties(model, &served->properties, error) == GPUSERVE_OK)
        served->facts = read_facts(model, error);
    if (!served->facts) {
        free(served);
        return NULL;
    }
    atomic_init(&served->n_users, 1);
    atomic_init(&served->ranges, NULL);
    atomic_init(&served->keep_ms, -1);
    served->model = model;
    served->owned = owned;
    served->name = name;
    served->device = text_of(served->facts, "device");
    served->dtype = text_of(served->facts, "dtype");
    served->products_dtype = text_of(served->facts, "products_dtype");
    served->space = gpuserve_model_fingerprint(model);
    served->dim = served->properties.dim;
    served->max_tokens = served->properties.max_tokens;
    if (gsv_served_has(served, GPUSERVE_TASK_TOKEN_LABELS))
        served->n_token_labels = served->properties.n_labels;
    else
        served->n_labels = served->properties.n_labels;
    served->can_embed = gsv_served_has(served, GPUSERVE_TASK_EMBED);
    served->finds_entities = served->properties.finds_entities == 1;
    /* Cross-encoders have one label: the relevance of the second text to the first. */
    served->is_reranker = served->n_labels == 1;
    served->modified = modified_time(text_of(served->facts, "path"));
    return served;
}

const char *gsv_served_label(const struct gsv_served *served, size_t index)
{
    const char *label = gpuserve_model_label(served->model, index);

    return label ? label : "";
}

static void free_ranges(struct gsv_ranges *ranges)
{
    while (ranges) {
        struct gsv_ranges *next = ranges->next;

        free(ranges);
        ranges = next;
    }
}

void gsv_served_release(struct gsv_served *served)
{
    if (!served || atomic_fetch_sub(&served->n_users, 1) != 1)
        return;
    if (served->owned)
        gpuserve_model_close(&served->model);
    json_decref(served->facts);
    gsv_batches_free(&served->tried_batches);
    free_ranges(atomic_load(&served->ranges));
    free(served);
}

const json_t *gsv_served_prompts(const struct gsv_served *served)
{
    return json_object_get(served->facts, "prompts");
}

/* ------------------------------------------------------------------------------------- entries */

static bool is_name(const char *name)
{
    const size_t size = strlen(name);
    bool at_start = true; /* of a path segment, where a name must not end, even an empty one */

    if (size > MAX_NAME_BYTES)
        return false;
    for (size_t i = 0; i < size; i++) {
        const char c = name[i];
        const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                               (c >= '0' && c <= '9') || c == '_' || c == '-';

        if (c == '/' ? at_start : !is_letter && (c != '.' || at_start))
            return false;
        at_start = c == '/';
    }
    return !at_start;
}

/* The model id from a path in the hub's cache, ".../models--org--name/snapshots/0123"; NULL: no
 * such path. */
static char *name_of_snapshot(const char *path)
{
    const char *hub = strstr(path, "models--"), *dashes, *end;
    char *name;

    if (!hub || !(dashes = strstr(hub + 8, "--")) || !(end = strchr(hub, '/')) || dashes > end)
        return NULL;
    name = gsv_copy_text(hub + 8, (size_t)(end - hub) - 8);
    if (name) {
        name[dashes - hub - 8] = '/';
        memmove(name + (dashes - hub - 7), name + (dashes - hub - 6),
                strlen(name + (dashes - hub - 6)) + 1);
    }
    return name;
}

/* "random:bert-tiny,seed=1" gives random-bert-tiny-seed-1; NULL for any other path. */
static char *name_of_random(const char *path)
{
    char *name = strncmp(path, "random:", 7) == 0 ? gsv_copy_text(path, strlen(path)) : NULL;

    for (char *c = name; c && *c; c++)
        if (*c == ':' || *c == ',' || *c == '=')
            *c = '-';
    return name;
}

/* Default name of a model. "models--org--name/snapshots/0123" and "org/name@revision" give
 * org/name. A directory gives its last segment. Any other text is a model id of the hub. */
static char *name_of_path(const char *path)
{
    size_t size = strcspn(path, "@");
    const char *begin;
    char *name = name_of_snapshot(path);

    if (!name)
        name = name_of_random(path);
    if (name)
        return name;
    name = gsv_copy_text(path, size);
    if (!name || (is_name(name) && memchr(name, '/', size) == memrchr(name, '/', size)))
        return name;
    free(name);
    size = strlen(path);
    while (size > 1 && path[size - 1] == '/')
        size--;
    begin = memrchr(path, '/', size);
    begin = begin ? begin + 1 : path;
    return gsv_copy_text(begin, size - (size_t)(begin - path));
}

static char *copy_or_null(const char *text, bool *failed)
{
    char *copy = text ? gsv_copy_text(text, strlen(text)) : NULL;

    if (text && !copy)
        *failed = true;
    return copy;
}

/* Copies the strings; entry->options itself is copied already. */
static bool copy_entry(struct gsv_entry *entry, const gpuserve_http_model *given)
{
    bool failed = false;

    entry->device = copy_or_null(entry->options.device, &failed);
    entry->head = copy_or_null(entry->options.head, &failed);
    entry->options.device = entry->device;
    entry->options.head = entry->head;
    entry->heads = copy_or_null(entry->options.heads, &failed);
    entry->options.heads = entry->heads;
    entry->adapters = copy_or_null(entry->options.adapters, &failed);
    entry->options.adapters = entry->adapters;
    entry->default_prompt = copy_or_null(entry->options.default_prompt, &failed);
    entry->default_prompt_name = copy_or_null(entry->options.default_prompt_name, &failed);
    entry->options.default_prompt = entry->default_prompt;
    entry->options.default_prompt_name = entry->default_prompt_name;
    entry->path = copy_or_null(given->path, &failed);
    entry->borrowed = given->model;
    if (given->name)
        entry->name = copy_or_null(given->name, &failed);
    else
        entry->name = given->path ? name_of_path(given->path) : gsv_copy_text("default", 7);
    entry->aliases = gsv_alloc_array(given->n_aliases, sizeof(*entry->aliases));
    if (!entry->aliases || !entry->name)
        return false;
    entry->n_aliases = given->n_aliases;
    for (size_t i = 0; i < given->n_aliases; i++)
        entry->aliases[i] = copy_or_null(given->aliases[i], &failed);
    return !failed;
}

static gpuserve_status check_name(const struct gsv_models *models, const char *name,
                                  const struct gsv_entry *own, gpuserve_error *error)
{
    gpuserve_status st = GPUSERVE_OK;

    if (!name || !is_name(name)) {
        st = gsv_fail(error, GPUSERVE_E_INVALID, "the model name \"%s\" is not valid",
                      name ? name : "");
        return gsv_hint(error, st,
                        "a model name has letters, digits, '.', '_', '-' and '/' between parts; no "
                        "part begins with a dot");
    }
    for (size_t i = 0; i < models->n; i++) {
        const struct gsv_entry *entry = &models->entries[i];

        if (entry != own && entry->name && strcmp(entry->name, name) == 0)
            return gsv_fail(error, GPUSERVE_E_INVALID, "two models have the name \"%s\"", name);
        for (size_t j = 0; entry != own && j < entry->n_aliases; j++) {
            if (entry->aliases[j] && strcmp(entry->aliases[j], name) == 0)
                return gsv_fail(error, GPUSERVE_E_INVALID, "two models have the name \"%s\"", name);
        }
    }
    return st;
}

/* Copies the known fields; a program of another version may have more. */
static gpuserve_status copy_options(gpuserve_model_options *to, const gpuserve_model_options *given,
                                    gpuserve_error *error)
{
    const gpuserve_status st =
        gsv_read_struct(to, sizeof(*to), given, "gpuserve_model_options", error);

    to->struct_size = sizeof(*to);
    return st;
}

/* Copies and checks the ranges of int8 vectors, if any. */
static gpuserve_status copy_ranges(struct gsv_entry *entry, const gpuserve_http_model *given,
                                   gpuserve_error *error)
{
    const size_t dim = given->ranges_dim;
    const float zero = 0.0f;
    uint8_t byte;

    if (!given->ranges != (dim == 0))
        return gsv_fail(error, GPUSERVE_E_INVALID, "`ranges` is %s, ranges_dim is %zu",
                        given->ranges ? "set" : "NULL", dim);
    if (!given->ranges)
        return GPUSERVE_OK;
    entry->ranges = gsv_alloc_array(2, dim * sizeof(float));
    if (!entry->ranges)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for ranges of %zu dimensions", dim);
    memcpy(entry->ranges, given->ranges, 2 * dim * sizeof(float));
    entry->ranges_dim = dim;
    /* No vector: only the ranges are checked. */
    return gpuserve_quantize(&zero, 0, dim, GPUSERVE_PRECISION_UINT8, entry->ranges, &byte, 0,
                             error);
}

/* Ranges of fewer dimensions are those of shortened vectors. */
static gpuserve_status set_given_ranges(struct gsv_served *served, const struct gsv_entry *entry,
                                        gpuserve_error *error)
{
    served->given_ranges = entry->ranges;
    served->ranges_dim = entry->ranges_dim;
    if (entry->ranges_dim <= served->dim)
        return GPUSERVE_OK;
    return gsv_fail(error, GPUSERVE_E_INVALID,
                    "the ranges of model \"%s\" are for %zu dimensions, it has %zu", entry->name,
                    entry->ranges_dim, served->dim);
}

static gpuserve_status open_entry(struct gsv_models *models, struct gsv_entry *entry,
                                  const gpuserve_http_model *given, gpuserve_error *error)
{
    gpuserve_status st;

    if (!given->path == !given->model)
        return gsv_fail(error, GPUSERVE_E_INVALID,
                        "a model needs either a path or an open model, not %s",
                        given->path ? "both" : "neither");
    if (given->n_aliases > 0 && !given->aliases)
        return gsv_fail(error, GPUSERVE_E_INVALID, "`aliases` is NULL, n_aliases is %zu",
                        given->n_aliases);
    st = copy_options(&entry->options, given->options, error);
    if (st != GPUSERVE_OK)
        return st;
    if (!copy_entry(entry, given))
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a model's names");
    st = copy_ranges(entry, given, error);
    if (st == GPUSERVE_OK)
        st = check_name(models, entry->name, entry, error);
    for (size_t i = 0; i < entry->n_aliases && st == GPUSERVE_OK; i++)
        st = check_name(models, entry->aliases[i], entry, error);
    return st == GPUSERVE_OK ? gsv_models_load(models, entry, false, error) : st;
}

gpuserve_status gsv_models_open(struct gsv_models *models, gpuserve_context *context,
                                const gpuserve_http_model *given, size_t n, gpuserve_error *error)
{
    gpuserve_status st = GPUSERVE_OK;

    *models = (struct gsv_models){ 0 };
    if (n == 0 || !given)
        return gsv_fail(error, GPUSERVE_E_INVALID, "the list of models to serve is empty");
    models->entries = gsv_alloc_array(n, sizeof(*models->entries));
    if (!models->entries)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for %zu models", n);
    models->context = gpuserve_context_ref(context);
    pthread_rwlock_init(&models->lock, NULL);
    pthread_mutex_init(&models->loading, NULL);
    for (size_t i = 0; i < n && st == GPUSERVE_OK; i++) {
        models->n = i + 1;
        st = given[i].struct_size == sizeof(*given)
                 ? open_entry(models, &models->entries[i], &given[i], error)
                 : gsv_fail(error, GPUSERVE_E_INVALID,
                            "gpuserve_http_model: struct_size is %u, not %zu", given[i].struct_size,
                            sizeof(*given));
    }
    if (st != GPUSERVE_OK)
        gsv_models_close(models);
    return st;
}

void gsv_models_close(struct gsv_models *models)
{
    if (!models->entries)
        return;
    for (size_t i = 0; i < models->n; i++) {
        struct gsv_entry *entry = &models->entries[i];

        gsv_served_release(entry->served);
        for (size_t j = 0; j < entry->n_aliases; j++)
            free(entry->aliases[j]);
        free(entry->aliases);
        free(entry->name);
        free(entry->path);
        free(entry->device);
        free(entry->head);
        free(entry->heads);
        free(entry->adapters);
        free(entry->default_prompt);
        free(entry->default_prompt_name);
        free(entry->ranges);
        free(entry->reason);
    }
    free(models->entries);
    pthread_rwlock_destroy(&models->lock);
    pthread_mutex_destroy(&models->loading);
    gpuserve_context_unref(&models->context);
    *models = (struct gsv_models){ 0 };
}

struct gsv_entry *gsv_models_entry(struct gsv_models *models, const char *name)
{
    for (size_t i = 0; i < models->n; i++) {
        struct gsv_entry *entry = &models->entries[i];

        if (strcmp(entry->name, name) == 0)
            return entry;
        for (size_t j = 0; j < entry->n_aliases; j++) {
            if (strcmp(entry->aliases[j], name) == 0)
                return entry;
        }
    }
    return NULL;
}

struct gsv_served *gsv_models_hold(struct gsv_models *models, struct gsv_entry *entry)
{
    struct gsv_served *served;

    pthread_rwlock_rdlock(&models->lock);
    served = entry->served;
    if (served)
        atomic_fetch_add(&served->n_users, 1);
    pthread_rwlock_unlock(&models->lock);
    return served;
}

/* ----------------------------------------------------------------------------- load and unload */

/* Swaps in `served`. With `instead` and no current model, `served` is discarded. */
static void put(struct gsv_models *models, struct gsv_entry *entry, struct gsv_served *served,
                const char *reason, bool instead)
{
    struct gsv_served *before;

    pthread_rwlock_wrlock(&models->lock);
    before = entry->served;
    if (instead && !before) {
        before = served;
    } else {
        entry->served = served;
        free(entry->reason);
        entry->reason = reason ? gsv_copy_text(reason, strlen(reason)) : NULL;
    }
    pthread_rwlock_unlock(&models->lock);
    gsv_served_release(before);
}

/* One output row for each token, at most TRIED_TOKENS. */
static gpuserve_status try_tokens(const struct gsv_served *served, const char *text,
                                  gpuserve_error *error)
{
    const size_t n = TRIED_TOKENS * served->n_token_labels;
    gpuserve_job job = GPUSERVE_JOB_INIT;
    gpuserve_status st;

    job.task = GPUSERVE_TASK_TOKEN_LABELS;
    job.n_items = 1;
    job.texts = &text;
    job.output = gsv_alloc_array(n, sizeof(*job.output));
    job.output_capacity = n;
    if (!job.output)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for %zu numbers", n);
    st = gpuserve_run(served->model, &job, error);
    free(job.output);
    return st;
}

gpuserve_status gsv_served_try(const struct gsv_served *served, gpuserve_error *error)
{
    char varied[40];
    const char *const text = varied, *const pair = "steady";
    gpuserve_job options = GPUSERVE_JOB_INIT;
    const size_t n = served->can_embed ? served->dim : served->n_labels;
    gpuserve_status st;
    float *row;

    snprintf(varied, sizeof(varied), "ready %llu", (unsigned long long)gsv_now_ns());
    if (served->n_token_labels > 0)
        return try_tokens(served, text, error);
    if (n == 0) /* sparse vectors only: opening it is the test */
        return GPUSERVE_OK;
    row = gsv_alloc_array(n, sizeof(*row));
    if (!row)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for %zu numbers", n);
    options.pairs = served->is_reranker ? &pair : NULL;
    st = served->can_embed ? gpuserve_embed(served->model, &text, 1, row, n, NULL, error)
                           : gpuserve_classify(served->model, &text, 1, row, n, &options, error);
    free(row);
    return st;
}

/* Appends the result to the report. A full queue is load, not a failure. */
static bool try_one(const struct gsv_served *served, struct gsv_buffer *to)
{
    const uint64_t begun_ns = gsv_now_ns();
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    const gpuserve_status st = gsv_served_try(served, &error);

    gsv_buffer_text(to, "{\"name\":");
    gsv_put_text(to, served->name);
    gsv_buffer_format(to, ",\"status\":\"%s\",\"us\":%llu,\"error\":", gpuserve_status_name(st),
                      (unsigned long long)(gsv_now_ns() - begun_ns) / 1000);
    gsv_put_text(to, st == GPUSERVE_OK ? NULL : error.message);
    gsv_buffer_text(to, "}");
    return st == GPUSERVE_OK || st == GPUSERVE_E_BUSY;
}

bool gsv_models_try(struct gsv_models *models, struct gsv_buffer *to)
{
    const char *comma = "";
    bool is_good = true;

    gsv_buffer_text(to, "{\"models\":[");
    for (size_t i = 0; i < models->n; i++) {
        struct gsv_served *served = gsv_models_hold(models, &models->entries[i]);

        if (!served)
            continue;
        gsv_buffer_text(to, comma);
        comma = ",";
        is_good = try_one(served, to) && is_good;
        gsv_served_release(served);
    }
    gsv_buffer_text(to, "]");
    return is_good;
}

gpuserve_status gsv_models_load(struct gsv_models *models, struct gsv_entry *entry, bool instead,
                                gpuserve_error *error)
{
    gpuserve_model *model = entry->borrowed;
    gpuserve_status st = GPUSERVE_OK;
    struct gsv_served *served, *before;

    pthread_mutex_lock(&models->loading);
    if (entry->path)
        st = gpuserve_model_open(&model, models->context, entry->path, &entry->options, error);
    served = st == GPUSERVE_OK ? describe(model, entry->path != NULL, entry->name, error) : NULL;
    if (served)
        st = set_given_ranges(served, entry, error);
    before = gsv_models_hold(models, entry);
    /* A model that cannot answer must not replace one that can. A first model is tested by its
     * first request. */
    if (served && before && st == GPUSERVE_OK)
        st = gsv_served_try(served, error);
    gsv_served_release(before);
    if (served && st == GPUSERVE_OK)
        st = gsv_served_begin_stats(served, error);
    if (served && st == GPUSERVE_OK)
        put(models, entry, served, NULL, instead);
    else if (served)
        gsv_served_release(served);
    else if (st == GPUSERVE_OK && entry->path)
        gpuserve_model_close(&model);
    pthread_mutex_unlock(&models->loading);
    if (st == GPUSERVE_OK && !served)
        st = error ? (gpuserve_status)error->status : GPUSERVE_E_NOMEM;
    return st;
}

gpuserve_status gsv_models_unload(struct gsv_models *models, struct gsv_entry *entry,
                                  gpuserve_error *error)
{
    if (!entry->path)
        return gsv_fail(
            error, GPUSERVE_E_UNSUPPORTED,
            "model \"%s\" belongs to the host program: clients cannot load or unload it",
            entry->name);
    put(models, entry, NULL, "unloaded", false);
    return GPUSERVE_OK;
}
