/*
 * Answers of RFC 1035, 4.1, as short as can be.
 */
#include "tests/support/dns.h"

#include <check.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define HEADER    12
#define TYPE_A    1
#define TYPE_AAAA 28

struct packet {
    unsigned char bytes[512];
    size_t len;
};

static void put16(struct packet *packet, unsigned value)
{
    packet->bytes[packet->len++] = (unsigned char)(value >> 8);
    packet->bytes[packet->len++] = (unsigned char)value;
}

static void put_record(struct packet *packet, unsigned type, unsigned ttl_s,
                       const char *text)
{
    const size_t size = type == TYPE_A ? 4 : 16;

    put16(packet, 0xc00c); /* the question's name */
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

/* The end of the question: a name, a type, a class. */
static size_t question_end(const unsigned char *bytes, size_t len)
{
    size_t at = HEADER;

    while (at < len && bytes[at] != 0) {
        at += 1 + (size_t)bytes[at];
    }
    return at + 5;
}

static void write_answer(const struct dns *dns, struct packet *packet)
{
    const unsigned type = packet->bytes[packet->len - 3];
    const char *const *const texts = type == TYPE_A ? dns->v4 : dns->v6;

    packet->bytes[2] |= 0x80; /* an answer */
    packet->bytes[3] = dns->word == DNS_NO_NAME ? 0x83
                       : dns->word == DNS_FAILS ? 0x82
                                                : 0x80;
    memset(packet->bytes + 6, 0, 6);
    if (dns->word == DNS_GARBAGE) {
        packet->bytes[7] = 9;
        memset(packet->bytes + packet->len, 0xc0, 40);
        packet->len += 40;
        return;
    }
    for (size_t i = 0;
         dns->word == DNS_ADDRESSES && (type == TYPE_A || type == TYPE_AAAA) &&
         i < 4 && texts[i] != NULL;
         i++) {
        put_record(packet, type, dns->ttl_s, texts[i]);
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
        write_answer(dns, &packet);
        (void)sendto(dns->fd, packet.bytes, packet.len, 0,
                     (struct sockaddr *)&from, from_len);
    }
}

void dns_open(struct dns *dns, struct bt_loop *loop)
{
    struct sockaddr_in addr = {.sin_family = AF_INET,
                               .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof(addr);

    memset(dns, 0, sizeof(*dns));
    dns->ttl_s = 60;
    dns->fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(dns->fd, 0);
    ck_assert_int_eq(bind(dns->fd, (struct sockaddr *)&addr, len), 0);
    ck_assert_int_eq(getsockname(dns->fd, (struct sockaddr *)&addr, &len), 0);
    (void)snprintf(dns->servers, sizeof(dns->servers), "127.0.0.1:%u",
                   (unsigned)ntohs(addr.sin_port));
    ck_assert_int_eq(
        bt_watch_open(loop, dns->fd, on_readable, dns, &dns->watch), BT_OK);
}

void dns_close(struct dns *dns)
{
    bt_watch_close(&dns->watch);
    (void)close(dns->fd);
}
