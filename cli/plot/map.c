/*
 * map.c - collects vectors and texts, and writes the page of a map.
 *
 * The data are a JSON object in the page; every slash is escaped, so no text ends its element.
 */
#include "cli/plot/map.h"

#include "cli/io/output.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TEXT_BYTES 400 /* of a text that the page shows */
#define DATA_PLACEHOLDER "/* DATA */"

extern const unsigned char cli_page_map_html[];
extern const size_t cli_page_map_html_size;

/* Bytes of the beginning of a text that are whole characters. */
static size_t shown_bytes(const char *text, size_t size)
{
    if (size <= MAX_TEXT_BYTES)
        return size;
    size = MAX_TEXT_BYTES;
    while (size > 0 && ((unsigned char)text[size] & 0xC0) == 0x80)
        size--;
    return size;
}

int cli_map_add(struct cli_map *map, const float *row, size_t dim, const char *text, size_t size)
{
    if (map->n == CLI_MAP_MAX_TEXTS) {
        cli_fail("--plot: more than %d texts", CLI_MAP_MAX_TEXTS);
        cli_hint("give a part of them: shuf -n %d FILE", CLI_MAP_MAX_TEXTS);
        return CLI_FAILED;
    }
    map->dim = dim;
    map->vectors =
        cli_grow(map->vectors, &map->vectors_capacity, (map->n + 1) * dim, sizeof(float));
    map->texts = cli_grow(map->texts, &map->texts_capacity, map->n + 1, sizeof(char *));
    memcpy(map->vectors + map->n * dim, row, dim * sizeof(*row));
    map->texts[map->n++] = cli_copy(text, shown_bytes(text, size));
    return CLI_OK;
}

void cli_map_reset(struct cli_map *map)
{
    for (size_t i = 0; i < map->n; i++)
        free(map->texts[i]);
    free(map->texts);
    free(map->vectors);
    free(map->x);
    free(map->y);
    free(map->cluster);
    free(map->neighbours);
    free(map->similarity);
    memset(map, 0, sizeof(*map));
}

static void write_text(FILE *to, const char *text)
{
    json_t *value = json_string(text);

    if (value)
        json_dumpf(value, to, JSON_ENCODE_ANY | JSON_ESCAPE_SLASH);
    else
        fputs("\"\"", to); /* not UTF-8 */
    json_decref(value);
}

/* The last component of a path; a page may be passed on, and the path is of this machine. */
static const char *shown_model(const char *model)
{
    const char *slash = strrchr(model, '/');

    return (*model == '/' || *model == '.') && slash && slash[1] ? slash + 1 : model;
}

static void write_data(const struct cli_map *map, FILE *to, const char *model)
{
    fputs("{\"model\":", to);
    write_text(to, shown_model(model));
    fprintf(to, ",\"explained\":[%.4f,%.4f],\n\"texts\":[", map->explained[0], map->explained[1]);
    for (size_t i = 0; i < map->n; i++) {
        fputs(i ? ",\n" : "", to);
        write_text(to, map->texts[i]);
    }
    fputs("],\n\"points\":[", to);
    for (size_t i = 0; i < map->n; i++)
        fprintf(to, "%s[%.5f,%.5f,%u]", i ? "," : "", map->x[i], map->y[i], map->cluster[i]);
    fputs("],\n\"middles\":[", to);
    for (size_t c = 0; c < map->n_clusters; c++)
        fprintf(to, "%s%u", c ? "," : "", map->middle[c]);
    fputs("],\n\"neighbours\":[", to);
    for (size_t i = 0; i < map->n; i++) {
        fputs(i ? ",[" : "[", to);
        for (size_t k = 0; k < map->n_neighbours; k++)
            fprintf(to, "%s[%u,%.4f]", k ? "," : "", map->neighbours[i * map->n_neighbours + k],
                    (double)map->similarity[i * map->n_neighbours + k]);
        fputc(']', to);
    }
    fputs("]}", to);
}

int cli_map_write(struct cli_map *map, const char *path, const char *model)
{
    const char *page = (const char *)cli_page_map_html;
    const char *placeholder =
        memmem(page, cli_page_map_html_size, DATA_PLACEHOLDER, strlen(DATA_PLACEHOLDER));
    struct cli_output output = { 0 };
    int result = cli_map_lay_out(map);

    if (result == CLI_OK)
        result = cli_output_open(&output, path);
    if (result == CLI_OK) {
        const char *rest = placeholder + strlen(DATA_PLACEHOLDER);

        fwrite(page, 1, (size_t)(placeholder - page), output.stream);
        write_data(map, output.stream, model);
        fwrite(rest, 1, cli_page_map_html_size - (size_t)(rest - page), output.stream);
        result = cli_output_finish(&output);
    }
    cli_output_abandon(&output);
    return result;
}
