/*
 * test_build_dialects.c - the endpoints of a build without all dialects but Ollama (-Ddialects):
 * the route table and what else depends on them are compiled again for it.
 */
#include "lib/http/protocol/route.h"

#include <criterion/criterion.h>
#include <gpuserve/http.h>
#include <string.h>

enum { MAX_ENDPOINTS = 256 };

static bool has(const char *names, const char *path)
{
    static gpuserve_http_endpoint endpoints[MAX_ENDPOINTS];
    const size_t n = gpuserve_http_endpoints(names, endpoints, MAX_ENDPOINTS);

    cr_assert_leq(n, MAX_ENDPOINTS);
    for (size_t i = 0; i < n; i++) {
        if (strcmp(endpoints[i].path, path) == 0)
            return true;
    }
    return false;
}

Test(build_dialects, only_the_chosen_ones_have_endpoints)
{
    static const char *const there[] = { "/health", "/metrics", "/v1/embeddings", "/v1/models",
                                         "/embed",  "/predict", "/v1/rerank",     "/api/embed" };
    static const char *const left_out[] = {
        "/v1/embed",       "/v2/models/{model}/infer",
        "/v2/health/live", "/v1/models/{model}:predict",
        "/pooling",        "/pipeline/feature-extraction/{model}",
        "/vertex",         "/v2/rerank"
    };

    for (size_t i = 0; i < sizeof(there) / sizeof(there[0]); i++)
        cr_expect(has(NULL, there[i]), "%s", there[i]);
    for (size_t i = 0; i < sizeof(left_out) / sizeof(left_out[0]); i++)
        cr_expect(!has(NULL, left_out[i]), "%s", left_out[i]);
}

Test(build_dialects, names_are_those_of_the_build)
{
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    uint32_t selected = 0;

    cr_expect_eq(gsv_route_dialects(&selected, "ollama, tei", &error), GPUSERVE_OK);
    cr_expect(has("ollama", "/api/embed") && !has("ollama", "/embed"));
    cr_expect_eq(gsv_route_dialects(&selected, "ollama,cohere", &error), GPUSERVE_E_INVALID);
    cr_expect_str_eq(error.message, "`dialects`: \"cohere\" is not one of openai, azure, tei, "
                                    "sagemaker, jina, ollama, llama.cpp");
}
