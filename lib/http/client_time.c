/*
 * client_time.c - how long a client may take for a header, a body, a reply, or nothing.
 */
#include "lib/http/client.h"

#include "lib/http/server.h"

static const uint64_t rate_grace_ns = 5000000000u; /* before a least rate is asked for */

static bool too_slow(uint64_t bytes, uint64_t elapsed_ns, uint32_t rate)
{
    return elapsed_ns > rate_grace_ns && bytes < elapsed_ns / 1000000 * rate / 1000;
}

static void check_body(struct gsv_client *client, uint64_t elapsed_ns)
{
    const gpuserve_http_options *options = &client->guard->server->options;

    if (client->in_begin < client->in_passed) { /* it is us who do not take it */
        client->since_ns = gsv_http_now();
        client->body_bytes = 0;
    } else if (elapsed_ns > options->body_timeout_ms * 1000000ull) {
        gsv_client_refuse(client, 408, "the body did not arrive in time");
    } else if (too_slow(client->body_bytes, elapsed_ns, options->min_body_rate)) {
        gsv_client_refuse(client, 408, "the body arrives too slowly");
    }
}

void gsv_client_check_time(struct gsv_client *client, uint64_t now_ns)
{
    const gpuserve_http_options *options = &client->guard->server->options;
    const uint64_t elapsed_ns = now_ns > client->since_ns ? now_ns - client->since_ns : 0;

    /* What libmicrohttpd did not take before is offered again, should its sign have been missed. */
    if (!client->linger_ns && !client->net.eof && client->in_begin < client->in_passed)
        gsv_client_resume_in(client);
    if (client->ended)
        return;
    if (!client->ready) { /* TLS is not spoken yet: there is no way to tell it why */
        if (elapsed_ns > (client->probation ? 1000u : options->header_timeout_ms) * 1000000ull)
            gsv_client_close(client);
    } else if (client->linger_ns) {
        if (now_ns > client->linger_ns)
            gsv_client_close(client);
    } else if (client->stalled_ns) {
        if (too_slow(client->taken_bytes, now_ns - client->stalled_ns, options->min_body_rate))
            gsv_client_close(client);
    } else if (client->framing.state == GSV_FRAMING_REFUSED || client->net.eof) {
        gsv_client_end_input(client); /* its last answers are on their way */
    } else if (client->waiting) {
        if (elapsed_ns > options->idle_timeout_ms * 1000000ull && atomic_load(&client->n_open) == 0)
            gsv_client_close(client);
    } else if (client->framing.state == GSV_FRAMING_HEADER) {
        if (elapsed_ns > (client->probation ? 1000u : options->header_timeout_ms) * 1000000ull)
            gsv_client_refuse(client, 408, "the header did not arrive in time");
    } else {
        check_body(client, elapsed_ns);
    }
}
