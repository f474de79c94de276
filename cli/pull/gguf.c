/*
 * gguf.c - selects one GGUF file of a repository.
 *
 * The rule: the file that the caller names, or else the only one. With several the error lists
 * their names and sizes. A part of a split file is refused, since gpuserve does not load it.
 */
#include "cli/pull/pull.h"

#include <fnmatch.h>
#include <string.h>
#include <strings.h>

#define MAX_SHOWN 30

bool cli_pull_is_gguf(const char *name)
{
    const size_t n = strlen(name);

    return n > 5 && strcasecmp(name + n - 5, ".gguf") == 0;
}

/* NAME-00001-of-00003.gguf; a file that is the only part is whole. */
static bool is_part(const char *name)
{
#define NUMBER "[0-9][0-9][0-9][0-9][0-9]"
    return fnmatch("*-" NUMBER "-of-" NUMBER ".gguf", name, 0) == 0 &&
           fnmatch("*-of-00001.gguf", name, 0) != 0;
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

static int refuse_part(const char *model, const char *name)
{
    cli_fail("%s: %s is a part of a split GGUF file, which is not supported", model, name);
    cli_hint("name a file that is not split, or download all parts and merge them: "
             "llama-gguf-split --merge FIRST-PART OUTPUT");
    return CLI_FAILED;
}

int cli_pull_choose_gguf(const json_t *siblings, const char *model, const char *file,
                         size_t *chosen)
{
    size_t n_gguf = 0, n_found = 0;

    for (size_t i = 0; i < json_array_size(siblings); i++) {
        const char *name = name_at(siblings, i);

        if (!name || !cli_pull_is_gguf(name))
            continue;
        n_gguf++;
        if (file && strcmp(name, file) != 0)
            continue;
        n_found++;
        *chosen = i;
    }
    if (n_found == 1)
        return is_part(name_at(siblings, *chosen)) ? refuse_part(model, name_at(siblings, *chosen))
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
