/*
 * fake_sink: see fake_sink.h.
 */
#include "tests/support/fake_sink.h"

static struct fake_sink *fake_of(struct sink *sink)
{
    return bt_container_of(sink, struct fake_sink, sink);
}

static void on_answer(struct sink *sink, unsigned code, struct bt_str fields,
                      struct bt_str body)
{
    struct fake_sink *const fake = fake_of(sink);

    fake->answers++;
    fake->code = code;
    bt_buf_append(&fake->fields, fields);
    bt_buf_append(&fake->body, body);
}

static void on_head(struct sink *sink, unsigned code, struct bt_str fields)
{
    struct fake_sink *const fake = fake_of(sink);

    fake->heads++;
    fake->code = code;
    bt_buf_append(&fake->fields, fields);
}

static enum bt_status on_body(struct sink *sink, const struct iovec *iov,
                              int count)
{
    struct fake_sink *const fake = fake_of(sink);

    fake->writes++;
    for (int i = 0; i < count; i++) {
        bt_buf_append(&fake->body,
                      bt_str_span(iov[i].iov_base, iov[i].iov_len));
    }
    return fake->is_full ? BT_AGAIN : BT_OK;
}

static void on_end(struct sink *sink)
{
    fake_of(sink)->ends++;
}

static void on_cut(struct sink *sink)
{
    fake_of(sink)->cuts++;
}

static const struct sink_ops OPS = {
    .answer = on_answer,
    .head = on_head,
    .body = on_body,
    .end = on_end,
    .cut = on_cut,
};

void fake_sink_init(struct fake_sink *fake)
{
    *fake = (struct fake_sink){.sink = {&OPS}};
}

void fake_sink_fini(struct fake_sink *fake)
{
    bt_buf_fini(&fake->fields);
    bt_buf_fini(&fake->body);
}

unsigned fake_sink_verdicts(const struct fake_sink *fake)
{
    return fake->answers + fake->ends + fake->cuts;
}
