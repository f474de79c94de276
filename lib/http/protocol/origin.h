/*
 * origin.h - cross-site protection of a server without API keys.
 *
 * Host check: against DNS rebinding, where a foreign name resolves to this server. It applies to a
 * server on the loopback address, and to any other one with `allowed_hosts`.
 * Origin check: against requests that a page of another origin sends. It applies to every server
 * without keys. Routes of health and of the page's static files are exempt from both.
 */
#ifndef GSV_HTTP_ORIGIN_H
#define GSV_HTTP_ORIGIN_H

#include "lib/http/protocol/exchange.h"

/* Validates and copies `allowed_hosts`. */
gpuserve_status gsv_hosts_open(struct gpuserve_http *server, gpuserve_error *error);
void gsv_hosts_close(struct gpuserve_http *server);

/* False after gsv_refuse: the request comes from another site or names another host. */
bool gsv_origin_admit(struct gsv_exchange *exchange);

/* cors.c: true if pages of this origin may send requests. `anyone`: the list contains "*". */
bool gsv_cors_allows(const struct gpuserve_http *server, const char *origin, bool *anyone);

#endif
