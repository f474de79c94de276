/*
 * search.c - semantic search: prints the lines of a text file closest in meaning to a question.
 *
 *   search MODEL FILE QUESTION
 *
 * All lines are embedded in one call; the question's vector is compared with all of them. A real
 * program would store the vectors with gpuserve_model_fingerprint(), which shows whether stored
 * vectors match the model.
 */
#define _POSIX_C_SOURCE 200809L

#include <gpuserve/gpuserve.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_BEST = 3, MAX_LINES = 100000 };

struct lines {
    char **text;
    size_t n;
};

static int read_lines(struct lines *lines, const char *path)
{
    FILE *file = fopen(path, "r");
    char *line = NULL;
    size_t capacity = 0;
    ssize_t length;

    if (!file) {
        perror(path);
        return 1;
    }
    lines->text = calloc(MAX_LINES, sizeof(*lines->text));
    while (lines->text && lines->n < MAX_LINES && (length = getline(&line, &capacity, file)) > 0) {
        line[strcspn(line, "\r\n")] = '\0';
        if (line[0] == '\0')
            continue;
        lines->text[lines->n] = strdup(line);
        if (!lines->text[lines->n])
            break;
        lines->n++;
    }
    free(line);
    fclose(file);
    return lines->text == NULL;
}

static void free_lines(struct lines *lines)
{
    for (size_t i = 0; i < lines->n; i++)
        free(lines->text[i]);
    free(lines->text);
}

static gpuserve_status search(gpuserve_model *model, const struct lines *lines,
                              const char *question, gpuserve_error *error)
{
    const size_t dim = gpuserve_model_dim(model);
    float *rows = calloc((lines->n + 1) * dim, sizeof(*rows)); /* last row: the question */
    float *query, scores[N_BEST];
    size_t best[N_BEST], n;
    gpuserve_status status;

    if (!rows)
        return GPUSERVE_E_NOMEM;
    query = rows + lines->n * dim;
    status = gpuserve_embed(model, (const char *const *)lines->text, lines->n, rows, lines->n * dim,
                            NULL, error);
    if (status == GPUSERVE_OK)
        status = gpuserve_embed(model, &question, 1, query, dim, NULL, error);
    if (status == GPUSERVE_OK) {
        n = gpuserve_top_k(query, rows, lines->n, dim, N_BEST, best, scores);
        for (size_t i = 0; i < n; i++)
            printf("%.3f  %s\n", (double)scores[i], lines->text[best[i]]);
    }
    free(rows);
    return status;
}

int main(int argc, char **argv)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_model *model = NULL;
    struct lines lines = { 0 };
    gpuserve_status status;

    if (argc != 4) {
        fprintf(stderr, "usage: search MODEL FILE QUESTION\n");
        return 2;
    }
    if (read_lines(&lines, argv[2]) != 0) {
        free_lines(&lines);
        return 1;
    }
    status = gpuserve_model_open(&model, NULL, argv[1], NULL, &error);
    if (status == GPUSERVE_OK)
        status = search(model, &lines, argv[3], &error);
    if (status != GPUSERVE_OK)
        fprintf(stderr, "%s: %s\n%s\n", gpuserve_status_name(status), error.message, error.hint);
    gpuserve_model_close(&model);
    free_lines(&lines);
    return status != GPUSERVE_OK;
}
