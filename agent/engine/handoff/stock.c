/*
 * The handoffs of other connectors; see stock.h.
 */
#include "agent/engine/handoff/stock.h"

#include "common/io/net.h"
#include "common/json/json_write.h"

#include <inttypes.h>

static void append_ids(uint64_t count, struct bt_buf *out)
{
    for (uint64_t i = 1; i <= count; i++) {
        bt_buf_printf(out, "%s%" PRIu64, i == 1 ? "" : ",", i);
    }
}

static void append_host(const struct bt_url *url, struct bt_buf *out)
{
    bt_buf_append(out, BT_STR("\"remote_host\":"));
    bt_buf_append_json(out, bt_str_of(url->host));
    bt_buf_printf(out, ",\"remote_port\":%u", (unsigned)url->port);
}

static void write_nixl(const struct stock_place *place,
                       const struct bt_url *url, struct bt_buf *out)
{
    const uint64_t blocks =
        (place->tokens + place->block_tokens - 1) / place->block_tokens;

    bt_buf_append(out, BT_STR("{\"do_remote_prefill\":true,"
                              "\"do_remote_decode\":false,"
                              "\"remote_block_ids\":[["));
    append_ids(blocks, out);
    bt_buf_append(out, BT_STR("]],\"remote_engine_id\":"));
    bt_buf_append_json(out, bt_str_of(place->engine_id));
    bt_buf_append(out, BT_STR(",\"remote_request_id\":"));
    bt_buf_append_json(out, bt_str_of(place->request_id));
    bt_buf_append_char(out, ',');
    append_host(url, out);
    bt_buf_printf(out,
                  ",\"tp_size\":%" PRIu64 ",\"remote_num_tokens\":%" PRIu64 "}",
                  place->tp, place->tokens);
}

static void write_tpu(const struct stock_place *place, const struct bt_url *url,
                      struct bt_buf *out)
{
    uint64_t uuid = 0;

    /* Only full blocks are handed on: a short prompt has none. */
    if (place->tokens < place->block_tokens) {
        bt_buf_append(out, BT_STR("{}"));
        return;
    }
    for (const char *at = place->request_id; *at != '\0'; at++) {
        uuid = uuid * 31 + (unsigned char)*at;
    }
    bt_buf_printf(out, "{\"uuid\":%" PRIu64 ",\"remote_block_ids\":[",
                  uuid & INT64_MAX);
    append_ids(place->tokens / place->block_tokens, out);
    bt_buf_append(out, BT_STR("],"));
    append_host(url, out);
    bt_buf_append_char(out, '}');
}

void stock_write_params(const struct stock_place *place, struct bt_buf *out)
{
    struct bt_url url;

    if (bt_url_parse(place->url, &url, NULL) != BT_OK) {
        return;
    }
    switch (place->connector) {
    case CONNECTOR_NIXL:
        write_nixl(place, &url, out);
        break;
    case CONNECTOR_MOONCAKE_SEQ:
        bt_buf_append(out, BT_STR("{\"do_remote_prefill\":true,"
                                  "\"do_remote_decode\":false,"));
        append_host(&url, out);
        bt_buf_append_char(out, '}');
        break;
    case CONNECTOR_TPU:
        write_tpu(place, &url, out);
        break;
    case CONNECTOR_MOONCAKE:
    case CONNECTOR_NONE:
        break;
    }
}
