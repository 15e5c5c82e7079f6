/*
 * The events of a call, in the order in which they can come:
 *
 *     [sent] -> head -> body … -> end        verdict of the answer
 *          \-> failed (stale, once: anew)    verdict of the failure
 *          \-> timer                         ttft_timeout, idle_timeout
 */
#include "bench/load/load_client.h"

#include <stdio.h>
#include <stdlib.h>

static void destroy(struct bt_grave *grave)
{
    struct load_client *client =
        bt_container_of(grave, struct load_client, grave);

    answer_fini(&client->answer);
    client_message_fini(&client->message);
    free(client);
}

static uint64_t since_start(const struct load_client *client, uint64_t now_us)
{
    return now_us - client->setup->start_us;
}

static void finish(struct load_client *client, enum verdict verdict)
{
    if (client->is_finished) {
        return;
    }
    client->is_finished = true;
    bt_timer_clear(&client->timer);
    bt_http_call_close(&client->call);
    client->row.verdict = verdict;
    client->row.stamps = client->answer.stamps;
    client->setup->on_finished(client->setup->owner, client);
    bt_loop_bury(client->setup->loop, &client->grave, destroy);
}

static void finish_why(struct load_client *client, enum verdict verdict,
                       const char *why)
{
    struct load_answer *answer = &client->answer;

    if (answer->why[0] == '\0') {
        (void)snprintf(answer->why, sizeof(answer->why), "%s", why);
    }
    finish(client, verdict);
}

static void on_head(void *owner, const struct bt_http_head *head)
{
    struct load_client *client = owner;

    answer_head(&client->answer, head->code,
                bt_http_field_get(head, BT_STR("content-type")),
                since_start(client, bt_clock_us()));
}

static void on_body(void *owner, struct bt_str bytes)
{
    struct load_client *client = owner;
    const uint64_t before = client->answer.content_events;

    answer_bytes(&client->answer, bytes, since_start(client, bt_clock_us()));
    if (client->answer.content_events == before) {
        return;
    }
    if (client->cancels) {
        finish_why(client, VERDICT_CANCELLED, "left after the first content");
        return;
    }
    if (client->setup->idle_ms != 0) {
        bt_timer_set(&client->timer, client->setup->idle_ms);
    }
}

static void on_end(void *owner)
{
    struct load_client *client = owner;

    answer_end(&client->answer, since_start(client, bt_clock_us()));
    const enum verdict verdict = answer_verdict(&client->answer);
    if (verdict == VERDICT_TRUNCATED) {
        finish_why(client, verdict, "no finish_reason or no [DONE]");
        return;
    }
    finish(client, verdict);
}

static enum verdict verdict_of_failure(const struct load_client *client,
                                       const struct bt_http_failure *failure)
{
    const enum verdict so_far = answer_verdict(&client->answer);

    if (failure->connecting) {
        return failure->status == BT_ERR_TIMEOUT ? VERDICT_CONNECT_TIMEOUT
                                                 : VERDICT_REFUSED;
    }
    if (so_far == VERDICT_ERROR_EVENT || so_far == VERDICT_HTTP_ERROR) {
        return so_far;
    }
    return failure->status == BT_ERR_PROTOCOL ? VERDICT_MALFORMED
                                              : VERDICT_TRUNCATED;
}

static bool send_now(struct load_client *client, bool fresh_only);

static void on_failed(void *owner, const struct bt_http_failure *failure)
{
    struct load_client *client = owner;

    if (failure->stale && !client->row.resent) {
        client->row.resent = true;
        bt_http_call_close(&client->call);
        if (send_now(client, true)) {
            return;
        }
    }
    finish_why(client, verdict_of_failure(client, failure),
               failure->reason == NULL ? bt_status_text(failure->status)
                                       : failure->reason);
}

static const struct bt_http_call_events events = {
    .on_head = on_head,
    .on_body = on_body,
    .on_end = on_end,
    .on_failed = on_failed,
};

static bool send_now(struct load_client *client, bool fresh_only)
{
    const struct bt_http_call_options options = {.fresh_only = fresh_only};
    const struct bt_buf *head = &client->message.head;
    const struct bt_buf *body = &client->message.body;

    client->iov[0] = (struct iovec){head->data + head->at, head->len};
    client->iov[1] = (struct iovec){body->data + body->at, body->len};
    return bt_http_call_open(client->setup->origin, &options, client->iov, 2,
                             &events, client, &client->call) == BT_OK;
}

static void on_due(struct bt_timer *timer)
{
    struct load_client *client =
        bt_container_of(timer, struct load_client, timer);

    if (client->answer.content_events == 0) {
        finish_why(client, VERDICT_TTFT_TIMEOUT, "no content in time");
        return;
    }
    finish_why(client, VERDICT_IDLE_TIMEOUT, "no further content in time");
}

void client_message_fini(struct client_message *message)
{
    bt_buf_fini(&message->head);
    bt_buf_fini(&message->body);
}

enum bt_status client_open(const struct client_setup *setup,
                           struct client_message *message,
                           const struct workload_item *item, bool cancels,
                           struct load_client **client_p)
{
    struct load_client *client = calloc(1, sizeof(*client));

    if (client == NULL) {
        return BT_ERR_NOMEM;
    }
    client->setup = setup;
    client->cancels = cancels;
    client->message = *message;
    client->row.item = *item;
    client->row.sent_us = since_start(client, bt_clock_us());
    answer_init(&client->answer, setup->wants_stream);
    bt_timer_init(&client->timer, setup->loop, on_due);
    if (!send_now(client, false)) {
        free(client);
        return BT_ERR_NOMEM;
    }
    *message = (struct client_message){0};
    if (setup->ttft_ms != 0) {
        bt_timer_set(&client->timer, setup->ttft_ms);
    }
    *client_p = client;
    return BT_OK;
}

void client_cancel(struct load_client *client)
{
    finish_why(client, VERDICT_CANCELLED, "given up by the bench");
}
