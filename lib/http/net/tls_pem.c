/*
 * tls_pem.c - PEM helpers over OpenSSL's error queue, which belongs to the calling thread.
 *
 * The functions that report a reason or the end of a file empty the queue, so that old errors do
 * not show up in later calls.
 */
#include "lib/http/net/tls_pem.h"

#include <openssl/err.h>
#include <openssl/pem.h>

const char *gsv_tls_reason(void)
{
    const unsigned long code = ERR_peek_error();
    const char *text = code ? ERR_reason_error_string(code) : NULL;

    ERR_clear_error();
    return text ? text : "unknown error";
}

int gsv_pem_refuse_passphrase(char *to, int size, int writing, void *asked)
{
    (void)to;
    (void)size;
    (void)writing;
    *(bool *)asked = true;
    return -1;
}

bool gsv_pem_is_at_end(void)
{
    const unsigned long code = ERR_peek_last_error();
    const bool at_end =
        ERR_GET_LIB(code) == ERR_LIB_PEM && ERR_GET_REASON(code) == PEM_R_NO_START_LINE;

    if (at_end)
        ERR_clear_error();
    return at_end;
}
