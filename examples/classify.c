/*
 * classify.c - prints the most likely labels of each text.
 *
 *   classify MODEL HEAD TEXT...
 *
 * HEAD is the file of a classifier head over the model's embedding, or "-" if the model itself is a
 * classifier.
 */
#include <gpuserve/gpuserve.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SHOWN 3

/* Highest score first, by repeated selection of the max: fast enough for few labels. */
static void print_best(const gpuserve_model *model, float *scores, size_t n_labels)
{
    for (size_t shown = 0; shown < MAX_SHOWN && shown < n_labels; shown++) {
        size_t best = 0;

        for (size_t i = 1; i < n_labels; i++)
            best = scores[i] > scores[best] ? i : best;
        printf("  %.3f %s\n", (double)scores[best], gpuserve_model_label(model, best));
        scores[best] = -1e30f;
    }
}

int main(int argc, char **argv)
{
    gpuserve_model_options options = GPUSERVE_MODEL_OPTIONS_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_model *model = NULL;
    const char *const *texts = (const char *const *)argv + 3;
    const size_t n = argc > 3 ? (size_t)argc - 3 : 0;
    float *scores = NULL;
    size_t n_labels;
    int failed = 1;

    if (n == 0) {
        fprintf(stderr, "usage: classify MODEL HEAD TEXT...\n");
        return 2;
    }
    if (strcmp(argv[2], "-") != 0)
        options.head = argv[2];
    if (gpuserve_model_open(&model, NULL, argv[1], &options, &error) != GPUSERVE_OK)
        goto out;
    n_labels = gpuserve_model_label_count(model);
    scores = calloc(n * n_labels + 1, sizeof(*scores));
    if (!scores)
        goto out;
    if (gpuserve_classify(model, texts, n, scores, n * n_labels, NULL, &error) != GPUSERVE_OK)
        goto out;
    for (size_t i = 0; i < n; i++) {
        printf("%s\n", texts[i]);
        print_best(model, scores + i * n_labels, n_labels);
    }
    failed = 0;
out:
    if (failed)
        fprintf(stderr, "%s\n%s\n", error.message, error.hint);
    free(scores);
    gpuserve_model_close(&model);
    return failed;
}
