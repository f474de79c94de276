/*
 * embed.c - the smallest program: embeds two sentences and prints their cosine similarity.
 *
 *   embed MODEL        MODEL is a directory, or a name in the Hugging Face cache
 *
 *   cc embed.c $(pkg-config --cflags --libs gpuserve) -o embed
 */
#include <gpuserve/gpuserve.h>

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    static const char *const texts[] = { "A man is eating food.",
                                         "A man is eating a piece of bread." };
    const char *name = argc > 1 ? argv[1] : "sentence-transformers/all-MiniLM-L6-v2";
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_model *model = NULL;
    float *vectors = NULL;
    size_t dim;
    int failed = 1;

    if (gpuserve_model_open(&model, NULL, name, NULL, &error) != GPUSERVE_OK)
        goto out;
    dim = gpuserve_model_dim(model);
    vectors = calloc(2 * dim, sizeof(*vectors));
    if (!vectors)
        goto out;
    if (gpuserve_embed(model, texts, 2, vectors, 2 * dim, NULL, &error) != GPUSERVE_OK)
        goto out;
    printf("similarity %.3f\n", (double)gpuserve_dot(vectors, vectors + dim, dim));
    failed = 0;
out:
    if (failed)
        fprintf(stderr, "%s\n%s\n", error.message, error.hint);
    free(vectors);
    gpuserve_model_close(&model);
    return failed;
}
