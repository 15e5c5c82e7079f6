/*
 * common/net: addresses, URLs, listening sockets.
 */
#include "common/io/net.h"
#include "tests/support/harness.h"
#include "tests/support/pair.h"

#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

START_TEST(addresses_read_back_as_written)
{
    static const char *const texts[] = {"127.0.0.1:80", "[::1]:8000",
                                        "0.0.0.0:0", "unix:/tmp/x.sock"};

    for (size_t i = 0; i < BT_ARRAY_LEN(texts); i++) {
        struct bt_addr addr;
        char text[BT_ADDR_TEXT_MAX];

        ck_assert_int_eq(bt_addr_parse(texts[i], &addr), BT_OK);
        bt_addr_format(&addr, text);
        ck_assert_str_eq(text, texts[i]);
    }
}
END_TEST

START_TEST(a_port_is_set_where_there_is_one)
{
    static const char *const texts[][2] = {{"127.0.0.1:80", "127.0.0.1:8998"},
                                           {"[::1]:8000", "[::1]:8998"},
                                           {"unix:/tmp/x", "unix:/tmp/x"}};

    for (size_t i = 0; i < BT_ARRAY_LEN(texts); i++) {
        struct bt_addr addr;
        char text[BT_ADDR_TEXT_MAX];

        ck_assert_int_eq(bt_addr_parse(texts[i][0], &addr), BT_OK);
        bt_addr_set_port(&addr, 8998);
        bt_addr_format(&addr, text);
        ck_assert_str_eq(text, texts[i][1]);
    }
}
END_TEST

START_TEST(addresses_are_equal_with_host_and_port)
{
    static const char *const TEXTS[] = {"127.0.0.1:80", "127.0.0.1:81",
                                        "127.0.0.2:80", "[::1]:80"};
    struct bt_addrs addrs = {.count = 1};
    struct bt_addr addr;

    ck_assert_int_eq(bt_addr_parse(TEXTS[0], &addrs.items[0]), BT_OK);
    for (size_t i = 0; i < BT_ARRAY_LEN(TEXTS); i++) {
        ck_assert_int_eq(bt_addr_parse(TEXTS[i], &addr), BT_OK);
        ck_assert_int_eq(bt_addrs_has(&addrs, &addr), i == 0);
    }
}
END_TEST

START_TEST(bad_addresses_are_refused)
{
    static const char *const texts[] = {
        "",        "127.0.0.1",  "127.0.0.1:",    ":80",
        "a:b",     "a:65536",    "a:-1",          "[::1]",
        "[::1]80", "[::1:80",    "[127.0.0.1]:1", "unix:",
        "a b:80",  "a/b:80",     "::1:80",        "[]:80",
        "a:80x",   "a:00000080", "[::g]:80",
    };
    struct bt_addr addr;

    for (size_t i = 0; i < BT_ARRAY_LEN(texts); i++) {
        ck_assert_msg(bt_addr_parse(texts[i], &addr) == BT_ERR_SYNTAX, "%s",
                      texts[i]);
    }
}
END_TEST

static struct bt_addr addr_of(const char *text)
{
    struct bt_addr addr;

    ck_assert_int_eq(bt_addr_parse(text, &addr), BT_OK);
    return addr;
}

START_TEST(hosts_compare_without_their_ports)
{
    const struct bt_addr a = addr_of("127.0.0.1:1");
    const struct bt_addr c = addr_of("127.0.0.2:1");
    const struct bt_addr mapped = addr_of("[::ffff:127.0.0.1]:9");
    const struct bt_addr far = addr_of("192.0.2.1:1");
    const struct bt_addr path = addr_of("unix:/a");
    unsigned char one[16], other[16];

    ck_assert(bt_addr_bytes(&a, one) && bt_addr_bytes(&mapped, other));
    ck_assert_mem_eq(one, other, sizeof(one));
    ck_assert(bt_host_bytes(BT_STR("127.0.0.1"), other));
    ck_assert_mem_eq(one, other, sizeof(one));
    ck_assert(bt_host_bytes(BT_STR("[::ffff:127.0.0.1]"), other));
    ck_assert_mem_eq(one, other, sizeof(one));
    ck_assert(bt_addr_bytes(&c, other));
    ck_assert_mem_ne(one, other, sizeof(one));
    ck_assert(!bt_addr_bytes(&path, other));
    ck_assert(!bt_host_bytes(BT_STR("localhost"), other));
    ck_assert(bt_addr_is_local(&c));
    ck_assert(bt_addr_is_local(&mapped));
    ck_assert(bt_addr_is_local(&path));
    ck_assert(!bt_addr_is_local(&far));
}
END_TEST

START_TEST(urls_are_normalised)
{
    static const struct {
        const char *text;
        const char *normal;
        const char *authority;
        uint16_t port;
    } rows[] = {
        {"http://Host.Example:8000", "http://host.example:8000",
         "host.example:8000", 8000},
        {"http://10.0.0.1/", "http://10.0.0.1:80", "10.0.0.1", 80},
        {"http://[::1]:9", "http://[::1]:9", "[::1]:9", 9},
        {"https://a", "https://a:443", "a", 443},
        {"https://a:80/", "https://a:80", "a:80", 80},
        {"HTTP://A", "http://a:80", "a", 80},
        {"HttpS://a:1", "https://a:1", "a:1", 1},
    };

    for (size_t i = 0; i < BT_ARRAY_LEN(rows); i++) {
        struct bt_url url;

        ck_assert_int_eq(bt_url_parse(rows[i].text, &url, NULL), BT_OK);
        ck_assert_str_eq(url.normal, rows[i].normal);
        ck_assert_str_eq(url.authority, rows[i].authority);
        ck_assert_uint_eq(url.port, rows[i].port);
    }
}
END_TEST

START_TEST(bad_urls_say_why)
{
    static const char *const texts[] = {
        "",           "host:80",       "ftp://a",    "http://",
        "http://:80", "http://a:0",    "http://a:",  "http://a/b",
        "http://a?b", "http://u@a:80", "http://a b", "http://[::1",
    };

    for (size_t i = 0; i < BT_ARRAY_LEN(texts); i++) {
        struct bt_url url;
        const char *why = NULL;

        ck_assert_msg(bt_url_parse(texts[i], &url, &why) == BT_ERR_SYNTAX, "%s",
                      texts[i]);
        ck_assert_ptr_nonnull(why);
    }
}
END_TEST

START_TEST(a_url_with_more_than_host_and_port_is_told_so)
{
    static const char *const texts[] = {"http://a/b", "http://a:1?b",
                                        "http://a:1#b", "http://a:1/?b"};
    struct bt_url url;
    const char *why = NULL;

    for (size_t i = 0; i < BT_ARRAY_LEN(texts); i++) {
        ck_assert_int_eq(bt_url_parse(texts[i], &url, &why), BT_ERR_SYNTAX);
        ck_assert_str_eq(why, "nothing may stand behind host and port");
    }
    ck_assert_int_eq(bt_url_parse("http://u:p@a:1", &url, &why), BT_ERR_SYNTAX);
    ck_assert_str_eq(why, "it may have no user and no password");
}
END_TEST

START_TEST(a_url_of_an_address_resolves_to_it)
{
    struct bt_url url;
    struct bt_addrs addrs;
    char text[BT_ADDR_TEXT_MAX];

    ck_assert_int_eq(bt_url_parse("http://127.0.0.3:81", &url, NULL), BT_OK);
    ck_assert(bt_url_addr(&url, &addrs));
    ck_assert_uint_eq(addrs.count, 1);
    bt_addr_format(&addrs.items[0], text);
    ck_assert_str_eq(text, "127.0.0.3:81");
    ck_assert_int_eq(bt_url_resolve(&url, &addrs), BT_OK);
    ck_assert_uint_eq(addrs.count, 1);
    ck_assert_int_eq(bt_url_parse("http://a.name:81", &url, NULL), BT_OK);
    ck_assert(!bt_url_addr(&url, &addrs));
}
END_TEST

/* A resolver's answer of these addresses, in this order. */
static size_t take(const char *const *texts, size_t count,
                   char taken[BT_ADDRS_MAX][BT_ADDR_TEXT_MAX])
{
    struct addrinfo infos[16];
    struct bt_addr each[16];
    struct bt_addrs addrs;

    for (size_t i = 0; i < count; i++) {
        each[i] = addr_of(texts[i]);
        infos[i] = (struct addrinfo){
            .ai_family = each[i].sa.ss_family,
            .ai_addr = (struct sockaddr *)(void *)&each[i].sa,
            .ai_addrlen = each[i].len,
            .ai_next = i + 1 < count ? &infos[i + 1] : NULL,
        };
    }
    bt_addrs_take(&addrs, infos);
    for (size_t i = 0; i < addrs.count; i++) {
        bt_addr_format(&addrs.items[i], taken[i]);
    }
    return addrs.count;
}

START_TEST(families_of_a_name_take_turns_and_each_address_stands_once)
{
    static const char *const FOUND[] = {"[::1]:1", "[::2]:1",   "[::2]:1",
                                        "[::3]:1", "1.1.1.1:1", "1.1.1.2:1"};
    static const char *const WANTED[] = {"[::1]:1", "1.1.1.1:1", "[::2]:1",
                                         "1.1.1.2:1", "[::3]:1"};
    char taken[BT_ADDRS_MAX][BT_ADDR_TEXT_MAX];

    ck_assert_uint_eq(take(FOUND, BT_ARRAY_LEN(FOUND), taken),
                      BT_ARRAY_LEN(WANTED));
    for (size_t i = 0; i < BT_ARRAY_LEN(WANTED); i++) {
        ck_assert_str_eq(taken[i], WANTED[i]);
    }
}
END_TEST

START_TEST(a_name_with_many_addresses_keeps_the_first_ones)
{
    static const char *const FOUND[] = {
        "1.1.1.1:1", "1.1.1.2:1", "1.1.1.3:1", "1.1.1.4:1", "1.1.1.5:1",
        "1.1.1.6:1", "1.1.1.7:1", "1.1.1.8:1", "1.1.1.9:1",
    };
    char taken[BT_ADDRS_MAX][BT_ADDR_TEXT_MAX];

    ck_assert_uint_eq(take(FOUND, BT_ARRAY_LEN(FOUND), taken), BT_ADDRS_MAX);
    ck_assert_str_eq(taken[BT_ADDRS_MAX - 1], "1.1.1.8:1");
}
END_TEST

START_TEST(port_zero_gives_a_free_port_and_a_taken_one_is_told)
{
    struct bt_addr addr;
    const int fd = pair_listen(&addr);
    char text[BT_ADDR_TEXT_MAX];
    int other;

    bt_addr_format(&addr, text);
    ck_assert_str_ne(text, "127.0.0.1:0");
    ck_assert_int_eq(bt_listen(&addr, false, &other), BT_ERR_EXISTS);
    ck_assert_int_eq(close(fd), 0);
}
END_TEST

START_TEST(workers_share_a_port)
{
    struct bt_addr addr = addr_of("127.0.0.1:0");
    int first, second;

    ck_assert_int_eq(bt_listen(&addr, false, &first), BT_OK);
    ck_assert_int_eq(bt_addr_of_fd(first, &addr), BT_OK);
    ck_assert_int_eq(bt_listen_share(first), BT_OK);
    ck_assert_int_eq(bt_listen(&addr, true, &second), BT_OK);
    ck_assert_int_eq(close(first), 0);
    ck_assert_int_eq(close(second), 0);
}
END_TEST

START_TEST(a_shared_port_is_no_free_one)
{
    struct bt_addr addr = addr_of("127.0.0.1:0");
    int first, second, other;

    ck_assert_int_eq(bt_listen(&addr, false, &first), BT_OK);
    ck_assert_int_eq(bt_addr_of_fd(first, &addr), BT_OK);
    ck_assert_int_eq(bt_listen(&addr, true, &other), BT_ERR_EXISTS);
    ck_assert_int_eq(bt_listen_share(first), BT_OK);
    ck_assert_int_eq(bt_listen(&addr, true, &second), BT_OK);
    /* What another program does first. */
    ck_assert_int_eq(bt_listen(&addr, false, &other), BT_ERR_EXISTS);
    ck_assert_int_eq(close(first), 0);
    ck_assert_int_eq(bt_listen(&addr, false, &other), BT_ERR_EXISTS);
    ck_assert_int_eq(close(second), 0);
}
END_TEST

START_TEST(a_stale_socket_file_is_replaced_a_live_one_is_not)
{
    char dir[] = "/tmp/baton-net-XXXXXX";
    char text[64];
    struct bt_addr addr;
    int fd, other;

    ck_assert_ptr_nonnull(mkdtemp(dir));
    (void)snprintf(text, sizeof(text), "unix:%s/s", dir);
    addr = addr_of(text);
    ck_assert_int_eq(bt_listen(&addr, false, &fd), BT_OK);
    ck_assert_int_eq(bt_listen(&addr, false, &other), BT_ERR_EXISTS);
    ck_assert_int_eq(close(fd), 0);
    ck_assert_int_eq(bt_listen(&addr, false, &fd), BT_OK);
    ck_assert_int_eq(close(fd), 0);
    ck_assert_int_eq(unlink(text + 5), 0);
    ck_assert_int_eq(rmdir(dir), 0);
}
END_TEST

START_TEST(listening_on_all_addresses_is_all_or_nothing)
{
    struct bt_listening listening, other;
    char text[BT_ADDR_TEXT_MAX];
    const char *why = NULL;

    ck_assert_int_eq(bt_listen_all("127.0.0.1:0", &listening, &why), BT_OK);
    ck_assert_uint_eq(listening.addrs.count, 1);
    bt_addr_format(&listening.addrs.items[0], text);
    ck_assert_int_eq(bt_listen_all(text, &other, &why), BT_ERR_EXISTS);
    ck_assert_str_eq(why, "address already in use");
    ck_assert_int_eq(close(listening.fds[0]), 0);
    ck_assert_int_eq(bt_listen_all(text, &other, &why), BT_OK);
    ck_assert_int_eq(close(other.fds[0]), 0);
    ck_assert_int_eq(bt_listen_all("nonsense", &other, &why), BT_ERR_SYNTAX);
    ck_assert_str_eq(why, "it is no address");
}
END_TEST

HARNESS_MAIN("net", addresses_read_back_as_written,
             addresses_are_equal_with_host_and_port,
             a_port_is_set_where_there_is_one, bad_addresses_are_refused,
             hosts_compare_without_their_ports, urls_are_normalised,
             bad_urls_say_why, a_url_with_more_than_host_and_port_is_told_so,
             a_url_of_an_address_resolves_to_it,
             families_of_a_name_take_turns_and_each_address_stands_once,
             a_name_with_many_addresses_keeps_the_first_ones,
             port_zero_gives_a_free_port_and_a_taken_one_is_told,
             listening_on_all_addresses_is_all_or_nothing, workers_share_a_port,
             a_shared_port_is_no_free_one,
             a_stale_socket_file_is_replaced_a_live_one_is_not)
