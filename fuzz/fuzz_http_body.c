/*
 * fuzz_http_body.c - arbitrary request bodies: JSON, all forms of inputs, and tensors as binary
 * data.
 *
 * The low bit of byte 0 selects the reader. The other bits select the allowed forms, or byte 0 is
 * the length of the JSON part.
 */
#include "fuzz/fuzz.h"
#include "lib/http/protocol/exchange.h"

#include "lib/http/dialects/kserve.h"
#include "lib/http/inference/inputs.h"
#include "lib/http/models/model_registry.h"
#include "lib/http/net/server_state.h"
#include "lib/http/protocol/request.h"

#include <stdlib.h>
#include <string.h>

enum { MAX = 64, VOCABULARY = 1000 };

/* Accepted inputs are complete and in range. */
static void check(const struct gsv_inputs *inputs)
{
    if (inputs->n == 0 || inputs->n > MAX || (!inputs->texts && !inputs->ids))
        abort();
    for (size_t i = 0; i < inputs->n; i++) {
        if (inputs->texts && (!inputs->texts[i] || (inputs->pairs && !inputs->pairs[i])))
            abort();
        for (size_t j = inputs->texts ? 1 : inputs->offsets[i];
             !inputs->texts && j < inputs->offsets[i + 1]; j++) {
            if (inputs->ids[j] < 0 || inputs->ids[j] >= VOCABULARY)
                abort();
        }
    }
}

static bool has_text_and_ids(const json_t *list)
{
    size_t n_texts = 0, n_lists = 0, i;
    json_t *value;

    json_array_foreach((json_t *)list, i, value)
    {
        n_texts += json_is_string(value);
        n_lists += json_is_array(value);
    }
    return n_texts > 0 && n_lists > 0; /* this mix needs a tokenizer */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gpuserve_http server = { .options = { .max_client_batch = MAX } };
    struct gsv_served *served;
    struct gsv_exchange *exchange;
    struct gsv_inputs inputs;
    bool good;

    if (size < 1)
        return 0;
    exchange = gsv_exchange_create(&server, NULL, "/");
    served = calloc(1, sizeof(*served));
    if (!exchange || !served)
        abort();
    served->n_users = 1;
    served->name = "fuzz";
    served->facts = json_pack("{s:i}", "vocab_size", VOCABULARY);
    exchange->served = served;
    gsv_buffer_add(&exchange->body, data + 1, size - 1);
    if (data[0] & 1) {
        const size_t head = exchange->body.size < data[0] ? exchange->body.size : data[0];

        good = gsv_request_parse(exchange, exchange->body.bytes, head) &&
               gsv_kserve_inputs(exchange, json_object_get(exchange->json, "inputs"),
                                 exchange->body.bytes + head, exchange->body.size - head, &inputs);
    } else {
        good = gsv_request_json(exchange) &&
               !has_text_and_ids(json_object_get(exchange->json, "inputs")) &&
               gsv_inputs_read(exchange, json_object_get(exchange->json, "inputs"), "inputs",
                               data[0] >> 1 & 7, NULL, &inputs);
    }
    if (good)
        check(&inputs);
    gsv_exchange_destroy(exchange);
    return 0;
}
