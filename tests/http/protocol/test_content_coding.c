/*
 * test_content_coding.c - Accept-Encoding (RFC 9110, 12.5.3).
 */
#include "lib/http/protocol/exchange.h"

#include <criterion/criterion.h>

Test(content_coding, accepted)
{
    static const struct {
        const char *field;
        unsigned quality;
    } cases[] = {
        { NULL, 0 },
        { "", 0 },
        { "gzip", 1000 },
        { "gzip;q=0.5", 500 },
        { "gzip; q=0.25", 250 },
        { "gzip;Q=0.123", 123 },
        { "gzip;q=0.1239", 123 },
        { "gzip;q=1", 1000 },
        { "gzip;q=0", 0 },
        { "gzip;q=", 0 },
        { "gzip;", 1000 },
        { "br,gzip", 1000 },
        { "br , gzip;q=0.7 , *;q=0.1", 700 },
        { "br, *;q=0.3", 300 },
        { "*", 1000 },
        { "*;q=0", 0 },
        { "gzip;q=0,*", 0 },
        { "*,gzip;q=0", 0 },
        { "gzip2", 0 },
        { "xgzip", 0 },
        { ",,gzip", 1000 },
        { ",", 0 },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        cr_expect_eq(gsv_accepted(cases[i].field, "gzip"), cases[i].quality, "%s",
                     cases[i].field ? cases[i].field : "NULL");
}
