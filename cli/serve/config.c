/*
 * config.c - the server's options from three sources, by priority: flags, environment variables,
 * the file of --config.
 *
 * Option --some-name is GPUSERVE_SOME_NAME in the environment and "some-name" in the JSON file. The
 * variable names of text-embeddings-inference (TEI) are accepted too. Sources of a list option,
 * such as --api-key, are not merged: the first source that has it supplies the whole list. Runs
 * before any thread starts.
 */
#include "cli/options/options.h"

#include <jansson.h>

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_CONFIG_BYTES = 1 << 20 };

/* Parses "1", "true", "yes", "on" and their opposites, which leave a flag unset. False: invalid. */
static bool read_flag(const char *text, bool *is_on)
{
    static const char *const words[] = { "0", "1", "false", "true", "no", "yes", "off", "on" };

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strcasecmp(text, words[i]) == 0) {
            *is_on = i & 1;
            return true;
        }
    }
    return false;
}

static int set(struct cli_args *args, const struct cli_option *option, const char *text,
               const char *where)
{
    bool is_on = true;
    int result;

    if (option->kind == OPTION_FLAG && !read_flag(text, &is_on))
        return cli_usage("%s: \"%s\" is neither true nor false", where, text);
    if (!is_on) {
        cli_option_set_false(args, option);
        return CLI_OK;
    }
    result = cli_option_set(args, option, text);
    if (result != CLI_OK)
        cli_hint("the value is set in %s", where);
    return result;
}

/* ---------------------------------------------------------------------------------- environment */

static int from_variable(struct cli_args *args, const struct cli_option *option,
                         const char *variable)
{
    const char *text = getenv(variable);

    if (!text || !text[0] || cli_option_given(args, option))
        return CLI_OK;
    return set(args, option, text, variable);
}

/* Containers set HOSTNAME to their own name: only an IP address is used as the listen address. */
static bool is_meant(const struct cli_tei_name *tei, const char *text)
{
    struct in6_addr address;

    return strcmp(tei->variable, "HOSTNAME") != 0 || inet_pton(AF_INET, text, &address) == 1 ||
           inet_pton(AF_INET6, text, &address) == 1;
}

static int from_tei(struct cli_args *args, const struct cli_command *command,
                    const struct cli_tei_name *tei)
{
    const char *text = getenv(tei->variable);
    bool is_on = true;

    if (!text || !text[0] || !is_meant(tei, text))
        return CLI_OK;
    if (tei->kind == TEI_SAME && strcmp(tei->option, "model") == 0 && args->n_rest > 0)
        return CLI_OK;
    if (tei->text) {
        const struct cli_option *option = cli_option_find(command, tei->option);

        if (!read_flag(text, &is_on))
            return cli_usage("%s: \"%s\" is neither true nor false", tei->variable, text);
        return is_on && !cli_option_given(args, option) ? cli_option_set(args, option, tei->text)
                                                        : CLI_OK;
    }
    if (tei->kind == TEI_SAME)
        return from_variable(args, cli_option_find(command, tei->option), tei->variable);
    if ((tei->kind == TEI_PASSED && args->quiet) ||
        (tei->value == TEI_FLAG && read_flag(text, &is_on) && !is_on))
        return CLI_OK;
    return cli_tei_tell(tei, tei->variable);
}

/* The format of the log, before other variables cause messages. */
static int log_format_from_environment(struct cli_args *args, const struct cli_command *command)
{
    int result = from_variable(args, cli_option_find(command, "log-format"), "GPUSERVE_LOG_FORMAT");

    if (result == CLI_OK)
        result = from_tei(args, command, cli_tei_flag(command, "json-output", 11));
    if (args->log_format == CLI_LOG_JSON)
        cli_log_as_json();
    return result;
}

static int from_environment(struct cli_args *args, const struct cli_command *command)
{
    int result = log_format_from_environment(args, command);

    for (size_t i = 0; i < cli_n_options && result == CLI_OK; i++) {
        const struct cli_option *option = &cli_options[i];
        char variable[64];

        if (!cli_option_of(option, command) || strcmp(option->name, "help") == 0 ||
            (strcmp(option->name, "model") == 0 && args->n_rest > 0))
            continue;
        snprintf(variable, sizeof(variable), "GPUSERVE_%s", option->name);
        for (char *c = variable; *c; c++)
            *c = *c == '-' ? '_' : (char)toupper((unsigned char)*c);
        result = from_variable(args, option, variable);
    }
    for (size_t i = 0; i < cli_n_tei_names && result == CLI_OK; i++)
        result = from_tei(args, command, &cli_tei_names[i]);
    return result;
}

/* ----------------------------------------------------------------------------------------- file */

/* Frees `memory` with the options, because the JSON tree is freed before them. */
static void *keep(struct cli_args *args, void *memory)
{
    if (!memory)
        return NULL;
    args->owned =
        cli_grow(args->owned, &args->owned_capacity, args->n_owned + 1, sizeof(*args->owned));
    args->owned[args->n_owned++] = memory;
    return memory;
}

void cli_serve_release(struct cli_args *args)
{
    for (size_t i = 0; i < args->n_owned; i++)
        free(args->owned[i]);
    free(args->owned);
    args->owned = NULL;
    args->n_owned = args->owned_capacity = 0;
}

/* A JSON scalar as text; NULL for an array, an object or null. */
static const char *text_of(struct cli_args *args, const json_t *value)
{
    if (json_is_string(value))
        return keep(args, cli_copy(json_string_value(value), json_string_length(value)));
    return json_is_array(value) || json_is_object(value) || json_is_null(value)
               ? NULL
               : keep(args, json_dumps(value, JSON_ENCODE_ANY));
}

static int set_value(struct cli_args *args, const struct cli_option *option, const json_t *value,
                     const char *where)
{
    const char *text = text_of(args, value);

    return text ? set(args, option, text, where)
                : cli_usage("%s: the value is not a string, a number, true or false", where);
}

static int set_models(struct cli_args *args, const json_t *models, const char *where)
{
    const size_t n = json_array_size(models);
    const char **rest;

    if (n == 0)
        return cli_usage("%s: the value is not a list of models", where);
    if (args->n_rest > 0 || args->model)
        return CLI_OK;
    rest = keep(args, cli_alloc(n, sizeof(*rest)));
    for (size_t i = 0; i < n; i++) {
        rest[i] = text_of(args, json_array_get(models, i));
        if (!rest[i])
            return cli_usage("%s: model %zu is not a string such as \"NAME=MODEL\"", where, i + 1);
    }
    args->rest = rest;
    args->n_rest = n;
    return CLI_OK;
}

static int unknown_member(const struct cli_command *command, const char *path, const char *name)
{
    const char *names[128], *nearest;
    size_t n = 0;

    for (size_t i = 0; i < cli_n_options && n < sizeof(names) / sizeof(names[0]); i++) {
        if (cli_option_of(&cli_options[i], command))
            names[n++] = cli_options[i].name;
    }
    cli_usage("%s: unknown option \"%s\"", path, name);
    nearest = cli_nearest(name, names, n);
    if (nearest)
        cli_hint("did you mean \"%s\"?", nearest);
    return CLI_USAGE;
}

static int from_member(struct cli_args *args, const struct cli_command *command, const char *name,
                       const json_t *value)
{
    const struct cli_option *option = cli_option_find(command, name);
    char where[512];
    int result = CLI_OK;

    snprintf(where, sizeof(where), "%s: \"%s\"", args->config, name);
    if (strcmp(name, "models") == 0)
        return set_models(args, value, where);
    if (!option || strcmp(name, "config") == 0 || strcmp(name, "help") == 0)
        return unknown_member(command, args->config, name);
    if (cli_option_given(args, option) || (strcmp(name, "model") == 0 && args->n_rest > 0))
        return CLI_OK;
    if (option->kind != OPTION_LIST || !json_is_array(value))
        return set_value(args, option, value, where);
    for (size_t i = 0; i < json_array_size(value) && result == CLI_OK; i++)
        result = set_value(args, option, json_array_get(value, i), where);
    return result;
}

/* Size of `text` before the first occurrence of `word`. */
static size_t size_before(const char *text, const char *word)
{
    const char *found = strstr(text, word);

    return found ? (size_t)(found - text) : strlen(text);
}

/* Content of the file, not validated; NULL after a message. */
static char *read_file(const char *path, size_t *size)
{
    FILE *file = fopen(path, "re");
    char *bytes;
    bool failed;

    if (!file) {
        cli_fail("%s: %s", path, strerror(errno));
        return NULL;
    }
    bytes = cli_alloc(MAX_CONFIG_BYTES + 1, 1);
    *size = fread(bytes, 1, MAX_CONFIG_BYTES + 1, file);
    failed = ferror(file) != 0;
    if (failed)
        cli_fail("%s: %s", path, strerror(errno));
    else if (*size > MAX_CONFIG_BYTES)
        cli_fail("%s exceeds %d bytes", path, MAX_CONFIG_BYTES);
    fclose(file);
    if (!failed && *size <= MAX_CONFIG_BYTES)
        return bytes;
    free(bytes);
    return NULL;
}

static int from_file(struct cli_args *args, const struct cli_command *command)
{
    size_t size;
    char *bytes = read_file(args->config, &size);
    json_error_t error;
    json_t *file, *value;
    const char *name;
    int result = CLI_OK;

    if (!bytes)
        return CLI_FAILED;
    file = json_loadb(bytes, size, JSON_REJECT_DUPLICATES, &error);
    free(bytes);
    if (!file) /* omits the "near ..." part of the message, which may contain an API key */
        return cli_usage("%s: line %d, column %d: %.*s", args->config, error.line, error.column,
                         (int)size_before(error.text, " near "), error.text);
    if (!json_is_object(file))
        result = cli_usage("%s is not a JSON object", args->config);
    json_object_foreach(file, name, value)
    {
        if (result == CLI_OK)
            result = from_member(args, command, name, value);
    }
    json_decref(file);
    return result;
}

/* ---------------------------------------------------------------------------------------- check */

static json_t *value_of(const struct cli_args *args, const struct cli_option *option)
{
    const void *field = (const char *)args + option->offset;
    const struct cli_list *list = field;
    json_t *texts;

    switch (option->kind) {
    case OPTION_STRING:
        return json_string(*(const char *const *)field);
    case OPTION_FLAG:
        return json_true();
    case OPTION_NUMBER:
        return json_real(*(const double *)field);
    case OPTION_SIZE:
        return json_integer((json_int_t) * (const uint64_t *)field);
    case OPTION_PORT:
        return json_integer((json_int_t) * (const uint32_t *)field - 1);
    case OPTION_COUNT:
        return json_integer(*(const uint32_t *)field);
    case OPTION_CHOICE:
        for (const struct cli_choice *choice = option->choices; choice->name; choice++) {
            if (choice->value == *(const uint32_t *)field)
                return json_string(choice->name);
        }
        return json_null();
    default:
        texts = json_array();
        for (size_t i = 0; i < list->n; i++)
            json_array_append_new(texts, strcmp(option->name, "api-key") == 0
                                             ? json_string("(hidden)")
                                             : json_string(list->items[i]));
        return texts;
    }
}

/* A flag that is given as false is equivalent to none. */
static bool is_printed(const struct cli_args *args, const struct cli_option *option)
{
    const void *field = (const char *)args + option->offset;

    return cli_option_given(args, option) &&
           (option->kind != OPTION_FLAG || *(const uint32_t *)field != 0) &&
           strcmp(option->name, "check-config") != 0 && strcmp(option->name, "config") != 0;
}

int cli_serve_print(const struct cli_args *args)
{
    const struct cli_command *command = cli_command_find("serve");
    json_t *all = json_object(), *models = json_array();
    char *text;

    for (size_t i = 0; i < args->n_rest; i++)
        json_array_append_new(models, json_string(args->rest[i]));
    if (args->n_rest > 0)
        json_object_set(all, "models", models);
    json_decref(models);
    for (size_t i = 0; i < cli_n_options; i++) {
        const struct cli_option *option = &cli_options[i];

        if (cli_option_of(option, command) && is_printed(args, option))
            json_object_set_new(all, option->name, value_of(args, option));
    }
    text = json_dumps(all, JSON_INDENT(2));
    json_decref(all);
    if (!text)
        return cli_fail("out of memory");
    puts(text);
    free(text);
    return CLI_OK;
}

int cli_serve_complete(struct cli_args *args)
{
    const struct cli_command *command = cli_command_find("serve");
    int result = from_environment(args, command);

    if (result == CLI_OK && args->config)
        result = from_file(args, command);
    if (args->log_format == CLI_LOG_JSON)
        cli_log_as_json();
    return result;
}
