/*
 * A DNS server on the test's own loop: it says of every name what the test
 * wants. UDP on 127.0.0.1, and TCP on the same port.
 */
#ifndef TESTS_SUPPORT_DNS_H
#define TESTS_SUPPORT_DNS_H

#include "common/base/buf.h"
#include "common/io/loop.h"
#include "tests/support/rng.h"

enum dns_word {
    DNS_ADDRESSES,
    DNS_NO_NAME, /* NXDOMAIN */
    DNS_FAILS,   /* SERVFAIL */
    DNS_SILENT,
    DNS_GARBAGE, /* the answer's header, then pointers to nowhere */
    DNS_NOISE,   /* the answer's header, then any bytes */
    DNS_BY_TCP,  /* cut off by UDP; whole by TCP */
};

struct dns {
    struct bt_loop *loop;
    struct bt_watch *watch, *listening, *connected;
    int fd, listener;
    int connection; /* the one by TCP; -1: none */
    struct bt_buf heard;
    struct rng rng;
    char servers[32]; /* its own address */
    enum dns_word word;
    const char *v4[4]; /* "10.0.0.1"; up to the first NULL */
    const char *v6[4];
    unsigned ttl_s;
    unsigned cname_ttl_s; /* 0: the name is no alias */
    unsigned asked;       /* questions so far */
    unsigned by_tcp;      /* of these */
};

/* Fails the test where it cannot. */
void dns_open(struct dns *dns, struct bt_loop *loop);
void dns_close(struct dns *dns);

#endif
