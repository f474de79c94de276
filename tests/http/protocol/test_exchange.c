/*
 * test_exchange.c - the memory of an exchange, where no request reaches its bounds.
 */
#include "lib/http/protocol/exchange.h"

#include <criterion/criterion.h>

/* The place behind the last one belongs to another member. */
Test(exchange, more_headers_than_there_is_room_for)
{
    static struct gsv_exchange exchange;

    gsv_add_header(&exchange, "absent", NULL);
    cr_expect_eq(exchange.n_headers, 0);
    for (int i = 0; i < GSV_MAX_HEADERS + 1; i++)
        gsv_add_header(&exchange, "name", "value");
    cr_expect_eq(exchange.n_headers, GSV_MAX_HEADERS);
}
