#include "tests/support/settings.h"

#include "tests/support/harness.h"

#include <unistd.h>

struct config config;
struct bt_conf_error config_error;
char secret[] = "/tmp/baton-config-XXXXXX";

void settings_init(void)
{
    const int fd = mkstemp(secret);

    ck_assert_int_ge(fd, 0);
    (void)close(fd);
    config_error.text[0] = '\0';
    ck_assert_int_eq(bt_conf_init(config_rows, &config), BT_OK);
}

void settings_fini(void)
{
    (void)unlink(secret);
    memcpy(secret, "/tmp/baton-config-XXXXXX", sizeof(secret));
    bt_conf_fini(config_rows, &config);
}

void settings_set(const char *path, const char *value)
{
    ck_assert_msg(bt_conf_set(config_rows, &config, "--set", path, value,
                              &config_error) == BT_OK,
                  "%s", config_error.text);
}

void settings_make_good(void)
{
    settings_set("agents.listen", "127.0.0.1:0");
    settings_set("agents.key_file", secret);
    settings_set("pools.0.prefill.engines",
                 "[http://127.0.0.1:1, http://127.0.0.1:2]");
    settings_set("pools.0.decode.engines", "[http://127.0.0.1:3]");
}

void expect_refusal(const char *message)
{
    ck_assert_int_ne(config_check(&config, &config_error), BT_OK);
    ck_assert_str_eq(config_error.text, message);
}

void expect_refusals(const struct refusal *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        settings_fini();
        settings_init();
        settings_make_good();
        settings_set(rows[i].path, rows[i].value);
        expect_refusal(rows[i].message);
    }
}
