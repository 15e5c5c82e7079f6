/*
 * proxy/config_check: what is refused, and the path and the remedy it names;
 * engines and pools have a file of their own.
 */
#include "tests/support/harness.h"
#include "tests/support/settings.h"

#include <stdio.h>
#include <sys/stat.h>

START_TEST(takes_origins_as_browsers_write_them)
{
    static const char *const good[] = {
        "*", "https://a.test", "http://[::1]:8080", "chrome-extension://abc"};
    static const char *const bad[] = {"a.test", "https://A.test", "null",
                                      "https://a.test/", "https://"};

    settings_make_good();
    for (size_t i = 0; i < BT_ARRAY_LEN(good); i++) {
        settings_set("cors.origins.0", good[i]);
        ck_assert_msg(config_check(&config, &config_error) == BT_OK, "%s",
                      good[i]);
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(bad); i++) {
        settings_set("cors.origins.0", bad[i]);
        ck_assert_msg(config_check(&config, &config_error) != BT_OK, "%s",
                      bad[i]);
    }
    expect_refusal("cors.origins.0: bad origin \"https://\"; write "
                   "scheme://host or scheme://host:port in lower case, without "
                   "a path, or \"*\"");
    settings_set("cors.origins.0", "*");
    settings_set("cors.methods.0", "G T");
    expect_refusal("cors.methods.0: bad name \"G T\"; write a single word");
    settings_set("cors.methods.0", "GET");
    settings_set("cors.headers.0", "X-A, X-B");
    expect_refusal(
        "cors.headers.0: bad name \"X-A, X-B\"; write a single word");
}
END_TEST

START_TEST(refuses_bad_addresses)
{
    static const char *const bad[] = {
        "nonsense", ":80",     "h:",      "h:70000",  "h:x",
        "::1:80",   "[::1]80", "[::1:80", "[::1]x:80"};
    static const char *const good[] = {"127.0.0.1:0", "[::1]:80", "localhost:1",
                                       "unix:/tmp/x"};

    settings_make_good();
    for (size_t i = 0; i < BT_ARRAY_LEN(bad); i++) {
        char message[160];

        settings_set("admin", bad[i]);
        (void)snprintf(message, sizeof(message),
                       "admin: bad address \"%s\"; write host:port, [v6]:port "
                       "or unix:/path",
                       bad[i]);
        expect_refusal(message);
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(good); i++) {
        settings_set("admin", good[i]);
        ck_assert_msg(config_check(&config, &config_error) == BT_OK, "%s",
                      good[i]);
    }
}
END_TEST

START_TEST(refuses_addresses_wherever_they_stand)
{
    static const struct refusal rows[] = {
        {"listen", "[]",
         "listen: no address for clients; set one (--listen ADDR)"},
        {"listen", "[127.0.0.1:1, x]",
         "listen.1: bad address \"x\"; write host:port, [v6]:port or "
         "unix:/path"},
        {"agents.listen", "x",
         "agents.listen: bad address \"x\"; write host:port, [v6]:port or "
         "unix:/path"},
        {"admin", "unix:rel",
         "admin: bad unix socket \"unix:rel\"; write unix: and an absolute "
         "path of at most 107 bytes"},
        {"agents.dead", "1s",
         "agents.dead: not longer than agents.ping, so every link would die; "
         "make it three times as long"},
    };

    expect_refusals(rows, BT_ARRAY_LEN(rows));
}
END_TEST

START_TEST(takes_a_unix_path_as_long_as_the_system_does)
{
    char addr[5 + 108 + 1];

    settings_make_good();
    (void)snprintf(addr, sizeof(addr), "unix:/%0106d", 0);
    settings_set("admin", addr);
    ck_assert_msg(config_check(&config, &config_error) == BT_OK, "%s",
                  config_error.text);
    (void)snprintf(addr, sizeof(addr), "unix:/%0107d", 0);
    settings_set("admin", addr);
    ck_assert_int_ne(config_check(&config, &config_error), BT_OK);
    ck_assert_ptr_nonnull(strstr(config_error.text, "admin: bad unix socket"));
}
END_TEST

START_TEST(refuses_what_is_no_secret_for_each_key)
{
    static const char *const paths[] = {
        "agents.key_file", "auth.client_keys_file", "auth.admin_keys_file",
        "auth.engine_key_file"};

    for (size_t i = 0; i < BT_ARRAY_LEN(paths); i++) {
        char message[160];

        settings_fini();
        settings_init();
        settings_make_good();
        settings_set(paths[i], "/tmp");
        (void)snprintf(message, sizeof(message),
                       "%s: /tmp is no regular file; name a file", paths[i]);
        expect_refusal(message);
    }
}
END_TEST

START_TEST(refuses_secrets_that_others_can_read)
{
    char message[160];

    settings_make_good();
    ck_assert_int_eq(chmod(secret, 0640), 0);
    ck_assert_msg(config_check(&config, &config_error) == BT_OK, "%s",
                  config_error.text);
    ck_assert_int_eq(chmod(secret, 0644), 0);
    (void)snprintf(message, sizeof(message),
                   "agents.key_file: %s has mode 0644, so others can get at "
                   "it; chmod 600 it",
                   secret);
    expect_refusal(message);
    ck_assert_int_eq(chmod(secret, 0620), 0); /* nor may the group write it */
    ck_assert_int_ne(config_check(&config, &config_error), BT_OK);
}
END_TEST

START_TEST(takes_dns_servers_as_numbers_with_commas_between_them)
{
    static const char *const bad[] = {"10.0.0.2,",    "10.0.0.2 10.0.0.3",
                                      "dns.test",     "10.0.0.2:70000",
                                      ",10.0.0.2:53", "10.0.0.2,x:53"};

    settings_make_good();
    settings_set("names.servers", "10.0.0.2,10.0.0.3:53,[fd00::2]:53,fd00::2");
    ck_assert_msg(config_check(&config, &config_error) == BT_OK, "%s",
                  config_error.text);
    for (size_t i = 0; i < BT_ARRAY_LEN(bad); i++) {
        char message[160];

        settings_set("names.servers", bad[i]);
        (void)snprintf(message, sizeof(message),
                       "names.servers: bad DNS servers \"%s\"; write addresses "
                       "with commas between them, such as "
                       "10.0.0.2:53,[fd00::2]:53",
                       bad[i]);
        expect_refusal(message);
    }
}
END_TEST

HARNESS_MAIN_WITH("config_check", settings_init, settings_fini,
                  takes_origins_as_browsers_write_them, refuses_bad_addresses,
                  refuses_addresses_wherever_they_stand,
                  takes_a_unix_path_as_long_as_the_system_does,
                  refuses_what_is_no_secret_for_each_key,
                  refuses_secrets_that_others_can_read,
                  takes_dns_servers_as_numbers_with_commas_between_them)
