/*
 * Configuration text: whatever the bytes are, the reader ends in a status and
 * a message, and what it accepts prints to a text that reads back as the same.
 */
#include "common/conf/conf.h"
#include "proxy/config/config.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void print(const struct config *config, struct bt_buf *out)
{
    bt_conf_print(config_rows, config, false, out);
    if (out->failed) {
        abort();
    }
}

static void read_back(const struct config *config)
{
    struct bt_conf_error error = {{0}};
    struct bt_buf first = {0};
    struct bt_buf second = {0};
    struct config again;

    print(config, &first);
    if (bt_conf_init(config_rows, &again) != BT_OK ||
        bt_conf_read(config_rows, &again, "printed", bt_buf_str(&first),
                     &error) != BT_OK) {
        abort();
    }
    print(&again, &second);
    if (!bt_str_eq(bt_buf_str(&first), bt_buf_str(&second))) {
        abort();
    }
    bt_conf_fini(config_rows, &again);
    bt_buf_fini(&first);
    bt_buf_fini(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bt_conf_error error = {{0}};
    struct config config;
    enum bt_status status;

    if (bt_conf_init(config_rows, &config) != BT_OK) {
        abort();
    }
    status = bt_conf_read(config_rows, &config, "fuzz",
                          bt_str_span((const char *)data, size), &error);
    if (status == BT_OK) {
        (void)config_check(&config, &error);
        read_back(&config);
    } else if (error.text[0] == '\0') {
        abort();
    }
    bt_conf_fini(config_rows, &config);
    return 0;
}
