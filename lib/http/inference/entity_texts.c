/*
 * entity_texts.c - reads the fields that both kinds of entity requests have.
 */
#include "lib/http/inference/entity_texts.h"

#include "lib/http/inference/request_options.h"

bool gsv_entity_texts_read(struct gsv_exchange *exchange, const char *const *known,
                           struct gsv_entity_inputs *texts, gpuserve_job *job,
                           struct gsv_inputs *inputs)
{
    const json_t *parameters = json_object_get(exchange->json, "parameters");
    const json_t *given = json_object_get(exchange->json, "inputs");

    if (!gsv_option_known(exchange, parameters, "parameters", known) ||
        !gsv_option_truncation(exchange, parameters, job) ||
        !gsv_inputs_read(exchange, given, "inputs", GSV_INPUTS_NO_IDS, NULL, inputs))
        return false;
    *texts = (struct gsv_entity_inputs){ inputs->texts, inputs->sizes, json_is_array(given) };
    return true;
}

bool gsv_refuse_swapped(struct gsv_exchange *exchange)
{
    return gsv_refuse(exchange, GSV_P_UNAVAILABLE, NULL,
                      "the model was swapped for another one during the request");
}
