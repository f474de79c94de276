/*
 * health.h - readiness of the server, as every dialect reports it.
 */
#ifndef GSV_HTTP_HEALTH_H
#define GSV_HTTP_HEALTH_H

#include <gpuserve/http.h>

#include <stdbool.h>

/* True if the server is not draining, the default model is loaded and can compute, and no other
 * model has lost its device for good. False: `why` holds the reason. */
bool gsv_http_ready(struct gpuserve_http *server, gpuserve_error *why);

#endif
