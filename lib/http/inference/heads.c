/*
 * heads.c - the field `heads` of a request: classifier heads of the model, by name.
 *
 * Names and labels are those of the model info that the server read when it loaded the model. A job
 * has the names as one string, "a,b"; its rows have the scores of each head in this order.
 */
#include "lib/http/inference/tasks.h"

#include "lib/http/models/model_registry.h"
#include "lib/http/protocol/request.h"

#include <string.h>

static const json_t *heads_of(const struct gsv_exchange *exchange)
{
    return json_object_get(exchange->served->facts, "classifier_heads");
}

/* The head of a name of `size` bytes, in the model info; NULL: there is none. */
static const json_t *find_head(const struct gsv_exchange *exchange, const char *name, size_t size)
{
    json_t *head;
    size_t i;

    json_array_foreach(heads_of(exchange), i, head)
    {
        const json_t *known = json_object_get(head, "name");

        if (json_string_length(known) == size && memcmp(json_string_value(known), name, size) == 0)
            return head;
    }
    return NULL;
}

static bool refuse_head(struct gsv_exchange *exchange, size_t i, const char *name)
{
    char names[256] = "";
    json_t *head;
    size_t k;

    json_array_foreach(heads_of(exchange), k, head)
    {
        const size_t used = strlen(names);

        snprintf(names + used, sizeof(names) - used, "%s%s", k > 0 ? ", " : "",
                 json_string_value(json_object_get(head, "name")));
    }
    return gsv_refuse(exchange, GSV_P_INVALID, "heads",
                      "`heads`: item %zu is \"%.64s\", which model \"%s\" does not have: its heads "
                      "are %s",
                      i, name, exchange->served->name, *names ? names : "none");
}

/* The head at place `i` of a list of names; NULL: behind the last. */
static const json_t *head_at(const struct gsv_exchange *exchange, const char *names, size_t i)
{
    while (i > 0 && names) {
        names = strchr(names, ',');
        names = names ? names + 1 : NULL;
        i--;
    }
    return names ? find_head(exchange, names, strcspn(names, ",")) : NULL;
}

bool gsv_heads_read(struct gsv_exchange *exchange, gpuserve_job *job)
{
    const json_t *list = gsv_member_given(exchange->json, "heads");
    const char *names = NULL;
    json_t *item;
    size_t i;

    if (!list)
        return true;
    if (!json_is_array(list) || json_array_size(list) == 0)
        return gsv_refuse(exchange, GSV_P_INVALID, "heads",
                          "`heads` is not a list of one or more names of heads");
    json_array_foreach(list, i, item)
    {
        const char *name = json_string_value(item);

        if (!name)
            return gsv_refuse(exchange, GSV_P_INVALID, "heads", "`heads`: item %zu is not a string",
                              i);
        if (!find_head(exchange, name, json_string_length(item)))
            return refuse_head(exchange, i, name);
        for (size_t k = 0; k < i; k++)
            if (json_equal(json_array_get(list, k), item))
                return gsv_refuse(exchange, GSV_P_INVALID, "heads",
                                  "`heads`: item %zu is \"%s\" again", i, name);
        names = names ? gsv_exchange_format(exchange, "%s,%s", names, name) : name;
        if (!names)
            return false;
    }
    job->heads = names;
    return true;
}

size_t gsv_job_labels(const struct gsv_exchange *exchange, const gpuserve_job *job)
{
    const json_t *head;
    size_t n = 0;

    for (size_t i = 0; (head = head_at(exchange, job->heads, i)); i++)
        n += json_array_size(json_object_get(head, "labels"));
    return job->heads ? n : exchange->served->n_labels;
}

void gsv_put_heads(struct gsv_exchange *exchange, const float *row,
                   void (*put)(struct gsv_exchange *exchange, const float *row,
                               const json_t *labels))
{
    struct gsv_buffer *to = &exchange->reply;
    const json_t *head;

    gsv_buffer_text(to, "\"heads\":{");
    for (size_t i = 0; (head = head_at(exchange, exchange->work.job.heads, i)); i++) {
        const json_t *labels = json_object_get(head, "labels");

        gsv_buffer_text(to, i > 0 ? "," : "");
        gsv_put_text(to, json_string_value(json_object_get(head, "name")));
        gsv_buffer_text(to, ":");
        put(exchange, row, labels);
        row += json_array_size(labels);
    }
    gsv_buffer_text(to, "}");
}
