/*
 * facts.c - see facts.h.
 */
#include "facts.h"

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
        cli_fail("the library's facts are no JSON: %s", where.text);
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

static void print_object(const json_t *object, int indent);

static void print_array(const json_t *array, int indent)
{
    const size_t n = json_array_size(array);
    bool plain = true;

    for (size_t i = 0; i < n; i++)
        plain = plain && is_plain(json_array_get(array, i));
    if (plain) {
        for (size_t i = 0; i < n && i < LIST_SHOWN; i++) {
            fputs(i ? ", " : "", stdout);
            print_plain(json_array_get(array, i));
        }
        if (n > LIST_SHOWN)
            printf(", ... (%zu)", n);
        putchar('\n');
        return;
    }
    putchar('\n');
    for (size_t i = 0; i < n; i++) {
        const json_t *element = json_array_get(array, i);

        printf("%*s- ", indent + 2, "");
        if (json_is_object(element)) {
            putchar('\n');
            print_object(element, indent + 4);
        } else if (json_is_array(element)) {
            print_array(element, indent + 2);
        } else {
            print_plain(element);
            putchar('\n');
        }
    }
}

static void print_object(const json_t *object, int indent)
{
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)object, key, value)
    {
        const int width = NAME_WIDTH - indent - (int)strlen(key);

        printf("%*s%s:%*s", indent, "", key, width > 1 ? width : 1, "");
        if (json_is_object(value)) {
            putchar('\n');
            print_object(value, indent + 2);
        } else if (json_is_array(value)) {
            print_array(value, indent);
        } else {
            print_plain(value);
            putchar('\n');
        }
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
