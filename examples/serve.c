/*
 * serve.c - a program that embeds the HTTP server: same process, same model.
 *
 *   serve MODEL [PORT]     until end of standard input
 *
 * The server borrows the model, and the program may continue to use it. Requests of both are
 * batched together.
 */
#include <gpuserve/http.h>

#include <stdio.h>
#include <stdlib.h>

static int complain(const gpuserve_error *error)
{
    fprintf(stderr, "%s\n%s\n", error->message, error->hint);
    return 1;
}

static int serve(gpuserve_model *model, uint32_t port)
{
    gpuserve_http_model served = GPUSERVE_HTTP_MODEL_INIT;
    gpuserve_http_options options = GPUSERVE_HTTP_OPTIONS_INIT;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    gpuserve_http *server = NULL;

    served.name = "mine";
    served.model = model;
    options.models = &served;
    options.n_models = 1;
    options.port = port; /* 0: any free port */
    if (gpuserve_http_start(&server, NULL, &options, &error) != GPUSERVE_OK)
        return complain(&error);
    printf("curl %s/v1/embeddings -d '{\"input\":\"a dog\"}'\n", gpuserve_http_address(server));
    fflush(stdout);
    while (getchar() != EOF)
        continue;
    /* Answers the accepted requests, for at most ten seconds. */
    if (gpuserve_http_drain(server, 10000) != GPUSERVE_OK)
        fprintf(stderr, "some requests are cancelled\n");
    gpuserve_http_stop(&server);
    return 0;
}

int main(int argc, char **argv)
{
    gpuserve_context *context = NULL;
    gpuserve_model *model = NULL;
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    int result;

    if (argc < 2) {
        fprintf(stderr, "usage: serve MODEL [PORT]\n");
        return 2;
    }
    if (gpuserve_context_create(&context, NULL, &error) != GPUSERVE_OK)
        return complain(&error);
    if (gpuserve_model_open(&model, context, argv[1], NULL, &error) != GPUSERVE_OK) {
        gpuserve_context_unref(&context);
        return complain(&error);
    }
    result = serve(model, argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 0);
    gpuserve_model_close(&model);
    gpuserve_context_unref(&context);
    return result;
}
