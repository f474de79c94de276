/*
 * fuzz_http_labels.c - arbitrary requests for entities of given labels, up to the model.
 *
 * There is no model: every request is refused, with a reply that is JSON.
 */
#include "fuzz/fuzz.h"
#include "lib/http/protocol/exchange.h"

#include "lib/base/json_tree.h"
#include "lib/http/inference/tasks.h"
#include "lib/http/models/model_registry.h"
#include "lib/http/net/server_state.h"
#include "lib/http/protocol/request.h"

#include <stdlib.h>

enum { MAX = 64 };

static void check_reply(const struct gsv_exchange *exchange)
{
    const struct gsv_json_limits limits = { 1000, 8 };
    gpuserve_error error = GPUSERVE_ERROR_INIT;
    json_t *reply;

    if (exchange->status < 400 || exchange->work.waiting ||
        gsv_json_parse(&reply, exchange->reply.bytes, exchange->reply.size, "reply", limits,
                       &error) != GPUSERVE_OK)
        abort();
    json_decref(reply);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gpuserve_http server = { .options = { .max_client_batch = MAX } };
    struct gsv_exchange *exchange = gsv_exchange_create(&server, NULL, "/");
    struct gsv_served *served = calloc(1, sizeof(*served));

    if (!exchange || !served)
        abort();
    served->n_users = 1;
    served->name = "fuzz";
    exchange->served = served;
    gsv_buffer_add(&exchange->body, data, size);
    if (gsv_request_json(exchange))
        gsv_label_entities(exchange);
    check_reply(exchange);
    gsv_exchange_destroy(exchange);
    return 0;
}
