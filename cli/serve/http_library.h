/*
 * http_library.h - libgpuserve-http, loaded when `serve` runs.
 *
 * The program is not linked with it: it brings libmicrohttpd and OpenSSL, and their some 20
 * libraries, which no other command needs.
 */
#ifndef CLI_SERVE_HTTP_LIBRARY_H
#define CLI_SERVE_HTTP_LIBRARY_H

#include <gpuserve/http.h>

/* The functions of gpuserve/http.h, in its order. */
struct cli_http_library {
    __typeof__(&gpuserve_http_start) start;
    __typeof__(&gpuserve_http_check) check;
    __typeof__(&gpuserve_http_address) address;
    __typeof__(&gpuserve_http_alive) alive;
    __typeof__(&gpuserve_http_reload) reload;
    __typeof__(&gpuserve_http_drain) drain;
    __typeof__(&gpuserve_http_stop) stop;
};

/* Loads the library, once. NULL after a message. Call from one thread. */
const struct cli_http_library *cli_http_library(void);

#endif
