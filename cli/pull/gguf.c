/*
 * gguf.c - selects one GGUF file of a repository, or all parts of a split one.
 *
 * The rule: the file that the caller names, or else the only one. With several the error lists
 * their names and sizes. A split file is named by its first part.
 */
#include "cli/pull/pull.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define MAX_SHOWN 30

bool cli_pull_is_gguf(const char *name)
{
    const size_t n = strlen(name);

    return n > 5 && strcasecmp(name + n - 5, ".gguf") == 0;
}

/* NAME-00001-of-00003.gguf; a file that is the only part is whole. */
bool cli_pull_gguf_part(const char *name, int *number, int *count)
{
#define NUMBER "[0-9][0-9][0-9][0-9][0-9]"
    const size_t n = strlen(name), suffix = strlen("-00001-of-00003.gguf");

    if (fnmatch("*?-" NUMBER "-of-" NUMBER ".gguf", name, 0) != 0)
        return false;
    *number = atoi(name + n - suffix + 1);
    *count = atoi(name + n - suffix + strlen("-00001-of-"));
    return *number >= 1 && *count > 1;
#undef NUMBER
}

static const char *name_at(const json_t *siblings, size_t i)
{
    return json_string_value(json_object_get(json_array_get(siblings, i), "rfilename"));
}

static double megabytes(const json_t *entry)
{
    const json_t *lfs = json_object_get(entry, "lfs");

    return json_number_value(json_object_get(json_is_object(lfs) ? lfs : entry, "size")) / 1e6;
}

static void list_names(const json_t *siblings, size_t n_gguf)
{
    size_t shown = 0;

    for (size_t i = 0; i < json_array_size(siblings) && shown < MAX_SHOWN; i++) {
        const char *name = name_at(siblings, i);

        if (!name || !cli_pull_is_gguf(name))
            continue;
        cli_hint("%s, %.1f MB", name, megabytes(json_array_get(siblings, i)));
        shown++;
    }
    if (n_gguf > shown)
        cli_hint("and %zu more", n_gguf - shown);
}

/* Index of the file in the hub's list; its size if it is not there. */
static size_t find_name(const json_t *siblings, const char *name)
{
    size_t i = 0;

    while (i < json_array_size(siblings) &&
           (!name_at(siblings, i) || strcmp(name_at(siblings, i), name) != 0))
        i++;
    return i;
}

/* The name of another part of the same file; owned. */
static char *part_name(const char *name, int number)
{
    char *other = cli_copy(name, strlen(name)), digits[16];

    snprintf(digits, sizeof(digits), "%05d", number % 100000);
    memcpy(other + strlen(name) - strlen("00001-of-00003.gguf"), digits, 5);
    return other;
}

int cli_pull_next_gguf_part(const json_t *siblings, const char *model, const char *first,
                            int number, size_t *chosen)
{
    char *name = part_name(first, number);
    int result = CLI_OK;

    *chosen = find_name(siblings, name);
    if (*chosen == json_array_size(siblings))
        result = cli_fail("%s: the model has no file %s, a part of %s", model, name, first);
    free(name);
    return result;
}

static int refuse_part(const char *model, const char *name, int number, int count)
{
    char *first = part_name(name, 1);

    cli_fail("%s: %s is part %d of %d of a split GGUF file", model, name, number, count);
    cli_hint("name the first part; the others come with it: gpuserve pull %s %s", model, first);
    free(first);
    return CLI_FAILED;
}

/* The only file, or the first part if all `n` files are the parts of one. */
static bool is_whole(const json_t *siblings, size_t i, size_t n)
{
    int number, count;

    return n == 1 || (cli_pull_gguf_part(name_at(siblings, i), &number, &count) && number == 1 &&
                      (size_t)count == n);
}

int cli_pull_choose_gguf(const json_t *siblings, const char *model, const char *file,
                         size_t *chosen)
{
    size_t n_gguf = 0, first = 0;
    int number, count;

    for (size_t i = 0; i < json_array_size(siblings); i++) {
        const char *name = name_at(siblings, i);

        if (!name || !cli_pull_is_gguf(name))
            continue;
        if (n_gguf++ == 0 || strcmp(name, name_at(siblings, first)) < 0)
            first = i;
    }
    *chosen = file ? find_name(siblings, file) : first;
    if (n_gguf > 0 && *chosen < json_array_size(siblings) &&
        (file || is_whole(siblings, first, n_gguf)))
        return cli_pull_gguf_part(name_at(siblings, *chosen), &number, &count) && number != 1
                   ? refuse_part(model, name_at(siblings, *chosen), number, count)
                   : CLI_OK;
    if (n_gguf == 0)
        return cli_fail("%s: the model has no GGUF files", model);
    if (file)
        cli_fail("%s: the model has no file \"%s\"; its GGUF files are:", model, file);
    else
        cli_fail("%s: the model has %zu GGUF files and no other weights; name one: "
                 "gpuserve pull %s FILE",
                 model, n_gguf, model);
    list_names(siblings, n_gguf);
    return CLI_FAILED;
}
