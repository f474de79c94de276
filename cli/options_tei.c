/*
 * options_tei.c - what text-embeddings-inference calls options of `serve`, so that its command
 * lines and its containers' variables go on working.
 *
 * What has no counterpart here and changes no answer is passed over with a remark; what would
 * change answers, such as its --default-prompt, is an error like any option that is not known.
 */
#include "options.h"

#include <string.h>

const struct cli_tei_name cli_tei_names[] = {
    { "model-id", "MODEL_ID", "model", true },
    { "port", "PORT", "port", true },
    { "hostname", NULL, "host", true }, /* shells and containers set HOSTNAME to something else */
    { "api-key", "API_KEY", "api-key", true },
    { "dtype", "DTYPE", "dtype", true },
    { "pooling", "POOLING", "pooling", true },
    { "max-batch-tokens", "MAX_BATCH_TOKENS", "batch-tokens", true },
    { "max-concurrent-requests", "MAX_CONCURRENT_REQUESTS", "max-connections", true },
    { "max-client-batch-size", "MAX_CLIENT_BATCH_SIZE", "max-client-batch-size", true },
    { "payload-limit", "PAYLOAD_LIMIT", "max-body-bytes", true },
    { "auto-truncate", "AUTO_TRUNCATE", "auto-truncate", false },
    { "cors-allow-origin", "CORS_ALLOW_ORIGIN", "cors-origin", true },
    { "served-model-name", "SERVED_MODEL_NAME", "alias", true },
    { "huggingface-hub-cache", "HUGGINGFACE_HUB_CACHE", "cache-dir", true },
    /* without a counterpart */
    { "tokenization-workers", NULL, NULL, true },
    { "max-batch-requests", NULL, NULL, true },
    { "json-output", NULL, NULL, false },
    { "disable-spans", NULL, NULL, false },
    { "otlp-endpoint", NULL, NULL, true },
    { "otlp-service-name", NULL, NULL, true },
    { "prometheus-port", NULL, NULL, true },
    { "uds-path", NULL, NULL, true },
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
