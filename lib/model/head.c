/*
 * head.c - opens custom classification heads: one to four linear layers in a safetensors file each.
 *
 * Head configuration (activation, input kind, labels): the safetensors __metadata__, else a sidecar
 * JSON file ("head.json" for "head.safetensors"). The metadata takes precedence. A name without a
 * slash that is no file is searched among the installed heads.
 */
#define _GNU_SOURCE
#include "lib/model/modules/modules.h"

#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/base/json_tree.h"
#include "lib/base/utf8.h"
#include "lib/model/families/config.h"
#include "lib/model/formats/checkpoint.h"
#include "lib/model/formats/formats.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEFAULT_NAME "head.safetensors"
#define SUFFIX ".safetensors"

/* -------------------------------------------------------------------------------------- tensors */

static bool find_layer(struct gsv_head *head, const char *prefix)
{
    struct gsv_head_layer *layer = &head->layers[head->n_layers];
    char name[64];

    snprintf(name, sizeof(name), "%sweight", prefix);
    if (!gsv_weight_file_find(head->file, name, &layer->weight))
        return false;
    snprintf(name, sizeof(name), "%sbias", prefix);
    if (!gsv_weight_file_find(head->file, name, &layer->bias))
        memset(&layer->bias, 0, sizeof(layer->bias));
    head->n_layers++;
    return true;
}

/* Find the layers: "weight" and "bias", or "layers.0.weight" and so on. */
static gpuserve_status find_layers(struct gsv_head *head, gpuserve_error *error)
{
    const char *name = gsv_weight_file_name(head->file);

    if (find_layer(head, ""))
        return GPUSERVE_OK;
    for (int i = 0; i < GSV_MAX_HEAD_LAYERS; i++) {
        char prefix[32];

        snprintf(prefix, sizeof(prefix), "layers.%d.", i);
        if (!find_layer(head, prefix))
            break;
    }
    if (head->n_layers == 0)
        return gsv_fail(
            error, GPUSERVE_E_FORMAT,
            "%s: not a classifier head: tensors 'weight' and 'layers.0.weight' are missing", name);
    return GPUSERVE_OK;
}

/* ---------------------------------------------------------------------------------- description */

/* Read the string of `key` from the metadata, else from the JSON file; *value is unchanged if
 * neither has it. */
static gpuserve_status read_word(const struct gsv_head *head, const struct gsv_json_value *json,
                                 const char *key, const char **value, gpuserve_error *error)
{
    const char *found = gsv_safetensors_metadata(head->file, key);

    if (found) {
        *value = found;
        return GPUSERVE_OK;
    }
    return json ? gsv_json_string(json, key, gsv_weight_file_name(head->file), value, error)
                : GPUSERVE_OK;
}

/* The index of a word in `names`, a list that ends with NULL. */
static gpuserve_status choose(const char *word, const char *const names[], const char *key,
                              const char *shown, int *number, gpuserve_error *error)
{
    for (*number = 0; names[*number]; ++*number)
        if (strcmp(names[*number], word) == 0)
            return GPUSERVE_OK;
    return gsv_fail(error, GPUSERVE_E_FORMAT, "%s: %s '%.64s' is unknown", shown, key, word);
}

static gpuserve_status read_words(struct gsv_head *head, const struct gsv_json_value *json,
                                  gpuserve_error *error)
{
    static const char *const activations[] = { "softmax", "sigmoid", "none", NULL };
    static const int32_t scores[] = { GPUSERVE_SCORE_SOFTMAX, GPUSERVE_SCORE_SIGMOID,
                                      GPUSERVE_SCORE_RAW };
    static const char *const inputs[] = { "model", "normalized", "raw", NULL };
    const char *shown = gsv_weight_file_name(head->file);
    const char *activation = "softmax", *input = "model";
    int score = 0, kind = 0;
    gpuserve_status st = read_word(head, json, "activation", &activation, error);

    if (st == GPUSERVE_OK)
        st = read_word(head, json, "input", &input, error);
    if (st == GPUSERVE_OK)
        st = choose(activation, activations, "activation", shown, &score, error);
    if (st == GPUSERVE_OK)
        st = choose(input, inputs, "input", shown, &kind, error);
    if (st != GPUSERVE_OK)
        return st;
    head->score = scores[score];
    head->input = (enum gsv_head_input)kind; /* in the order of `inputs` */
    return GPUSERVE_OK;
}

static gpuserve_status labels_from_array(struct gsv_head *head, const struct gsv_json_value *array,
                                         gpuserve_error *error)
{
    const size_t n = gsv_json_count(array);
    const struct gsv_json_value *const *texts =
        n > 0 ? (const struct gsv_json_value *const *)array->is.fields : NULL;

    return gsv_labels_copy(&head->labels, &head->n_labels, texts, n,
                           gsv_weight_file_name(head->file), error);
}

static gpuserve_status labels_from_metadata(struct gsv_head *head, const char *text,
                                            gpuserve_error *error)
{
    static const struct gsv_json_limits limits = { 200000, 4 };
    const char *shown = gsv_weight_file_name(head->file);
    struct gsv_json_value *array;
    gpuserve_status st = gsv_json_read(&array, text, strlen(text), shown, limits, error);

    if (st != GPUSERVE_OK)
        return st;
    st = labels_from_array(head, array, error);
    gsv_json_free(&array);
    return st;
}

static gpuserve_status read_labels(struct gsv_head *head, const struct gsv_json_value *json,
                                   gpuserve_error *error)
{
    const char *shown = gsv_weight_file_name(head->file);
    const char *text = gsv_safetensors_metadata(head->file, "labels");
    const uint64_t n_rows = head->layers[head->n_layers - 1].weight.shape[0];
    gpuserve_status st;

    if (text)
        st = labels_from_metadata(head, text, error);
    else if (gsv_json_member(json, "labels"))
        st = labels_from_array(head, gsv_json_member(json, "labels"), error);
    else
        st = gsv_fail(
            error, GPUSERVE_E_FORMAT,
            "%s: \"labels\" is missing in the file's metadata and in the JSON file next to it",
            shown);
    if (st == GPUSERVE_OK && head->n_labels != n_rows)
        st = gsv_fail(error, GPUSERVE_E_FORMAT, "%s: %zu labels for %llu rows of weights", shown,
                      head->n_labels, (unsigned long long)n_rows);
    return st;
}

/* Read NAME.json next to NAME.safetensors; *json is NULL if it does not exist. */
static gpuserve_status read_sibling(struct gsv_json_value **json, const struct gsv_dir *dir,
                                    const char *name, gpuserve_error *error)
{
    char sibling[GSV_FILE_NAME_BYTES];
    const size_t length = strlen(name), suffix = strlen(SUFFIX);

    *json = NULL;
    if (length <= suffix || strcmp(name + length - suffix, SUFFIX) != 0 ||
        length >= sizeof(sibling))
        return GPUSERVE_OK;
    snprintf(sibling, sizeof(sibling), "%.*s.json", (int)(length - suffix), name);
    return gsv_read_optional_json(json, dir, "", sibling, error);
}

/* -------------------------------------------------------------------------------------- opening */

static gpuserve_status open_in(struct gsv_head *head, const struct gsv_dir *dir, const char *name,
                               gpuserve_error *error)
{
    struct gsv_json_value *json = NULL;
    gpuserve_status st = gsv_safetensors_open(&head->file, dir, name, error);

    if (st == GPUSERVE_OK)
        st = find_layers(head, error);
    if (st == GPUSERVE_OK)
        st = read_sibling(&json, dir, name, error);
    if (st == GPUSERVE_OK)
        st = read_words(head, json, error);
    if (st == GPUSERVE_OK)
        st = read_labels(head, json, error);
    gsv_json_free(&json);
    return st;
}

static bool is_directory(const char *path)
{
    struct stat info;

    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* Open the resolved path. Symbolic links to the head file are followed, because the user names it;
 * the sidecar file must be inside the same folder. */
static gpuserve_status open_real(struct gsv_head *head, char *real, gpuserve_error *error)
{
    char *slash = strrchr(real, '/'); /* an absolute path has one */
    const bool is_folder = is_directory(real);
    struct gsv_dir *dir = NULL;
    gpuserve_status st;

    if (!is_folder)
        *slash = '\0';
    st = gsv_dir_open(&dir, *real ? real : "/", error);
    if (st == GPUSERVE_OK)
        st = open_in(head, dir, is_folder ? DEFAULT_NAME : slash + 1, error);
    gsv_dir_close(&dir);
    return st;
}

/* ------------------------------------------------------------------------------ installed heads */

/* The folder of the library, or of the program that this code is linked into. */
static bool own_folder(bool of_program, char *folder)
{
    char *slash;
    Dl_info info;

    if (of_program) {
        const ssize_t n = readlink("/proc/self/exe", folder, PATH_MAX - 1);

        folder[n > 0 ? n : 0] = '\0';
    } else if (!dladdr((const void *)(uintptr_t)&gsv_heads_open, &info) || !info.dli_fname ||
               !strchr(info.dli_fname, '/') || !realpath(info.dli_fname, folder)) {
        return false;
    }
    slash = strrchr(folder, '/');
    if (slash)
        *slash = '\0';
    return slash != NULL;
}

/* Relative to bin/, to lib/ with or without the architecture's folder, and to a build folder of the
 * source tree. */
#define N_HEAD_FOLDERS 6

static bool head_folder(size_t i, char *path)
{
    static const char *const below[] = { "../share/gpuserve/heads", "../../share/gpuserve/heads",
                                         "../../share/heads" };
    char own[PATH_MAX];

    return own_folder(i >= N_HEAD_FOLDERS / 2, own) &&
           snprintf(path, PATH_MAX, "%s/%s", own, below[i % (N_HEAD_FOLDERS / 2)]) < PATH_MAX;
}

/* The real path of an installed head; NULL if there is none of that name. Owned. */
static char *find_installed(const char *name)
{
    char folder[PATH_MAX], *path, *real = NULL;

    for (size_t i = 0; i < N_HEAD_FOLDERS && !real && !strchr(name, '/'); i++) {
        if (!head_folder(i, folder) || asprintf(&path, "%s/%s" SUFFIX, folder, name) < 0)
            continue;
        real = realpath(path, NULL);
        free(path);
    }
    return real;
}

static bool ends_with(const char *name, const char *ending)
{
    const size_t n = strlen(name), m = strlen(ending);

    return n > m && strcmp(name + n - m, ending) == 0;
}

/* Appends the names of the heads of a folder. */
static void list_folder(const char *folder, char *list, size_t capacity)
{
    DIR *dir = opendir(folder);
    const struct dirent *entry;

    while (dir && (entry = readdir(dir))) {
        const size_t used = strlen(list);

        if (ends_with(entry->d_name, SUFFIX))
            snprintf(list + used, capacity - used, "%s%.*s", used ? ", " : "",
                     (int)(strlen(entry->d_name) - strlen(SUFFIX)), entry->d_name);
    }
    if (dir)
        closedir(dir);
}

static gpuserve_status fail_no_head(const char *name, gpuserve_error *error)
{
    char folder[PATH_MAX], list[400] = "";
    gpuserve_status st;

    if (strchr(name, '/'))
        return gsv_fail(error, GPUSERVE_E_NOT_FOUND, "%s: %s", name, strerror(ENOENT));
    st = gsv_fail(error, GPUSERVE_E_NOT_FOUND, "%s: %s, and no installed head has this name", name,
                  strerror(ENOENT));
    for (size_t i = 0; i < N_HEAD_FOLDERS && !*list; i++)
        if (head_folder(i, folder))
            list_folder(folder, list, sizeof(list));
    return gsv_hint(error, st, "%s%s", *list ? "installed heads: " : "no heads are installed",
                    list);
}

static gpuserve_status open_head(struct gsv_head *head, const char *path, gpuserve_error *error)
{
    char *real = realpath(path, NULL);
    gpuserve_status st;

    if (!real && errno == ENOENT) {
        real = find_installed(path);
        if (!real)
            return fail_no_head(path, error);
    }
    if (!real)
        return gsv_fail(error, errno == ENOMEM ? GPUSERVE_E_NOMEM : GPUSERVE_E_NOT_FOUND, "%s: %s",
                        path, strerror(errno));
    st = open_real(head, real, error);
    free(real);
    return st;
}

/* -------------------------------------------------------------------------------- list of heads */

/* A name is an item of lists, and the member of a JSON object. */
static bool is_head_name(const char *name, size_t size)
{
    if (size == 0 || size > GSV_MAX_HEAD_NAME || gsv_utf8_valid_length(name, size) != size ||
        (size == 1 && *name == '*'))
        return false;
    for (size_t i = 0; i < size; i++)
        if ((unsigned char)name[i] < ' ' || name[i] == '\x7f' || name[i] == ',' || name[i] == '=')
            return false;
    return true;
}

static gpuserve_status fail_line(const char *line, size_t size, const char *why,
                                 gpuserve_error *error)
{
    const gpuserve_status st = gsv_fail(error, GPUSERVE_E_INVALID, "heads: \"%.*s\" %s",
                                        size < 200 ? (int)size : 200, line, why);

    return gsv_hint(error, st,
                    "give NAME=FILE; a name has 1 to %d bytes of UTF-8, without commas and control "
                    "characters, and is not *",
                    GSV_MAX_HEAD_NAME);
}

/* The name of a file without folder and suffix, or that of a folder. */
static const char *name_of_path(const char *path, size_t path_size, size_t *size)
{
    const size_t suffix = strlen(SUFFIX);
    size_t end = path_size, begin;

    while (end > 1 && path[end - 1] == '/')
        end--;
    for (begin = end; begin > 0 && path[begin - 1] != '/';)
        begin--;
    *size = end - begin;
    if (*size > suffix && memcmp(path + end - suffix, SUFFIX, suffix) == 0)
        *size -= suffix;
    return path + begin;
}

/* Add the head of a file under a valid name. */
static gpuserve_status add_head(struct gsv_heads *heads, const char *name, size_t size,
                                const char *path, gpuserve_error *error)
{
    struct gsv_head *head = &heads->at[heads->n];

    for (size_t i = 0; i < heads->n; i++)
        if (strlen(heads->at[i].name) == size && memcmp(heads->at[i].name, name, size) == 0)
            return fail_line(name, size, "is the name of two heads", error);
    head->name = gsv_copy_text(name, size);
    if (!head->name)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a head");
    heads->n++; /* closed from now on */
    return open_head(head, path, error);
}

/* Add the head of a line "NAME=FILE" or "FILE". */
static gpuserve_status add_line(struct gsv_heads *heads, const char *line, size_t size,
                                gpuserve_error *error)
{
    const char *equals = memchr(line, '=', size);
    const char *path = equals ? equals + 1 : line, *name = line;
    const size_t path_size = size - (size_t)(path - line);
    size_t name_size = equals ? (size_t)(equals - line) : 0;
    gpuserve_status st;
    char *copy;

    if (path_size == 0)
        return fail_line(line, size, "has no file", error);
    if (!equals)
        name = name_of_path(path, path_size, &name_size);
    if (gsv_utf8_valid_length(name, name_size) != name_size)
        return fail_line("", 0, "is not UTF-8", error);
    if (!is_head_name(name, name_size))
        return fail_line(name, name_size, "is not the name of a head", error);
    copy = gsv_copy_text(path, path_size);
    if (!copy)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for a head");
    st = add_head(heads, name, name_size, copy, error);
    free(copy);
    return st;
}

/* The line at *at, which moves behind it; empty lines are skipped. NULL: no more. */
static const char *next_line(const char **at, size_t *size)
{
    const char *line;

    if (!*at)
        return NULL;
    line = *at + strspn(*at, "\n");
    *size = strcspn(line, "\n");
    *at = line + *size;
    return *size > 0 ? line : NULL;
}

static size_t count_files(const struct gsv_head_files *files)
{
    const char *at = files->lines;
    size_t n = files->one != NULL, size;

    while (next_line(&at, &size))
        n++;
    return n;
}

gpuserve_status gsv_heads_open(struct gsv_heads *heads, const struct gsv_head_files *files,
                               gpuserve_error *error)
{
    const size_t n = count_files(files);
    const char *at = files->lines, *line;
    gpuserve_status st = GPUSERVE_OK;
    size_t size = 0;

    *heads = (struct gsv_heads){ 0 };
    if (n > GSV_MAX_HEADS)
        return gsv_fail(error, GPUSERVE_E_TOO_LARGE, "heads: %zu, the limit is %d", n,
                        GSV_MAX_HEADS);
    if (n == 0)
        return GPUSERVE_OK;
    heads->at = gsv_alloc_array(n, sizeof(*heads->at));
    if (!heads->at)
        return gsv_fail(error, GPUSERVE_E_NOMEM, "out of memory for %zu heads", n);
    if (files->one) { /* any file is valid, whatever its name */
        const char *name = name_of_path(files->one, strlen(files->one), &size);
        const bool is_valid = is_head_name(name, size);

        st = add_head(heads, is_valid ? name : "head", is_valid ? size : 4, files->one, error);
    }
    while (st == GPUSERVE_OK && (line = next_line(&at, &size)))
        st = add_line(heads, line, size, error);
    return st;
}

static void close_head(struct gsv_head *head)
{
    gsv_weight_file_close(&head->file);
    gsv_labels_free(head->labels, head->n_labels);
    free(head->name);
}

void gsv_heads_close(struct gsv_heads *heads)
{
    for (size_t i = 0; i < heads->n; i++)
        close_head(&heads->at[i]);
    free(heads->at);
    *heads = (struct gsv_heads){ 0 };
}
