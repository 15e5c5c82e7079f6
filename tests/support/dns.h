/*
 * A DNS server on the test's own loop: it says of every name what the test
 * wants. UDP on 127.0.0.1.
 */
#ifndef TESTS_SUPPORT_DNS_H
#define TESTS_SUPPORT_DNS_H

#include "common/io/loop.h"

enum dns_word {
    DNS_ADDRESSES,
    DNS_NO_NAME, /* NXDOMAIN */
    DNS_FAILS,   /* SERVFAIL */
    DNS_SILENT,
    DNS_GARBAGE, /* the answer's header, then noise */
};

struct dns {
    struct bt_watch *watch;
    int fd;
    char servers[32]; /* its own address */
    enum dns_word word;
    const char *v4[4]; /* "10.0.0.1"; up to the first NULL */
    const char *v6[4];
    unsigned ttl_s;
    unsigned asked; /* questions so far */
};

/* Fails the test where it cannot. */
void dns_open(struct dns *dns, struct bt_loop *loop);
void dns_close(struct dns *dns);

#endif
