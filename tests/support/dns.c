/*
 * Answers of RFC 1035, 4.1, as short as can be.
 */
#include "tests/support/dns.h"

#include "tests/support/pair.h"

#include <check.h>

#include <arpa/inet.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define HEADER     12
#define TYPE_A     1
#define TYPE_CNAME 5
#define TYPE_AAAA  28

struct packet {
    unsigned char bytes[512];
    size_t len;
};

static void put16(struct packet *packet, unsigned value)
{
    packet->bytes[packet->len++] = (unsigned char)(value >> 8);
    packet->bytes[packet->len++] = (unsigned char)value;
}

static void put_record(struct packet *packet, unsigned name, unsigned type,
                       unsigned ttl_s, const char *text)
{
    const size_t size = type == TYPE_A ? 4 : 16;

    put16(packet, name);
    put16(packet, type);
    put16(packet, 1); /* IN */
    put16(packet, ttl_s >> 16);
    put16(packet, ttl_s & 0xffff);
    put16(packet, (unsigned)size);
    ck_assert_int_eq(inet_pton(type == TYPE_A ? AF_INET : AF_INET6, text,
                               packet->bytes + packet->len),
                     1);
    packet->len += size;
    packet->bytes[7]++; /* answers */
}

#define QUESTION 0xc00c /* its name, as a pointer */

/* The question's name stands for "a." and itself; that name's pointer. */
static unsigned put_alias(struct packet *packet, unsigned ttl_s)
{
    put16(packet, QUESTION);
    put16(packet, TYPE_CNAME);
    put16(packet, 1);
    put16(packet, ttl_s >> 16);
    put16(packet, ttl_s & 0xffff);
    put16(packet, 4);
    put16(packet, 0x0161);
    put16(packet, QUESTION);
    packet->bytes[7]++;
    return 0xc000 + (unsigned)packet->len - 4;
}

/* The end of the question: a name, a type, a class. */
static size_t question_end(const unsigned char *bytes, size_t len)
{
    size_t at = HEADER;

    while (at < len && bytes[at] != 0) {
        at += 1 + (size_t)bytes[at];
    }
    return at + 5;
}

static void put_noise(struct dns *dns, struct packet *packet)
{
    packet->bytes[7] = 9;
    for (int i = 0; i < 40; i++) {
        packet->bytes[packet->len++] =
            dns->word == DNS_NOISE ? (unsigned char)rng_next(&dns->rng) : 0xc0;
    }
}

static void write_answer(struct dns *dns, struct packet *packet, bool is_tcp)
{
    const unsigned type = packet->bytes[packet->len - 3];
    const char *const *const texts = type == TYPE_A ? dns->v4 : dns->v6;
    const bool is_cut = dns->word == DNS_BY_TCP && !is_tcp;
    unsigned name = QUESTION;
    const bool is_good =
        dns->word == DNS_ADDRESSES || (dns->word == DNS_BY_TCP && is_tcp);

    packet->bytes[2] |= is_cut ? 0x82 : 0x80; /* an answer */
    packet->bytes[3] = dns->word == DNS_NO_NAME ? 0x83
                       : dns->word == DNS_FAILS ? 0x82
                                                : 0x80;
    memset(packet->bytes + 6, 0, 6);
    if (dns->word == DNS_GARBAGE || dns->word == DNS_NOISE) {
        put_noise(dns, packet);
        return;
    }
    if (is_good && dns->cname_ttl_s != 0) {
        name = put_alias(packet, dns->cname_ttl_s);
    }
    for (size_t i = 0; is_good && (type == TYPE_A || type == TYPE_AAAA) &&
                       i < 4 && texts[i] != NULL;
         i++) {
        put_record(packet, name, type, dns->ttl_s, texts[i]);
    }
}

static void on_readable(void *owner)
{
    struct dns *const dns = owner;
    struct sockaddr_storage from;
    socklen_t from_len = sizeof(from);
    struct packet packet = {.len = 0};
    const ssize_t len = recvfrom(dns->fd, packet.bytes, 256, 0,
                                 (struct sockaddr *)&from, &from_len);

    if (len <= HEADER) {
        return;
    }
    dns->asked++;
    packet.len = question_end(packet.bytes, (size_t)len);
    ck_assert_uint_le(packet.len, 300);
    if (dns->word != DNS_SILENT) {
        write_answer(dns, &packet, false);
        (void)sendto(dns->fd, packet.bytes, packet.len, 0,
                     (struct sockaddr *)&from, from_len);
    }
}

/* The next question of the connection, its length before it. */
static bool take_question(struct dns *dns, struct packet *packet)
{
    const unsigned char *const at =
        (const unsigned char *)dns->heard.data + dns->heard.at;
    const size_t len = dns->heard.len < 2 ? 0 : (size_t)at[0] * 256 + at[1];

    if (len == 0 || dns->heard.len < 2 + len) {
        return false;
    }
    ck_assert_uint_le(len, 256);
    memcpy(packet->bytes, at + 2, len);
    packet->len = question_end(packet->bytes, len);
    ck_assert_uint_le(packet->len, len + 5);
    bt_buf_consume(&dns->heard, 2 + len);
    return true;
}

static void on_bytes(void *owner)
{
    struct dns *const dns = owner;
    struct packet packet;
    char bytes[512];
    const ssize_t len = recv(dns->connection, bytes, sizeof(bytes), 0);

    if (len <= 0) {
        bt_watch_close(&dns->connected);
        (void)close(dns->connection);
        dns->connection = -1;
        return;
    }
    bt_buf_append(&dns->heard, bt_str_span(bytes, (size_t)len));
    while (take_question(dns, &packet)) {
        unsigned char size[2];

        dns->asked++;
        dns->by_tcp++;
        write_answer(dns, &packet, true);
        size[0] = (unsigned char)(packet.len >> 8);
        size[1] = (unsigned char)packet.len;
        (void)send(dns->connection, size, 2, MSG_NOSIGNAL);
        (void)send(dns->connection, packet.bytes, packet.len, MSG_NOSIGNAL);
    }
}

static void on_connection(void *owner)
{
    struct dns *const dns = owner;

    ck_assert_int_lt(dns->connection, 0);
    dns->connection = pair_accept(dns->listener);
    ck_assert_int_ge(dns->connection, 0);
    bt_buf_clear(&dns->heard);
    ck_assert_int_eq(bt_watch_open(dns->loop, dns->connection, on_bytes, dns,
                                   &dns->connected),
                     BT_OK);
}

/* A port that is free by TCP may be taken by UDP: then another one. */
static void bind_both(struct dns *dns, struct bt_addr *addr)
{
    for (int tries = 0; tries < 20; tries++) {
        dns->listener = pair_listen(addr);
        dns->fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        ck_assert_int_ge(dns->fd, 0);
        if (bind(dns->fd, (struct sockaddr *)&addr->sa, addr->len) == 0) {
            return;
        }
        (void)close(dns->fd);
        (void)close(dns->listener);
    }
    ck_abort_msg("no port is free by UDP and TCP");
}

void dns_open(struct dns *dns, struct bt_loop *loop)
{
    struct bt_addr addr;
    char text[BT_ADDR_TEXT_MAX];

    memset(dns, 0, sizeof(*dns));
    dns->loop = loop;
    dns->ttl_s = 60;
    dns->connection = -1;
    dns->rng.state = 1;
    bind_both(dns, &addr);
    bt_addr_format(&addr, text);
    ck_assert_uint_lt(strlen(text), sizeof(dns->servers));
    memcpy(dns->servers, text, strlen(text) + 1);
    ck_assert_int_eq(
        bt_watch_open(loop, dns->fd, on_readable, dns, &dns->watch), BT_OK);
    ck_assert_int_eq(
        bt_watch_open(loop, dns->listener, on_connection, dns, &dns->listening),
        BT_OK);
}

void dns_close(struct dns *dns)
{
    bt_watch_close(&dns->watch);
    bt_watch_close(&dns->listening);
    bt_watch_close(&dns->connected);
    (void)close(dns->fd);
    (void)close(dns->listener);
    if (dns->connection >= 0) {
        (void)close(dns->connection);
    }
    bt_buf_fini(&dns->heard);
}
