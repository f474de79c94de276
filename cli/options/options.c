/*
 * options.c - command line parser, driven by the tables of options and commands.
 *
 *   argv -> option row (own name or text-embeddings-inference name) -> field of struct cli_args
 *
 * Syntax: long options as `--name value` or `--name=value`, short ones as `-m value` or `-mvalue`.
 * `--` ends the options; `-` alone is an argument. Options and arguments may be mixed.
 */
#include "cli/options/options.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NEAR_NAME_BYTES 32

/* Levenshtein distance between a and b: insertions, deletions and substitutions. Names longer than
 * NEAR_NAME_BYTES, which no option has, give NEAR_NAME_BYTES. */
static size_t distance(const char *a, const char *b)
{
    size_t row[NEAR_NAME_BYTES + 1];
    const size_t n = strlen(a), m = strlen(b);

    if (n > NEAR_NAME_BYTES || m > NEAR_NAME_BYTES)
        return NEAR_NAME_BYTES;
    for (size_t j = 0; j <= m; j++)
        row[j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t diagonal = row[0];

        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            const size_t changed = diagonal + (a[i - 1] != b[j - 1]);
            const size_t other = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;

            diagonal = row[j];
            row[j] = changed < other ? changed : other;
        }
    }
    return row[m];
}

const char *cli_nearest(const char *name, const char *const *names, size_t n)
{
    const char *best = NULL;
    size_t best_distance = strlen(name) / 3 + 2; /* beyond this it is a different word */

    for (size_t i = 0; i < n; i++) {
        const size_t d = distance(name, names[i]);

        if (d < best_distance) {
            best_distance = d;
            best = names[i];
        }
    }
    return best;
}

const struct cli_command *cli_command_find(const char *name)
{
    for (size_t i = 0; i < cli_n_commands; i++) {
        if (strcmp(cli_commands[i].name, name) == 0)
            return &cli_commands[i];
    }
    return NULL;
}

static const struct cli_option *find_long(const struct cli_command *command, const char *name,
                                          size_t size)
{
    const struct cli_tei_name *tei;

    for (size_t i = 0; i < cli_n_options; i++) {
        const struct cli_option *option = &cli_options[i];

        if (cli_option_of(option, command) && strlen(option->name) == size &&
            memcmp(option->name, name, size) == 0)
            return option;
    }
    tei = cli_tei_flag(command, name, size);
    return tei && tei->option ? find_long(command, tei->option, strlen(tei->option)) : NULL;
}

static const struct cli_option *find_short(const struct cli_command *command, char letter)
{
    for (size_t i = 0; i < cli_n_options; i++) {
        if (cli_options[i].letter == letter && cli_option_of(&cli_options[i], command))
            return &cli_options[i];
    }
    return NULL;
}

/* The message omits the value, which may be a key. */
static int unknown_option(const struct cli_command *command, const char *given, size_t size)
{
    const char *names[128], *nearest = NULL;
    char *name = cli_copy(given, size);
    size_t n = 0;

    for (size_t i = 0; i < cli_n_options && n < sizeof(names) / sizeof(names[0]); i++) {
        if (cli_option_of(&cli_options[i], command))
            names[n++] = cli_options[i].name;
    }
    cli_usage("%s has no option %s", command->name, name);
    if (strncmp(name, "--", 2) == 0)
        nearest = cli_nearest(name + 2, names, n);
    if (nearest)
        cli_hint("did you mean --%s?", nearest);
    else
        cli_hint("`gpuserve %s --help` lists them", command->name);
    free(name);
    return CLI_USAGE;
}

/* An option that only text-embeddings-inference has; skips its value. */
static int tell_tei(const struct cli_tei_name *tei, bool has_value, int *at)
{
    char given[64];

    snprintf(given, sizeof(given), "--%s", tei->flag);
    *at += tei->value == TEI_VALUE && !has_value;
    return cli_tei_tell(tei, given);
}

/* "true" or "false" as the value of, or argument after, a flag that has a boolean value in
 * text-embeddings-inference. *is_on: the value; false is equivalent to omitting the flag. */
static bool take_bool(const struct cli_tei_name *tei, const char *value, const char *next, int *at,
                      bool *is_on)
{
    const char *given = value ? value : next;
    const bool is_false = given && strcmp(given, "false") == 0;

    *is_on = true;
    if (!tei || tei->value != TEI_BOOL)
        return !value;
    if (!is_false && (!given || strcmp(given, "true") != 0))
        return !value;
    *at += !value;
    *is_on = !is_false;
    return true;
}

static int set_number(const struct cli_option *option, const char *text, void *field)
{
    char *end;
    const double minimum = option->kind == OPTION_COUNT ? 1 : 0;
    double number;

    errno = 0;
    number = strtod(text, &end);
    if (end == text || *end || errno || isnan(number) ||
        (option->kind != OPTION_NUMBER && number != floor(number)))
        return cli_usage("--%s: \"%s\" is not a number", option->name, text);
    if (number < minimum || number > option->maximum)
        return cli_usage("--%s: %s is outside %g to %.10g", option->name, text, minimum,
                         option->maximum);
    if (option->kind == OPTION_NUMBER && option->value && number == 0)
        return cli_usage("--%s: %s is not above 0", option->name, text);
    if (option->kind == OPTION_PORT)
        *(uint32_t *)field = (uint32_t)number + 1;
    else if (option->kind == OPTION_COUNT)
        *(uint32_t *)field = (uint32_t)number;
    else
        *(double *)field = number;
    return CLI_OK;
}

static int set_size(const struct cli_option *option, const char *text, uint64_t *field)
{
    static const struct {
        const char *name;
        double bytes;
    } units[] = { { "", 1 },       { "B", 1 },        { "KB", 1e3 },   { "MB", 1e6 },
                  { "GB", 1e9 },   { "TB", 1e12 },    { "K", 0x1p10 }, { "KiB", 0x1p10 },
                  { "M", 0x1p20 }, { "MiB", 0x1p20 }, { "G", 0x1p30 }, { "GiB", 0x1p30 },
                  { "T", 0x1p40 }, { "TiB", 0x1p40 } };
    char *end;
    const double number = strtod(text, &end);

    for (size_t i = 0; end > text && i < sizeof(units) / sizeof(units[0]); i++) {
        const double bytes = number * units[i].bytes;

        if (strcmp(end, units[i].name) != 0)
            continue;
        if (!(bytes >= 1 && bytes <= option->maximum))
            return cli_usage("--%s: %s is outside 1 to %.10g bytes", option->name, text,
                             option->maximum);
        *field = (uint64_t)bytes;
        return CLI_OK;
    }
    cli_usage("--%s: \"%s\" is not a size", option->name, text);
    cli_hint("a size is a number of bytes, or a number with K, M, G, T (powers of 1024) or KB, MB, "
             "GB, TB (powers of 1000)");
    return CLI_USAGE;
}

static int set_choice(const struct cli_option *option, const char *text, uint32_t *field)
{
    char known[256] = "";

    for (const struct cli_choice *choice = option->choices; choice->name; choice++) {
        if (strcmp(choice->name, text) == 0) {
            *field = choice->value;
            return CLI_OK;
        }
        strncat(known, known[0] ? ", " : "", sizeof(known) - strlen(known) - 1);
        strncat(known, choice->name, sizeof(known) - strlen(known) - 1);
    }
    cli_usage("--%s: unknown value \"%s\"", option->name, text);
    if (strcmp(option->name, "pooling") == 0 && strcmp(text, "splade") == 0)
        cli_hint("a masked language model uses SPLADE pooling without this option");
    else
        cli_hint("valid: %s", known);
    return CLI_USAGE;
}

void cli_option_set_false(struct cli_args *args, const struct cli_option *option)
{
    args->is_set[option - cli_options] = true;
}

int cli_option_set(struct cli_args *args, const struct cli_option *option, const char *text)
{
    void *field = (char *)args + option->offset;
    struct cli_list *list;

    args->is_set[option - cli_options] = true;
    switch (option->kind) {
    case OPTION_FLAG:
        *(uint32_t *)field = option->value;
        return CLI_OK;
    case OPTION_STRING:
        *(const char **)field = text;
        return CLI_OK;
    case OPTION_CHOICE:
        return set_choice(option, text, field);
    case OPTION_SIZE:
        return set_size(option, text, field);
    case OPTION_LIST:
        list = field;
        if (list->n == CLI_LIST_MAX)
            return cli_usage("--%s is given more than %d times", option->name, CLI_LIST_MAX);
        list->items[list->n++] = text;
        return CLI_OK;
    default:
        return set_number(option, text, field);
    }
}

bool cli_option_given(const struct cli_args *args, const struct cli_option *option)
{
    const void *field = (const char *)args + option->offset;

    if (args->is_set[option - cli_options])
        return true;
    switch (option->kind) {
    case OPTION_STRING:
        return *(const char *const *)field != NULL;
    case OPTION_NUMBER:
        return *(const double *)field != 0;
    case OPTION_SIZE:
        return *(const uint64_t *)field != 0;
    case OPTION_LIST:
        return ((const struct cli_list *)field)->n > 0;
    default:
        return *(const uint32_t *)field != 0;
    }
}

const struct cli_option *cli_option_find(const struct cli_command *command, const char *name)
{
    return find_long(command, name, strlen(name));
}

/* Parse the option at argv[*at], with its value there or in the next argument. */
static int parse_option(struct cli_args *args, const struct cli_command *command, int argc,
                        char **argv, int *at)
{
    const char *given = argv[*at], *value = NULL;
    size_t size = 2; /* of the option name, including the dashes */
    const struct cli_option *option;
    const struct cli_tei_name *tei;
    bool is_on = true;

    if (given[1] == '-') {
        size = strcspn(given, "=");
        option = find_long(command, given + 2, size - 2);
        value = given[size] ? given + size + 1 : NULL;
    } else {
        option = find_short(command, given[1]);
        value = given[2] ? given + 2 : NULL;
    }
    tei = size > 2 ? cli_tei_flag(command, given + 2, size - 2) : NULL;
    if (!option && tei)
        return tell_tei(tei, value != NULL, at);
    if (!option)
        return unknown_option(command, given, size);
    if (option->kind == OPTION_FLAG) {
        if (!take_bool(tei, value, *at + 1 < argc ? argv[*at + 1] : NULL, at, &is_on))
            return cli_usage("--%s does not accept a value", option->name);
        if (!is_on) {
            cli_option_set_false(args, option);
            return CLI_OK;
        }
    } else if (tei && tei->text) {
        if (value)
            return cli_usage("--%s does not accept a value", tei->flag);
        value = tei->text;
    } else if (!value) {
        if (*at + 1 >= argc)
            return cli_usage("--%s needs a value", option->name);
        value = argv[++*at];
    }
    return cli_option_set(args, option, value);
}

/* --random SHAPE is the model "random:SHAPE". */
static int name_random(struct cli_args *args)
{
    if (!args->random)
        return CLI_OK;
    if (args->model)
        return cli_usage("--model and --random exclude each other");
    if (snprintf(args->random_path, sizeof(args->random_path), "random:%s", args->random) >=
        (int)sizeof(args->random_path))
        return cli_usage("--random: the shape is longer than %d bytes", CLI_RANDOM_BYTES - 8);
    args->model = args->random_path;
    return CLI_OK;
}

int cli_parse(struct cli_args *args, const struct cli_command *command, int argc, char **argv)
{
    int n_rest = 0, result;

    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], "--") == 0) {
            while (++i < argc)
                argv[n_rest++] = argv[i];
        } else if (argv[i][0] == '-' && argv[i][1]) {
            result = parse_option(args, command, argc, argv, &i);
            if (result != CLI_OK)
                return result;
        } else {
            argv[n_rest++] = argv[i];
        }
    }
    if (args->prompt && args->prompt_name)
        return cli_usage("--prompt and --prompt-name exclude each other");
    if (args->weights_cache && *args->weights_cache != '/' &&
        strcmp(args->weights_cache, "off") != 0)
        return cli_usage("--weights-cache: \"%s\" is neither an absolute path nor off",
                         args->weights_cache);
    result = name_random(args);
    if (result != CLI_OK)
        return result;
    args->rest = (const char *const *)argv;
    args->n_rest = (size_t)n_rest;
    if (command->takes_model && !args->model && args->n_rest > 0) {
        args->model = *args->rest++;
        args->n_rest--;
        args->model_is_argument = true;
    }
    return CLI_OK;
}
