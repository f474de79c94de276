/*
 * test_identity.c - which requests the queue treats as one client.
 */
#include "lib/http/protocol/access.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <netinet/in.h>
#include <string.h>

static const uint64_t seed = 7;

static struct sockaddr_storage address_of(const char *text)
{
    struct sockaddr_storage address = { 0 };

    address.ss_family = strchr(text, ':') ? AF_INET6 : strchr(text, '.') ? AF_INET : AF_UNIX;
    if (address.ss_family == AF_INET6)
        inet_pton(AF_INET6, text, &((struct sockaddr_in6 *)&address)->sin6_addr);
    else if (address.ss_family == AF_INET)
        inet_pton(AF_INET, text, &((struct sockaddr_in *)&address)->sin_addr);
    return address;
}

static uint64_t of(const char *key, const char *text)
{
    const struct sockaddr_storage address = address_of(text);

    return gsv_identity_of(key, &address, seed);
}

Test(identity, a_key_goes_before_the_address)
{
    cr_expect_eq(of("2c26b46b", "10.0.0.1"), of("2c26b46b", "2001:db8::1"));
    cr_expect_neq(of("2c26b46b", "10.0.0.1"), of("fcde2b2e", "10.0.0.1"));
    cr_expect_neq(of("2c26b46b", "10.0.0.1"), of("", "10.0.0.1"));
}

Test(identity, an_address_is_a_client_and_an_ipv6_network_of_64_bits_is_one)
{
    cr_expect_neq(of("", "10.0.0.1"), of("", "10.0.0.2"));
    cr_expect_eq(of("", "10.0.0.1"), of("", "::ffff:10.0.0.1"));
    cr_expect_neq(of("", "::ffff:10.0.0.1"), of("", "::ffff:10.0.0.2"));
    cr_expect_eq(of("", "2001:db8:0:1::1"), of("", "2001:db8:0:1:ffff::2"));
    cr_expect_neq(of("", "2001:db8:0:1::1"), of("", "2001:db8:0:2::1"));
    cr_expect_eq(of("", "unix"), of("", "unix"));
}

Test(identity, the_seed_is_part_of_it_and_the_port_is_not)
{
    struct sockaddr_storage one = address_of("10.0.0.1"), other = one;

    ((struct sockaddr_in *)&other)->sin_port = htons(4711);
    cr_expect_eq(gsv_identity_of("", &one, 1), gsv_identity_of("", &other, 1));
    cr_expect_neq(gsv_identity_of("", &one, 1), gsv_identity_of("", &one, 2));
}
