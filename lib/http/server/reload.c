/*
 * reload.c - reloads keys, certificate, models and the access log while the server runs.
 *
 * Each part is replaced as a whole, after its new version was read, opened and tried. A part that
 * fails stays unchanged and does not stop the others. A model is loaded while the old one serves. A
 * request of several jobs, such as a rerank, holds its first model to the end, so no reply mixes
 * two models.
 */
#include "lib/base/error.h"
#include "lib/http/models/model_registry.h"
#include "lib/http/net/server_state.h"
#include "lib/http/protocol/access.h"
#include "lib/http/protocol/access_log.h"
#include "lib/http/protocol/exchange.h"

/* The caller gets the first failure; the log has all of them. */
static void note(struct gpuserve_http *server, gpuserve_status *st, gpuserve_error *first,
                 gpuserve_status part, const gpuserve_error *error, const char *name)
{
    if (part == GPUSERVE_OK)
        return;
    gsv_http_log(server, GPUSERVE_LOG_ERROR, "reload: the server keeps %s as it was: %s", name,
                 error->message);
    if (*st != GPUSERVE_OK)
        return;
    *st = part;
    gsv_error_copy(first, error);
}

static gpuserve_status reload_model(struct gpuserve_http *server, struct gsv_entry *entry,
                                    gpuserve_error *error)
{
    struct gsv_served *before = gsv_models_hold(server->models, entry);
    gpuserve_status st = GPUSERVE_OK;

    if (!before) /* unloaded by a client */
        return GPUSERVE_OK;
    if (before->owned)
        st = gsv_models_load(server->models, entry, true, error);
    gsv_served_release(before);
    return st;
}

GPUSERVE_API gpuserve_status gpuserve_http_reload(gpuserve_http *server, gpuserve_error *error)
{
    gpuserve_error one = GPUSERVE_ERROR_INIT;
    gpuserve_status st = GPUSERVE_OK;

    if (!server)
        return gsv_fail(error, GPUSERVE_E_INVALID, "`server` is NULL");
    pthread_mutex_lock(&server->reloading);
    note(server, &st, error, gsv_keys_reload(server->keys, &one), &one, "the key file");
    note(server, &st, error, gsv_tls_reload(&server->tls, &one), &one, "the certificate");
    note(server, &st, error, gsv_access_log_reopen(server->access_log, &one), &one,
         "the access log");
    for (size_t i = 0; i < server->models->n; i++) {
        struct gsv_entry *entry = &server->models->entries[i];

        note(server, &st, error, reload_model(server, entry, &one), &one, entry->name);
    }
    atomic_fetch_add(st == GPUSERVE_OK ? &server->n_reloads : &server->n_failed_reloads, 1ull);
    pthread_mutex_unlock(&server->reloading);
    return st;
}
