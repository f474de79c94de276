/* first.c - a program that embeds two texts with random weights, so that it needs no model files.
 */
#include <gpuserve/gpuserve.h>

#include <stdio.h>

int main(void)
{
    const char *texts[] = { "a text", "another" };
    float vectors[2][128];
    gpuserve_model *model = NULL;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    int status = 1;

    if (gpuserve_model_open(&model, NULL, "random:bert-tiny,seed=1", NULL, &error) != GPUSERVE_OK)
        fprintf(stderr, "%s\n%s\n", error.message, error.hint);
    else if (gpuserve_model_dim(model) != 128)
        fprintf(stderr, "%u dimensions\n", (unsigned)gpuserve_model_dim(model));
    else if (gpuserve_embed(model, texts, 2, &vectors[0][0], 2 * 128, NULL, &error) != GPUSERVE_OK)
        fprintf(stderr, "%s\n%s\n", error.message, error.hint);
    else
        status = printf("%s: similarity %.3f\n", gpuserve_version(),
                        (double)gpuserve_dot(vectors[0], vectors[1], 128)) < 0;
    gpuserve_model_close(&model);
    return status;
}
