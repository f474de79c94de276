/*
 * options_tei.c - options of the router of text-embeddings-inference, mapped to those of `serve`.
 * Its command lines and environment variables work unchanged.
 *
 * An option without a counterpart that does not change results is ignored with a warning, which
 * names the equivalent behaviour. An option that would change results is an error, which names the
 * alternative.
 */
#include "cli/options/options.h"
#include "cli/cli.h"

#include <string.h>

#define SAME(flag, variable, option)                            \
    {                                                           \
        flag, variable, option, NULL, TEI_SAME, TEI_VALUE, NULL \
    }
#define PASSED(flag, variable, value, remark)                 \
    {                                                         \
        flag, variable, NULL, remark, TEI_PASSED, value, NULL \
    }
#define REFUSED(flag, variable, remark)                            \
    {                                                              \
        flag, variable, NULL, remark, TEI_REFUSED, TEI_VALUE, NULL \
    }

const struct cli_tei_name cli_tei_names[] = {
    SAME("model-id", "MODEL_ID", "model"),
    SAME("revision", "REVISION", "revision"),
    SAME("dtype", "DTYPE", "dtype"),
    SAME("served-model-name", "SERVED_MODEL_NAME", "alias"),
    SAME("pooling", "POOLING", "pooling"),
    SAME("max-concurrent-requests", "MAX_CONCURRENT_REQUESTS", "max-connections"),
    SAME("max-batch-tokens", "MAX_BATCH_TOKENS", "batch-tokens"),
    SAME("max-client-batch-size", "MAX_CLIENT_BATCH_SIZE", "max-client-batch-size"),
    { "auto-truncate", "AUTO_TRUNCATE", "auto-truncate", NULL, TEI_SAME, TEI_BOOL, NULL },
    SAME("default-prompt-name", "DEFAULT_PROMPT_NAME", "default-prompt-name"),
    SAME("default-prompt", "DEFAULT_PROMPT", "default-prompt"),
    SAME("hostname", "HOSTNAME", "host"),
    SAME("port", "PORT", "port"),
    /* Set by Vertex AI in its containers, read by text-embeddings-inference for Google. */
    SAME("port", "AIP_HTTP_PORT", "port"),
    SAME("predict-route", "AIP_PREDICT_ROUTE", "predict-route"),
    SAME("health-route", "AIP_HEALTH_ROUTE", "health-route"),
    SAME("huggingface-hub-cache", "HUGGINGFACE_HUB_CACHE", "cache-dir"),
    SAME("payload-limit", "PAYLOAD_LIMIT", "max-body-bytes"),
    SAME("api-key", "API_KEY", "api-key"),
    SAME("cors-allow-origin", "CORS_ALLOW_ORIGIN", "cors-origin"),
    PASSED("tokenization-workers", "TOKENIZATION_WORKERS", TEI_VALUE,
           "the threads of --threads and --http-threads tokenize texts"),
    PASSED("max-batch-requests", "MAX_BATCH_REQUESTS", TEI_VALUE,
           "--batch-tokens is the only limit of a batch"),
    PASSED("hf-token", "HF_TOKEN", TEI_VALUE,
           "the server downloads no models; `gpuserve pull` does, with HF_TOKEN"),
    PASSED("hf-api-token", "HF_API_TOKEN", TEI_VALUE,
           "the server downloads no models; `gpuserve pull` does, with HF_TOKEN"),
    PASSED("uds-path", "UDS_PATH", TEI_VALUE,
           "the server computes models in its own process, without a socket"),
    { "json-output", "JSON_OUTPUT", "log-format", NULL, TEI_SAME, TEI_FLAG, "json" },
    PASSED("disable-spans", "DISABLE_SPANS", TEI_FLAG, "the server's log has no spans"),
    SAME("otlp-endpoint", "OTLP_ENDPOINT", "otlp-endpoint"),
    SAME("otlp-service-name", "OTLP_SERVICE_NAME", "otlp-service-name"),
    PASSED("prometheus-port", "PROMETHEUS_PORT", TEI_VALUE,
           "the server answers /metrics on its own port (--open-metrics: without a key)"),
    REFUSED("dense-path", "DENSE_PATH",
            "the server uses the Dense modules in the model's modules.json: set the folder in that "
            "file"),
};

const size_t cli_n_tei_names = sizeof(cli_tei_names) / sizeof(cli_tei_names[0]);

const struct cli_tei_name *cli_tei_flag(const struct cli_command *command, const char *name,
                                        size_t size)
{
    if (strcmp(command->name, "serve") != 0)
        return NULL;
    for (size_t i = 0; i < cli_n_tei_names; i++) {
        if (strlen(cli_tei_names[i].flag) == size && memcmp(cli_tei_names[i].flag, name, size) == 0)
            return &cli_tei_names[i];
    }
    return NULL;
}

int cli_tei_tell(const struct cli_tei_name *tei, const char *given)
{
    if (tei->kind == TEI_REFUSED) {
        cli_usage("%s of text-embeddings-inference is not supported", given);
        cli_hint("%s", tei->remark);
        return CLI_USAGE;
    }
    cli_warn("%s of text-embeddings-inference has no effect: %s", given, tei->remark);
    return CLI_OK;
}
