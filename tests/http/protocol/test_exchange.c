/*
 * test_exchange.c - array limits of an exchange that no real request reaches.
 */
#include "lib/http/protocol/exchange.h"

#include <criterion/criterion.h>

/* The memory after the last element belongs to another field. */
Test(exchange, more_headers_than_there_is_room_for)
{
    static struct gsv_exchange exchange;

    gsv_add_header(&exchange, "absent", NULL);
    cr_expect_eq(exchange.n_headers, 0);
    for (int i = 0; i < GSV_MAX_HEADERS + 1; i++)
        gsv_add_header(&exchange, "name", "value");
    cr_expect_eq(exchange.n_headers, GSV_MAX_HEADERS);
}
