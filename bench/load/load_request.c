/*
 * Body first, since the head tells its length. Prompts are made of letters
 * and spaces, so they need no escapes.
 */
#include "bench/load/load_request.h"

#include "common/json/json_write.h"

static void write_body(const struct request_form *form,
                       const struct workload_plan *plan,
                       const struct workload_item *item, struct bt_buf *out)
{
    bt_buf_append(out, BT_STR("{\"model\":"));
    bt_buf_append_json(out, bt_str_of(form->model));
    if (form->wants_stream) {
        bt_buf_append(out, BT_STR(",\"stream\":true,\"stream_options\":"
                                  "{\"include_usage\":true}"));
    }
    switch (form->endpoint) {
    case OPTIONS_CHAT:
        bt_buf_append(
            out, BT_STR(",\"messages\":[{\"role\":\"user\",\"content\":\""));
        workload_prompt(plan, item, out);
        bt_buf_append(out, BT_STR("\"}]"));
        break;
    case OPTIONS_COMPLETIONS:
        bt_buf_append(out, BT_STR(",\"prompt\":\""));
        workload_prompt(plan, item, out);
        bt_buf_append(out, BT_STR("\""));
        break;
    }
    bt_buf_printf(out, ",\"max_tokens\":%u,\"temperature\":0",
                  item->output_tokens);
    if (form->ignore_eos) {
        bt_buf_append(out, BT_STR(",\"ignore_eos\":true"));
    }
    bt_buf_append(out, BT_STR("}"));
}

static void write_head(const struct request_form *form, size_t length,
                       struct bt_buf *out)
{
    bt_buf_printf(out, "POST %s HTTP/1.1\r\nHost: %s\r\n",
                  form->endpoint == OPTIONS_CHAT ? "/v1/chat/completions"
                                                 : "/v1/completions",
                  form->authority);
    if (form->bearer != NULL) {
        bt_buf_printf(out, "Authorization: Bearer %s\r\n", form->bearer);
    }
    bt_buf_printf(out,
                  "Content-Type: application/json\r\nAccept: %s\r\n"
                  "Content-Length: %zu\r\n\r\n",
                  form->wants_stream ? "text/event-stream" : "application/json",
                  length);
}

bool request_write(const struct request_form *form,
                   const struct workload_plan *plan,
                   const struct workload_item *item,
                   struct client_message *message_p)
{
    struct client_message message = {0};

    if (form->body.len > 0) {
        bt_buf_append(&message.body, form->body);
    } else {
        write_body(form, plan, item, &message.body);
    }
    write_head(form, message.body.len, &message.head);
    if (message.head.failed || message.body.failed) {
        client_message_fini(&message);
        return false;
    }
    *message_p = message;
    return true;
}
