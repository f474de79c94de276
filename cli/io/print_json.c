/*
 * print_json.c - prints JSON objects as JSON or as indented "name: value" lines.
 *
 * In lines, lists of scalars show the first LIST_SHOWN values; booleans are yes or no, null is '-'.
 */
#include "cli/io/output.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_WIDTH 24
#define LIST_SHOWN 8

json_t *cli_facts_parse(char *text)
{
    json_error_t where;
    json_t *facts;

    if (!text)
        return NULL;
    facts = json_loads(text, JSON_ALLOW_NUL, &where);
    free(text);
    if (!facts)
        cli_fail("the library's model info is not valid JSON: %s", where.text);
    return facts;
}

static bool is_plain(const json_t *value)
{
    return !json_is_object(value) && !json_is_array(value);
}

static void print_plain(const json_t *value)
{
    if (json_is_string(value))
        fputs(json_string_value(value), stdout);
    else if (json_is_boolean(value))
        fputs(json_is_true(value) ? "yes" : "no", stdout);
    else if (json_is_null(value))
        putchar('-');
    else
        json_dumpf(value, stdout, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
}

static void print_value(const json_t *value, int indent);

/* Prints "name: value" lines. The first starts at the cursor, the others at `indent`. */
static void print_object(const json_t *object, int indent)
{
    const char *key;
    json_t *value;
    bool first = true;

    json_object_foreach((json_t *)object, key, value)
    {
        const int width = NAME_WIDTH - indent - (int)strlen(key);

        printf("%*s%s:", first ? 0 : indent, "", key);
        if (is_plain(value) || json_is_array(value))
            printf("%*s", width > 1 ? width : 1, "");
        print_value(value, indent);
        first = false;
    }
}

static void print_array(const json_t *array, int indent)
{
    const size_t n = json_array_size(array);
    bool plain = true;

    for (size_t i = 0; i < n; i++)
        plain = plain && is_plain(json_array_get(array, i));
    for (size_t i = 0; plain && i < n && i < LIST_SHOWN; i++) {
        fputs(i ? ", " : "", stdout);
        print_plain(json_array_get(array, i));
    }
    if (plain && n > LIST_SHOWN)
        printf(", ... (%zu)", n);
    if (plain && n == 0)
        putchar('-');
    putchar('\n');
    for (size_t i = 0; !plain && i < n; i++) {
        printf("%*s- ", indent + 2, "");
        if (json_is_object(json_array_get(array, i)))
            print_object(json_array_get(array, i), indent + 4);
        else
            print_value(json_array_get(array, i), indent + 4);
    }
}

static void print_value(const json_t *value, int indent)
{
    if (json_is_array(value)) {
        print_array(value, indent);
    } else if (json_is_object(value)) {
        printf("\n%*s", json_object_size(value) ? indent + 2 : 0, "");
        print_object(value, indent + 2);
    } else {
        print_plain(value);
        putchar('\n');
    }
}

int cli_facts_print(json_t *facts, bool as_json)
{
    if (!facts)
        return cli_fail("out of memory");
    if (as_json) {
        json_dumpf(facts, stdout, JSON_ENCODE_ANY | JSON_INDENT(2) | JSON_REAL_PRECISION(9));
        putchar('\n');
    } else {
        print_object(facts, 0);
    }
    json_decref(facts);
    return CLI_OK;
}
