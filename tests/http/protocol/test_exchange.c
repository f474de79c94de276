/*
 * test_exchange.c - array limits of an exchange that no real request reaches.
 */
#include "lib/http/protocol/exchange.h"

#include <criterion/criterion.h>
#include <stdio.h>

/* The memory after the last element belongs to another field. */
Test(exchange, more_headers_than_there_is_room_for)
{
    static struct gsv_exchange exchange;
    static char values[GSV_MAX_HEADERS + 1][8];

    gsv_add_header(&exchange, "absent", NULL);
    cr_expect_eq(exchange.n_headers, 0);
    for (int i = 0; i < GSV_MAX_HEADERS + 1; i++) {
        snprintf(values[i], sizeof(values[i]), "%d", i);
        gsv_add_header(&exchange, "name", values[i]);
    }
    cr_expect_eq(exchange.n_headers, GSV_MAX_HEADERS);
}

Test(exchange, an_equal_header_is_added_once)
{
    static struct gsv_exchange exchange;

    gsv_add_header(&exchange, "Vary", "Origin");
    gsv_add_header(&exchange, "Vary", "Accept-Encoding");
    gsv_add_header(&exchange, "Vary", "Origin");
    cr_expect_eq(exchange.n_headers, 2);
}
