/*
 * proxy/exchange: every place against every event, every cell of the table of
 * consequences, and the rules of failover, release and commit, with a fake
 * sink, fake legs and a fake control thread. No socket is involved.
 */
#include "common/base/log.h"
#include "proxy/base/quota.h"
#include "proxy/exchange/exchange.h"
#include "proxy/worker.h"
#include "tests/support/fake_leg.h"
#include "tests/support/fake_sink.h"
#include "tests/support/harness.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define PER_SIDE 2

/* --- the fake control thread --- */

static struct {
    unsigned begun, prefilled, decoded, released, cancelled, first_tokens;
    enum release_reason reason;
    const struct engine *decode;
    struct orders_swept swept;
    uint64_t sweeps;
} told;

struct control_order *orders_begin(struct orders *orders,
                                   const struct handoff_begin *begin)
{
    (void)orders;
    ck_assert_uint_ne(begin->id.lo, 0);
    told.begun++;
    return malloc(1); /* only given back */
}

void orders_prefilled(struct orders *orders, struct handoff_id id,
                      uint64_t prefill_us)
{
    (void)orders;
    (void)id;
    (void)prefill_us;
    told.prefilled++;
}

void orders_decode(struct orders *orders, struct handoff_id id,
                   const struct engine *decode)
{
    (void)orders;
    (void)id;
    told.decoded++;
    told.decode = decode;
}

void orders_drop(struct control_order **release)
{
    free(*release);
    *release = NULL;
}

void orders_release(struct orders *orders, struct control_order **release,
                    enum release_reason reason, bool cancel_decode)
{
    (void)orders;
    orders_drop(release);
    told.released++;
    told.reason = reason;
    told.cancelled += cancel_decode ? 1 : 0;
}

void orders_first_token(struct orders *orders, struct handoff_id id,
                        uint64_t ttft_us)
{
    (void)orders;
    (void)id;
    (void)ttft_us;
    told.first_tokens++;
}

void orders_add_worker(struct orders *orders, struct bt_mailbox *worker)
{
    (void)orders;
    (void)worker;
}

void orders_forget_worker(struct orders *orders, struct bt_mailbox *worker)
{
    (void)orders;
    (void)worker;
}

void orders_want_room(struct orders *orders, struct bt_mailbox *worker)
{
    (void)orders;
    (void)worker;
}

void orders_tell_room(struct orders *orders)
{
    (void)orders;
}

void orders_swept(struct orders *orders, const struct orders_swept *swept)
{
    (void)orders;
    told.swept = *swept;
}

/* --- one worker over two P and two D --- */

static char urls[2 * PER_SIDE][32];
static struct engine_conf prefill_confs[PER_SIDE];
static struct engine_conf decode_confs[PER_SIDE];
static struct pool_conf pool_conf;
static struct config config;
static struct program program;
static struct bt_metrics *metrics;
static struct worker *worker;
static struct fake_sink fake;
static struct exchange *x;

static void setup(void)
{
    memset(&told, 0, sizeof(told));
    fake_legs_reset();
    for (int i = 0; i < PER_SIDE; i++) {
        (void)snprintf(urls[i], sizeof(urls[i]), "http://127.0.0.1:%d", 1 + i);
        (void)snprintf(urls[PER_SIDE + i], sizeof(urls[i]),
                       "http://127.0.0.1:%d", 101 + i);
        prefill_confs[i] = (struct engine_conf){.url = urls[i], .weight = 1};
        decode_confs[i] =
            (struct engine_conf){.url = urls[PER_SIDE + i], .weight = 1};
    }
    pool_conf = (struct pool_conf){
        .connector = CONNECTOR_NIXL,
        .prefill = {.engines = {prefill_confs, PER_SIDE}},
        .decode = {.engines = {decode_confs, PER_SIDE}},
        .handoff = {.on_failure = ON_FAILURE_RETRY, .lease_ms = 30000},
    };
    config = (struct config){
        .pools = {&pool_conf, 1},
        .limits = {.prefill_answer = 4096, .queue = 4},
        .timeouts = {.prefill = 1000,
                     .first_byte = 1000,
                     .idle = 1000,
                     .queue = 1000},
        .retry = {.attempts = 2, .budget_percent = 20},
    };
    program = (struct program){.config = &config, .access_fd = -1, .boot = 7};
    ck_assert_int_eq(fleet_open(&config, &program.fleet), BT_OK);
    metrics = stats_open();
    ck_assert_ptr_nonnull(metrics);
    ck_assert_int_eq(worker_open(&program, 0, NULL, 0, metrics, &worker),
                     BT_OK);
    fake_sink_init(&fake);
    x = NULL;
}

static void teardown(void)
{
    if (worker != NULL) {
        worker_close(&worker);
    }
    bt_metrics_close(&metrics);
    fleet_close(&program.fleet);
    fake_sink_fini(&fake);
    fake_legs_reset();
    ck_assert_uint_eq(atomic_load(&program.body_bytes), 0);
}

static void again(void)
{
    teardown();
    setup();
}

static struct engine *engine_at(enum engine_role role, size_t i)
{
    return pool_side(&program.fleet->pools[0], role)->engines[i];
}

static void use_baton(void)
{
    struct fleet *const fleet = program.fleet;

    pool_conf.connector = CONNECTOR_BATON;
    for (size_t i = 0; i < fleet->engine_count; i++) {
        atomic_store(&fleet->slots[i]->is_linked, true);
    }
    for (size_t d = 0; d < PER_SIDE; d++) {
        for (size_t p = 0; p < PER_SIDE; p++) {
            engine_set_paired(engine_at(ENGINE_DECODE, d),
                              engine_at(ENGINE_PREFILL, p), true);
        }
    }
}

static bool has(struct bt_str text, const char *needle)
{
    return bt_str_find(text, bt_str_of(needle)) < text.len;
}

/* For one more request of the same test. */
static void reset_sink(void)
{
    fake_sink_fini(&fake);
    fake_sink_init(&fake);
}

/* From now on, but for those that have a call. */
static void fill_all(enum engine_role role)
{
    for (size_t i = 0; i < PER_SIDE; i++) {
        (role == ENGINE_PREFILL ? prefill_confs : decode_confs)[i]
            .max_in_flight = 1;
        atomic_store(&engine_at(role, i)->in_flight, 1);
    }
}

/* --- where it is --- */

/* The combinations of the machines' states that a request passes. */
enum place {
    AT_NEW,
    AT_WAIT,
    AT_PREFILL,
    AT_DECODE,
    AT_STREAM,
    AT_HARVEST, /* P leg shut for writing, its answer read for 1 s */
    AT_LINGER,  /* D leg with a handoff: sent whole, then closed */
    AT_RELEASE, /* release leg open */
    AT_REPORT,  /* the pull's report may still come, or the client's end */
    AT_DONE,
};

static enum place place_of(const struct exchange *of)
{
    if (of->is_done) {
        return AT_DONE;
    }
    switch (of->client) {
    case C_READING:
        return AT_NEW;
    case C_QUEUED:
        return AT_WAIT;
    case C_COMMITTED:
        return AT_STREAM;
    case C_WAITING:
        return of->p == P_ASKED ? AT_PREFILL : AT_DECODE;
    case C_OVER:
    case C_STATES:
        break;
    }
    return leg_is_open(&of->release)   ? AT_RELEASE
           : leg_is_open(&of->prefill) ? AT_HARVEST
           : leg_is_open(&of->decode)  ? AT_LINGER
                                       : AT_REPORT;
}

/* --- events --- */

static void on(enum exchange_event_kind kind)
{
    struct control_news news = {.kind = NEWS_PULLED, .handoff = x->handoff};

    exchange_on(x, &(struct exchange_event){.kind = kind, .news = &news});
}

static void on_news(enum news_kind kind)
{
    const struct control_news news = {
        .kind = kind, .handoff = x->handoff, .engine = x->attempt.decode};

    exchange_on(x, &(struct exchange_event){.kind = XE_NEWS, .news = &news});
}

static void on_leg(struct leg *leg, struct leg_event event)
{
    leg->on_event(leg->owner, &event);
}

static void on_head(struct leg *leg, unsigned code, const char *type)
{
    const struct bt_http_field fields[] = {
        {BT_STR("Content-Type"), bt_str_of(type)},
        {BT_STR("Retry-After"), BT_STR("7")}};
    const struct bt_http_head head = {
        .code = code, .minor = 1, .fields = fields, .field_count = 2};

    leg->code = code;
    on_leg(leg, (struct leg_event){.kind = LEG_HEAD, .head = &head});
}

static void on_body(struct leg *leg, const char *text)
{
    on_leg(leg, (struct leg_event){.kind = LEG_BODY, .bytes = bt_str_of(text)});
}

static void on_sent(struct leg *leg)
{
    leg->is_sent = true;
    leg->sent_ms = bt_loop_now_ms(worker->local.loop);
    on_leg(leg, (struct leg_event){.kind = LEG_SENT});
}

static void on_end(struct leg *leg)
{
    leg->is_whole = true;
    on_leg(leg, (struct leg_event){.kind = LEG_END});
}

static void on_failed(struct leg *leg, bool is_stale, bool is_connecting)
{
    const struct bt_http_failure failure = {
        .status = BT_ERR_RESET, .connecting = is_connecting, .stale = is_stale};

    on_leg(leg, (struct leg_event){.kind = LEG_FAILED, .failure = &failure});
}

/* --- the way to each state --- */

#define PARAMS                                                \
    "{\"remote_engine_id\":\"e\",\"remote_block_ids\":[[1]]," \
    "\"remote_host\":\"127.0.0.1\",\"remote_port\":5600}"

static void open_with(const char *body)
{
    x = exchange_open(&worker->local, &fake.sink, ENDPOINT_COMPLETIONS);
    ck_assert_ptr_nonnull(x);
    x->target = BT_STR("/v1/completions");
    ck_assert_int_eq(exchange_take_body(x, bt_str_of(body)), FAULT_NONE);
}

static void start_with(const char *body)
{
    open_with(body);
    on(XE_START);
}

static void start(void)
{
    start_with("{\"model\":\"m\",\"prompt\":\"hello\",\"max_tokens\":9}");
}

/* One more request beside x, which becomes the older one. */
static struct exchange *start_another(struct fake_sink *sink)
{
    struct exchange *const older = x;

    fake_sink_init(sink);
    x = exchange_open(&worker->local, &sink->sink, ENDPOINT_COMPLETIONS);
    ck_assert_ptr_nonnull(x);
    x->target = BT_STR("/v1/completions");
    ck_assert_int_eq(exchange_take_body(x, BT_STR("{\"prompt\":\"x\"}")),
                     FAULT_NONE);
    on(XE_START);
    return older;
}

static void answer_prefill(const char *params)
{
    char text[512];

    (void)snprintf(text, sizeof(text), "{\"kv_transfer_params\":%s}", params);
    on_sent(&x->prefill);
    on_head(&x->prefill, 200, "application/json");
    on_body(&x->prefill, text);
    on_end(&x->prefill);
}

static void answer_baton(void)
{
    char text[256];

    (void)snprintf(text, sizeof(text), "{\"baton\":{\"handoff\":\"%s\"}}",
                   x->handoff_text);
    answer_prefill(text);
}

static void reach_decode(void)
{
    start();
    answer_prefill(PARAMS);
    ck_assert_int_eq(place_of(x), AT_DECODE);
}

static void reach_stream(void)
{
    reach_decode();
    on_sent(&x->decode);
    on_head(&x->decode, 200, "text/event-stream");
    on_body(&x->decode, "data: {\"t\":1}\n\n");
    ck_assert_int_eq(place_of(x), AT_STREAM);
}

static void reach_harvest(void)
{
    start();
    on_sent(&x->prefill);
    on(XE_CLIENT_GONE);
    ck_assert_int_eq(place_of(x), AT_HARVEST);
}

/* As a worker whose access log is written; the fd lives as long as we do. */
static void write_log(void)
{
    enum {
        log_fd = 200
    };
    const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);

    ck_assert_int_ge(nowhere, 0);
    ck_assert_int_eq(dup2(nowhere, log_fd), log_fd);
    (void)close(nowhere);
    worker->local.writes_log = true;
    access_log_close(&worker->front.access_log);
    ck_assert_int_eq(
        access_log_open(worker->local.loop, log_fd, &program.access_is_torn,
                        worker->local.metrics, &worker->front.access_log),
        BT_OK);
}

static void reach_report(void)
{
    use_baton();
    write_log();
    start();
    answer_baton();
    on_sent(&x->decode);
    on_head(&x->decode, 200, "application/json");
    on_body(&x->decode, "{}");
    on_end(&x->decode);
    ck_assert_int_eq(place_of(x), AT_REPORT);
}

static void reach(enum place state)
{
    switch (state) {
    case AT_NEW:
        open_with("{\"prompt\":\"x\"}");
        return;
    case AT_WAIT:
        for (int i = 0; i < PER_SIDE; i++) {
            prefill_confs[i].max_in_flight = 1;
            atomic_store(&program.fleet->slots[i]->in_flight, 1);
        }
        start();
        return;
    case AT_PREFILL:
        start();
        return;
    case AT_DECODE:
        reach_decode();
        return;
    case AT_STREAM:
        reach_stream();
        return;
    case AT_HARVEST:
        reach_harvest();
        return;
    case AT_LINGER:
        reach_decode();
        on(XE_CLIENT_GONE);
        return;
    case AT_RELEASE:
        reach_harvest();
        on_head(&x->prefill, 200, "application/json");
        on_body(&x->prefill, "{\"kv_transfer_params\":" PARAMS "}");
        on_end(&x->prefill);
        return;
    case AT_REPORT:
        reach_report();
        return;
    case AT_DONE:
        open_with("{}");
        on(XE_CLIENT_GONE);
        return;
    }
}

static struct leg *leg_of(enum place state)
{
    if (state == AT_PREFILL || state == AT_HARVEST) {
        return &x->prefill;
    }
    return state == AT_RELEASE ? &x->release : &x->decode;
}

/* No leg is open and nothing is counted. */
static void check_over(void)
{
    ck_assert(!leg_is_open(&x->prefill));
    ck_assert(!leg_is_open(&x->decode));
    ck_assert(!leg_is_open(&x->release));
    ck_assert_ptr_null(x->decode.reserved);
    ck_assert_ptr_null(x->prefill.reserved);
    ck_assert_uint_eq(worker->local.exchange_count + worker->local.tail_count,
                      0);
    ck_assert_uint_eq(worker->local.unsent_count, 0);
    ck_assert_uint_eq(worker->local.admission.count, 0);
    ck_assert_uint_eq(atomic_load(&program.body_bytes), 0);
    for (size_t i = 0; i < program.fleet->engine_count; i++) {
        ck_assert_uint_eq(atomic_load(&program.fleet->slots[i]->releases), 0);
    }
}

/* What must hold after any event: at most one verdict, and it was the last
 * word to the sink. */
static void check_invariants(void)
{
    ck_assert_uint_le(fake_sink_verdicts(&fake), 1);
    if (fake_sink_verdicts(&fake) == 1) {
        ck_assert_ptr_null(x->sink);
    }
    if (place_of(x) == AT_DONE) {
        check_over();
    }
}

/* --- every event at every place --- */

enum hit {
    HIT_START,
    HIT_ROOM,
    HIT_GONE,
    HIT_DEADLINE,
    HIT_NEWS,
    HIT_TURN,
    HIT_SENT,
    HIT_HEAD,
    HIT_BODY,
    HIT_END,
    HIT_FAILED,
    HIT_COUNT
};

static void hit(enum hit what, struct leg *leg)
{
    switch (what) {
    case HIT_START:
    case HIT_ROOM:
    case HIT_GONE:
    case HIT_DEADLINE:
    case HIT_NEWS:
        on((enum exchange_event_kind)what);
        return;
    case HIT_TURN:
        admission_look(&worker->local.admission);
        return;
    case HIT_SENT:
        on_sent(leg);
        return;
    case HIT_HEAD:
        on_head(leg, 200, "text/event-stream");
        return;
    case HIT_BODY:
        on_body(leg, "data: {\"a\":1}\n\n");
        return;
    case HIT_END:
        on_end(leg);
        return;
    case HIT_FAILED:
        on_failed(leg, false, false);
        return;
    case HIT_COUNT:
        return;
    }
}

static void try_event(enum place place, enum hit what)
{
    struct leg *leg;

    again();
    reach(place);
    ck_assert_int_eq(place_of(x), place);
    leg = leg_of(place);
    if (what >= HIT_SENT && !leg_is_open(leg)) {
        return; /* a leg that is closed says nothing */
    }
    hit(what, leg);
    check_invariants();
    /* A client that leaves then, and a worker that ends, end it all. */
    if (x->sink != NULL) {
        on(XE_CLIENT_GONE);
        check_invariants();
    }
    exchange_abort(x);
    ck_assert_int_eq(place_of(x), AT_DONE);
    check_invariants();
}

START_TEST(every_event_at_every_place_keeps_the_promises)
{
    for (int place = AT_NEW; place <= AT_DONE; place++) {
        for (int what = HIT_START; what < HIT_COUNT; what++) {
            try_event((enum place)place, (enum hit)what);
        }
    }
}
END_TEST

START_TEST(every_place_ends_by_its_deadlines)
{
    for (int state = AT_WAIT; state < AT_DONE; state++) {
        again();
        reach((enum place)state);
        for (int i = 0; i < 4 && place_of(x) != AT_DONE; i++) {
            ck_assert(bt_timer_is_set(&x->timer));
            on(XE_DEADLINE);
            check_invariants();
        }
        ck_assert_int_eq(place_of(x), AT_DONE);
    }
}
END_TEST

START_TEST(a_worker_that_ends_gives_every_client_a_verdict)
{
    for (int state = AT_NEW; state <= AT_STREAM; state++) {
        again();
        reach((enum place)state);
        exchange_abort(x);
        ck_assert_uint_eq(fake_sink_verdicts(&fake), 1);
        ck_assert_uint_eq(fake.code, state == AT_STREAM ? 200 : 503);
        check_invariants();
    }
}
END_TEST

/* --- every cell of the table of consequences --- */

/*
 * The table as the exchange asks it, and which cells it has been in: this
 * stands in for consequence.c.
 */
#define ROW(p, d, reading, queued, waiting, committed, over)                   \
    [P_##p][D_##d] = {DO_##reading, DO_##queued, DO_##waiting, DO_##committed, \
                      DO_##over},
static const enum consequence TABLE[P_STATES][D_STATES][C_STATES] = {
#include "proxy/exchange/consequence.def"
};
#undef ROW

static bool been_in[P_STATES][D_STATES][C_STATES];

enum consequence consequence_of(enum prefill_state p, enum decode_state d,
                                enum client_state client)
{
    been_in[p][d][client] = true;
    return TABLE[p][d][client];
}

/*
 * All that may happen to one request, of each kind of connector: from each
 * combination of states that was found, every event that may come there is
 * tried, by walking the whole way again.
 */
enum {
    WAY_MAX = 12,
    WAYS_MAX = 8192
};

struct way {
    unsigned char steps[WAY_MAX];
    unsigned count;
};

/* One thing that may happen, and when. */
enum when {
    ANY,
    READING,
    BEFORE_THE_END,
    COMMITTED,
    UNSENT,
    NO_HEAD,
    HEAD,
};

struct step {
    const char *name;
    enum leg_role role; /* LEG_ROLE_COUNT: of no leg */
    enum when when;
    void (*run)(struct leg *leg);
};

static void do_start(struct leg *leg)
{
    (void)leg;
    on(XE_START);
}

static void do_leave(struct leg *leg)
{
    (void)leg;
    on(XE_CLIENT_GONE);
}

static void do_room(struct leg *leg)
{
    (void)leg;
    on(XE_ROOM);
}

static void do_deadline(struct leg *leg)
{
    (void)leg;
    on(XE_DEADLINE);
}

static void do_fill(struct leg *leg)
{
    (void)leg;
    fill_all(ENGINE_PREFILL);
    fill_all(ENGINE_DECODE);
}

static void do_free(struct leg *leg)
{
    (void)leg;
    for (size_t i = 0; i < program.fleet->engine_count; i++) {
        atomic_store(&program.fleet->slots[i]->in_flight, 0);
    }
    admission_look(&worker->local.admission);
}

static void do_pulled(struct leg *leg)
{
    (void)leg;
    on_news(NEWS_PULLED);
}

static void do_hold_ended(struct leg *leg)
{
    (void)leg;
    on_news(NEWS_HOLD_ENDED);
}

static void do_decode_lost(struct leg *leg)
{
    (void)leg;
    on_news(NEWS_D_LOST);
}

static void do_events(struct leg *leg)
{
    on_head(leg, 200, "text/event-stream");
}

static void do_json(struct leg *leg)
{
    on_head(leg, 200, "application/json");
}

static void do_400(struct leg *leg)
{
    on_head(leg, 400, "application/json");
}

static void do_429(struct leg *leg)
{
    on_head(leg, 429, "application/json");
}

static void do_500(struct leg *leg)
{
    on_head(leg, 500, "application/json");
}

static void do_handoff(struct leg *leg)
{
    char text[256];

    if (x->answer.len == 0) {
        (void)snprintf(text, sizeof(text),
                       "{\"kv_transfer_params\":{\"baton\":{\"handoff\":"
                       "\"%s\"},%s}",
                       x->handoff_text, &PARAMS[1]);
        on_body(leg, text);
    }
}

static void do_body(struct leg *leg)
{
    on_body(leg, leg->code == 400  ? "kv_transfer_params: no"
                 : x->relay.is_sse ? "data: {}\n\n"
                                   : "{}");
}

static void do_refused(struct leg *leg)
{
    on_failed(leg, false, true);
}

static void do_lost(struct leg *leg)
{
    on_failed(leg, false, false);
}

static void do_stale(struct leg *leg)
{
    on_failed(leg, true, false);
}

static const struct step STEPS[] = {
    {"start", LEG_ROLE_COUNT, READING, do_start},
    {"client leaves", LEG_ROLE_COUNT, BEFORE_THE_END, do_leave},
    {"room", LEG_ROLE_COUNT, COMMITTED, do_room},
    {"deadline", LEG_ROLE_COUNT, ANY, do_deadline},
    {"engines are full", LEG_ROLE_COUNT, ANY, do_fill},
    {"engines have room", LEG_ROLE_COUNT, ANY, do_free},
    {"pulled", LEG_ROLE_COUNT, ANY, do_pulled},
    {"hold ended", LEG_ROLE_COUNT, ANY, do_hold_ended},
    {"D's link is lost", LEG_ROLE_COUNT, ANY, do_decode_lost},
    {"P is sent", LEG_PREFILL, UNSENT, on_sent},
    {"P 200", LEG_PREFILL, NO_HEAD, do_json},
    {"P 400", LEG_PREFILL, NO_HEAD, do_400},
    {"P 429", LEG_PREFILL, NO_HEAD, do_429},
    {"P 500", LEG_PREFILL, NO_HEAD, do_500},
    {"P's handoff", LEG_PREFILL, HEAD, do_handoff},
    {"P's end", LEG_PREFILL, HEAD, on_end},
    {"P refuses", LEG_PREFILL, NO_HEAD, do_refused},
    {"P is lost", LEG_PREFILL, ANY, do_lost},
    {"P is stale", LEG_PREFILL, NO_HEAD, do_stale},
    {"D is sent", LEG_DECODE, UNSENT, on_sent},
    {"D 200, events", LEG_DECODE, NO_HEAD, do_events},
    {"D 200, JSON", LEG_DECODE, NO_HEAD, do_json},
    {"D 400", LEG_DECODE, NO_HEAD, do_400},
    {"D 429", LEG_DECODE, NO_HEAD, do_429},
    {"D 500", LEG_DECODE, NO_HEAD, do_500},
    {"D's body", LEG_DECODE, HEAD, do_body},
    {"D's end", LEG_DECODE, HEAD, on_end},
    {"D refuses", LEG_DECODE, NO_HEAD, do_refused},
    {"D is lost", LEG_DECODE, ANY, do_lost},
    {"D is stale", LEG_DECODE, NO_HEAD, do_stale},
    {"the release ends", LEG_RELEASE, ANY, on_end},
};

static void walk_setup(int connector)
{
    again();
    bt_log_set_level(BT_LOG_ERROR);
    config.retry.attempts = 1;
    pool_conf.connector = connector;
    if (connector == CONNECTOR_BATON) {
        use_baton();
    }
    for (size_t i = 0; i < PER_SIDE; i++) {
        atomic_store(&engine_at(ENGINE_PREFILL, i)->bootstrap_id, "\"e\"");
    }
}

/* One more request, as the first. */
static void walk_begin(void)
{
    bt_loop_turn(worker->local.loop, 0);
    fake_legs_reset();
    reset_sink();
    for (size_t i = 0; i < program.fleet->engine_count; i++) {
        atomic_store(&program.fleet->slots[i]->in_flight, 0);
    }
    for (size_t i = 0; i < PER_SIDE; i++) {
        prefill_confs[i].max_in_flight = 0;
        decode_confs[i].max_in_flight = 0;
    }
    pool_local_init(&worker->local.pools[0], 0, 0);
    open_with("{\"prompt\":\"x\",\"max_tokens\":9}");
}

static struct leg *leg_in(enum leg_role role)
{
    if (role == LEG_PREFILL) {
        return &x->prefill;
    }
    if (role == LEG_DECODE) {
        return &x->decode;
    }
    return role == LEG_RELEASE ? &x->release : NULL;
}

/* Can it come now? */
static bool may_step(const struct step *step)
{
    const struct leg *const leg = leg_in(step->role);
    const bool is_asked = leg != NULL && leg_is_open(leg);

    ck_assert_ptr_nonnull(x);
    if (leg != NULL && !is_asked) {
        return false;
    }
    switch (step->when) {
    case ANY:
        return true;
    case READING:
        return x->client == C_READING;
    case BEFORE_THE_END:
        return x->client != C_OVER;
    case COMMITTED:
        return x->client == C_COMMITTED;
    case UNSENT:
        return is_asked && leg->code == 0 && !leg->is_sent;
    case NO_HEAD:
        return is_asked && leg->code == 0;
    case HEAD:
        return is_asked && leg->code != 0;
    }
    return false;
}

static void take_step(const struct step *step)
{
    step->run(leg_in(step->role));
    if (!x->is_done) {
        been_in[x->p][x->d][x->client] = true;
        ck_assert_msg(TABLE[x->p][x->d][x->client] != DO_NEVER,
                      "prefill %d, decode %d, client %d after: %s", (int)x->p,
                      (int)x->d, (int)x->client, step->name);
    }
    check_invariants();
}

/* What tells one combination from another, as far as the walk goes. */
static unsigned long fold(void)
{
    unsigned long key = (unsigned long)x->p;

    key = key * D_STATES + (unsigned long)x->d;
    key = key * C_STATES + (unsigned long)x->client;
    key = key * 6 + x->prefill.code / 100;
    key = key * 6 + x->decode.code / 100;
    key = key * 2 + (x->prefill.is_sent ? 1 : 0);
    key = key * 2 + (x->decode.is_sent ? 1 : 0);
    key = key * 2 + (x->answer.len > 0 ? 1 : 0);
    key = key * 2 + (x->is_pulled ? 1 : 0);
    key = key * 2 + (x->relay.held.len > 0 ? 1 : 0);
    key = key * 2 + (leg_is_open(&x->release) ? 1 : 0);
    key = key * 2 + (prefill_confs[0].max_in_flight > 0 ? 1 : 0);
    return key * 2 + (x->attempt.count > 0 ? 1 : 0);
}

static bool is_new(unsigned long key, unsigned long *keys, size_t *count)
{
    for (size_t i = 0; i < *count; i++) {
        if (keys[i] == key) {
            return false;
        }
    }
    ck_assert_uint_lt(*count, WAYS_MAX);
    keys[(*count)++] = key;
    return true;
}

static void walk_way(const struct way *way)
{
    walk_begin();
    for (unsigned i = 0; i < way->count; i++) {
        take_step(&STEPS[way->steps[i]]);
    }
}

/* However it ends, everything is given back. */
static void end_walk(void)
{
    if (x->sink != NULL && !x->is_done) {
        on(XE_CLIENT_GONE);
    }
    for (int i = 0; i < 6 && !x->is_done; i++) {
        on(XE_DEADLINE);
    }
    ck_assert(x->is_done);
    check_invariants();
}

/* Which steps may follow, one bit each. */
static uint64_t steps_after(const struct way *way)
{
    uint64_t steps = 0;

    walk_way(way);
    for (size_t i = 0; i < BT_ARRAY_LEN(STEPS); i++) {
        steps |= may_step(&STEPS[i]) ? UINT64_C(1) << i : 0;
    }
    end_walk();
    return steps;
}

static void walk(int connector)
{
    static struct way ways[WAYS_MAX];
    static unsigned long keys[WAYS_MAX];
    size_t key_count = 0;
    size_t count = 1;

    walk_setup(connector);
    ways[0].count = 0;
    for (size_t at = 0; at < count; at++) {
        const uint64_t steps = steps_after(&ways[at]);

        for (size_t step = 0; step < BT_ARRAY_LEN(STEPS); step++) {
            if ((steps >> step & 1) == 0) {
                continue;
            }
            walk_way(&ways[at]);
            take_step(&STEPS[step]);
            if (!x->is_done && ways[at].count < WAY_MAX &&
                is_new(fold(), keys, &key_count)) {
                ways[count] = ways[at];
                ways[count].steps[ways[count].count++] = (unsigned char)step;
                count++;
            }
            end_walk();
        }
    }
}

/* Reached, or one that can never be. */
static bool cell_is_right(int p, int d, int c)
{
    const bool may_be = TABLE[p][d][c] != DO_NEVER;

    if (been_in[p][d][c] != may_be) {
        (void)fprintf(stderr, "prefill %d, decode %d, client %d: %s\n", p, d, c,
                      may_be ? "not reached" : "reached");
    }
    return been_in[p][d][c] == may_be;
}

START_TEST(every_cell_of_the_table_is_reached_or_can_never_be)
{
    const int connectors[] = {CONNECTOR_NIXL, CONNECTOR_BATON,
                              CONNECTOR_MOONCAKE, CONNECTOR_NONE};
    unsigned wrong = 0;

    been_in[P_NONE][D_NONE][C_READING] = true;
    for (size_t i = 0; i < BT_ARRAY_LEN(connectors); i++) {
        walk(connectors[i]);
    }
    for (int p = 0; p < P_STATES; p++) {
        for (int d = 0; d < D_STATES; d++) {
            for (int c = 0; c < C_STATES; c++) {
                wrong += cell_is_right(p, d, c) ? 0 : 1;
            }
        }
    }
    bt_log_set_level(BT_LOG_INFO);
    ck_assert_uint_eq(wrong, 0);
}
END_TEST

/* --- the plain road --- */

START_TEST(a_request_goes_to_prefill_then_decode_then_back)
{
    start();
    ck_assert(
        has(bt_buf_str(&fake_legs()->body[LEG_PREFILL]), "\"max_tokens\":1"));
    ck_assert(has(bt_buf_str(&fake_legs()->body[LEG_PREFILL]),
                  "\"do_remote_decode\":true"));
    answer_prefill(PARAMS);
    ck_assert(has(bt_buf_str(&fake_legs()->body[LEG_DECODE]),
                  "\"max_tokens\":9,\"kv_transfer_params\":" PARAMS "}"));
    on_sent(&x->decode);
    on_head(&x->decode, 200, "application/json");
    on_body(&x->decode, "{\"t\":1,\"kv_transfer_params\":null}");
    on_end(&x->decode);
    ck_assert_int_eq(place_of(x), AT_DONE);
    ck_assert_uint_eq(fake.answers, 1);
    ck_assert_uint_eq(fake.code, 200);
    ck_assert(bt_str_eq(bt_buf_str(&fake.body), BT_STR("{\"t\":1}")));
    ck_assert(has(bt_buf_str(&fake.fields), "X-Baton-Route: pd\r\n"));
    check_invariants();
}
END_TEST

START_TEST(a_stream_commits_at_its_first_event_and_frees_the_body)
{
    reach_stream();
    ck_assert_uint_eq(fake.heads, 1);
    ck_assert_uint_eq(atomic_load(&program.body_bytes), 0);
    on_body(&x->decode, "data: [DONE]\n\n");
    on_end(&x->decode);
    ck_assert_uint_eq(fake.ends, 1);
    ck_assert_int_eq(place_of(x), AT_DONE);
}
END_TEST

START_TEST(a_slow_client_pauses_the_decode_leg)
{
    reach_stream();
    fake.is_full = true;
    on_body(&x->decode, "data: 2\n\n");
    ck_assert_uint_eq(fake_legs()->paused, 1);
    on(XE_DEADLINE);
    ck_assert_int_eq(place_of(x), AT_STREAM); /* it is not D that stalls */
    fake.is_full = false;
    on(XE_ROOM);
    ck_assert_uint_eq(fake_legs()->resumed, 1);
}
END_TEST

/* --- P fails --- */

START_TEST(a_refusal_of_prefill_is_the_clients)
{
    start();
    on_sent(&x->prefill);
    on_head(&x->prefill, 400, "text/plain");
    on_body(&x->prefill, "no such thing\n");
    on_end(&x->prefill);
    ck_assert_uint_eq(fake.code, 400);
    ck_assert(bt_str_eq(bt_buf_str(&fake.body), BT_STR("no such thing\n")));
    ck_assert(has(bt_buf_str(&fake.fields), "Content-Type: text/plain\r\n"));
    ck_assert_uint_eq(fake_legs()->opened[LEG_PREFILL], 1);
    ck_assert_uint_eq(fake_legs()->opened[LEG_DECODE], 0);
}
END_TEST

START_TEST(a_lost_prefill_moves_to_another_engine_with_a_new_handoff)
{
    const struct engine *first;
    char handoff[33];

    start();
    first = x->prefill.engine;
    memcpy(handoff, x->handoff_text, sizeof(handoff));
    on_failed(&x->prefill, false, true);
    ck_assert_int_eq(place_of(x), AT_PREFILL);
    ck_assert_ptr_ne(x->prefill.engine, first);
    ck_assert_str_ne(x->handoff_text, handoff);
    on_failed(&x->prefill, false, true);
    ck_assert_uint_eq(fake.code, 503);
    ck_assert_int_eq(place_of(x), AT_DONE);
    ck_assert_uint_eq(fake_legs()->opened[LEG_PREFILL], PER_SIDE);
}
END_TEST

/* As the control thread says it: its probes or its agents were asked. */
static void lose_engine(struct engine *engine)
{
    struct control_news *const news = calloc(1, sizeof(*news));

    ck_assert_ptr_nonnull(news);
    news->kind = NEWS_ENGINE_LOST;
    news->engine = engine;
    engine_mark_failed(engine, 1, "lost");
    bt_mailbox_post(worker->local.mailbox, &news->mail);
    bt_loop_turn(worker->local.loop, 0);
}

START_TEST(a_prefill_leg_leaves_an_engine_that_is_lost)
{
    struct engine *first;

    start();
    first = x->prefill.engine;
    lose_engine(engine_at(ENGINE_DECODE, 0));
    ck_assert_uint_eq(fake_legs()->opened[LEG_PREFILL], 1);
    lose_engine(first);
    ck_assert_int_eq(place_of(x), AT_PREFILL);
    ck_assert_ptr_ne(x->prefill.engine, first);
    ck_assert_uint_eq(fake_legs()->opened[LEG_PREFILL], 2);
}
END_TEST

START_TEST(a_decode_leg_without_a_byte_leaves_an_engine_that_is_lost)
{
    struct engine *first;

    reach_decode();
    on_sent(&x->decode); /* spent: P and D anew */
    first = x->decode.engine;
    lose_engine(first);
    ck_assert_int_eq(place_of(x), AT_PREFILL);
    answer_prefill(PARAMS);
    ck_assert_ptr_ne(x->decode.engine, first);
}
END_TEST

START_TEST(a_stream_stays_with_an_engine_that_is_lost)
{
    reach_stream();
    lose_engine(x->decode.engine);
    ck_assert_int_eq(place_of(x), AT_STREAM);
}
END_TEST

/* What the worker says of it: 0 unknown, 1 known, 2 used too. */
static int swept(const struct engine *engine)
{
    struct control_news *const news = calloc(1, sizeof(*news));

    ck_assert_ptr_nonnull(news);
    news->kind = NEWS_SWEEP;
    news->engine = engine;
    news->sweep = ++told.sweeps;
    bt_mailbox_post(worker->local.mailbox, &news->mail);
    bt_loop_turn(worker->local.loop, 0);
    ck_assert_uint_eq(told.swept.number, told.sweeps);
    return (told.swept.is_known ? 1 : 0) + (told.swept.is_used ? 1 : 0);
}

START_TEST(an_engine_is_used_until_its_part_is_done_and_known_until_the_end)
{
    const struct engine *prefill;
    const struct engine *decode;

    start();
    prefill = x->attempt.prefill;
    decode = x->attempt.decode;
    for (unsigned i = 0; i < program.fleet->engine_count; i++) {
        const struct engine *const engine = program.fleet->slots[i];

        ck_assert_int_eq(swept(engine),
                         engine == prefill || engine == decode ? 2 : 0);
    }
    answer_prefill(PARAMS); /* D reads P's blocks now */
    ck_assert_int_eq(swept(prefill), 2);
    ck_assert_int_eq(swept(decode), 2);
    on_sent(&x->decode);
    on_head(&x->decode, 200, "text/event-stream");
    on_body(&x->decode, "data: {\"t\":1}\n\n");
    ck_assert_int_eq(swept(prefill), 1);
    ck_assert_int_eq(swept(decode), 2);
    on_body(&x->decode, "data: [DONE]\n\n");
    on_end(&x->decode);
    ck_assert_int_eq(swept(prefill), 0);
    ck_assert_int_eq(swept(decode), 0);
}
END_TEST

START_TEST(an_engine_that_failed_a_request_is_used_by_it_no_more)
{
    const struct engine *first;

    start();
    first = x->attempt.prefill;
    on_sent(&x->prefill);
    on_failed(&x->prefill, false, false);
    ck_assert_ptr_ne(x->attempt.prefill, first);
    ck_assert_int_eq(swept(first), 0);
}
END_TEST

START_TEST(a_stream_ends_with_an_error_when_its_engine_is_cut)
{
    struct control_news *const news = calloc(1, sizeof(*news));

    ck_assert_ptr_nonnull(news);
    reach_stream();
    news->kind = NEWS_ENGINE_CUT;
    news->engine = x->attempt.decode;
    bt_mailbox_post(worker->local.mailbox, &news->mail);
    bt_loop_turn(worker->local.loop, 0);
    ck_assert(has(bt_buf_str(&fake.body), "\"error\""));
    ck_assert_uint_eq(fake.cuts, 1);
    ck_assert_uint_eq(worker->local.exchange_count, 0);
}
END_TEST

START_TEST(a_leg_stays_with_a_lost_engine_when_no_other_is_usable)
{
    start();
    for (size_t i = 0; i < PER_SIDE; i++) {
        engine_mark_failed(engine_at(ENGINE_PREFILL, i), 1, "lost");
    }
    lose_engine(x->prefill.engine);
    ck_assert_int_eq(place_of(x), AT_PREFILL);
    ck_assert_uint_eq(fake_legs()->opened[LEG_PREFILL], 1);
    answer_prefill(PARAMS);
    ck_assert_int_eq(place_of(x), AT_DECODE);
}
END_TEST

START_TEST(without_attempts_nothing_is_tried_again)
{
    config.retry.attempts = 0;
    start();
    on_failed(&x->prefill, false, true);
    ck_assert_uint_eq(fake.code, 503);
    again();
    pool_conf.handoff.on_failure = ON_FAILURE_ERROR;
    start();
    on_failed(&x->prefill, false, true);
    ck_assert_uint_eq(fake.code, 503);
    ck_assert_uint_eq(fake_legs()->opened[LEG_PREFILL], 1);
}
END_TEST

START_TEST(an_empty_budget_stops_retries)
{
    worker->local.pools[0].budget = 0;
    start();
    on_failed(&x->prefill, false, true);
    ck_assert_uint_eq(fake.code, 503);
}
END_TEST

START_TEST(a_stale_connection_is_a_resend_outside_the_budget)
{
    const struct engine *first;
    char handoff[33];

    worker->local.pools[0].budget = 0;
    start();
    first = x->prefill.engine;
    memcpy(handoff, x->handoff_text, sizeof(handoff));
    on_failed(&x->prefill, true, false);
    ck_assert_ptr_eq(x->prefill.engine, first);
    ck_assert_uint_eq(x->prefill.number, 2);
    ck_assert(fake_legs()->was_fresh);
    ck_assert_str_ne(x->handoff_text, handoff);
    ck_assert_int_eq(x->attempt.count, 0);
}
END_TEST

START_TEST(local_sends_to_decode_alone_when_prefill_is_used_up)
{
    pool_conf.handoff.on_failure = ON_FAILURE_LOCAL;
    start();
    on_failed(&x->prefill, false, true);
    on_failed(&x->prefill, false, true);
    ck_assert_int_eq(place_of(x), AT_DECODE);
    ck_assert_int_eq(x->attempt.reason, ROUTE_REASON_LOCAL);
    ck_assert(
        !has(bt_buf_str(&fake_legs()->body[LEG_DECODE]), "kv_transfer_params"));
}
END_TEST

START_TEST(a_busy_prefill_keeps_its_status_and_retry_after)
{
    start();
    on_head(&x->prefill, 503, "a/b");
    on_head(&x->prefill, 503, "a/b");
    ck_assert_uint_eq(fake.code, 503);
    ck_assert(has(bt_buf_str(&fake.fields), "Retry-After: 7\r\n"));
    again();
    start();
    on_head(&x->prefill, 429, "a/b");
    ck_assert_uint_eq(fake_legs()->opened[LEG_PREFILL], 2);
    on_head(&x->prefill, 429, "a/b");
    on_body(&x->prefill, "busy");
    on_end(&x->prefill);
    ck_assert_uint_eq(fake.code, 429);
    ck_assert(bt_str_eq(bt_buf_str(&fake.body), BT_STR("busy")));
}
END_TEST

START_TEST(an_answer_that_is_no_object_is_tried_elsewhere)
{
    start();
    on_sent(&x->prefill);
    on_head(&x->prefill, 200, "text/plain");
    on_body(&x->prefill, "hello");
    on_end(&x->prefill);
    ck_assert_int_eq(place_of(x), AT_PREFILL);
    answer_prefill("[1]");
    ck_assert_uint_eq(fake.code, 502);
    ck_assert_uint_eq(fake_legs()->opened[LEG_DECODE], 0);
}
END_TEST

START_TEST(an_endless_answer_of_prefill_is_given_up)
{
    char text[2048];

    memset(text, ' ', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    config.retry.attempts = 0;
    start();
    on_head(&x->prefill, 200, "application/json");
    for (int i = 0; i < 3 && place_of(x) == AT_PREFILL; i++) {
        on_body(&x->prefill, text);
    }
    ck_assert_uint_eq(fake.code, 502);
}
END_TEST

START_TEST(a_foreign_host_never_reaches_decode)
{
    config.retry.attempts = 0;
    start();
    answer_prefill("{\"remote_engine_id\":\"e\",\"remote_block_ids\":[],"
                   "\"remote_host\":\"10.66.66.66\",\"remote_port\":1}");
    ck_assert_uint_eq(fake.code, 502);
    ck_assert_uint_eq(fake_legs()->opened[LEG_DECODE], 0);
    ck_assert_uint_eq(fake_legs()->opened[LEG_RELEASE], 0);
}
END_TEST

START_TEST(no_handoff_means_decode_alone_unless_required)
{
    start();
    answer_prefill("null");
    ck_assert_int_eq(place_of(x), AT_DECODE);
    ck_assert_int_eq(x->attempt.reason, ROUTE_REASON_NO_HANDOFF);
    again();
    pool_conf.handoff.require = true;
    start();
    answer_prefill("{}");
    ck_assert_uint_eq(fake.code, 502);
}
END_TEST

START_TEST(forced_tools_that_prefill_cannot_parse_go_to_decode)
{
    const char *const body = "{\"prompt\":\"x\",\"tool_choice\":\"required\"}";

    start_with(body);
    on_head(&x->prefill, 400, "a/b");
    ck_assert_int_eq(place_of(x), AT_DECODE);
    ck_assert_int_eq(x->attempt.reason, ROUTE_REASON_TOOL_CHOICE);
    on_head(&x->decode, 400, "application/json");
    on_body(&x->decode, "{\"error\":{}}");
    on_end(&x->decode);
    ck_assert_uint_eq(fake.code, 400);
    reset_sink();
    start_with(body); /* D refused it too: nothing was learnt */
    ck_assert_int_eq(place_of(x), AT_PREFILL);
    on_head(&x->prefill, 500, "a/b");
    on_head(&x->decode, 200, "application/json");
    on_body(&x->decode, "{}");
    on_end(&x->decode);
    ck_assert_uint_eq(fake.code, 200);
    reset_sink();
    start_with(body);
    ck_assert_int_eq(place_of(x), AT_DECODE); /* remembered */
    ck_assert_uint_eq(fake_legs()->opened[LEG_PREFILL], 2);
}
END_TEST

/* --- D fails --- */

START_TEST(an_unspent_handoff_moves_to_another_decode_engine)
{
    const struct engine *first;

    reach_decode();
    first = x->decode.engine;
    on_failed(&x->decode, false, true);
    ck_assert_int_eq(place_of(x), AT_DECODE);
    ck_assert_ptr_ne(x->decode.engine, first);
    ck_assert_uint_eq(fake_legs()->opened[LEG_PREFILL], 1);
    ck_assert(has(bt_buf_str(&fake_legs()->body[LEG_DECODE]), PARAMS));
}
END_TEST

START_TEST(a_spent_handoff_is_never_used_twice)
{
    const struct engine *first;

    reach_decode();
    first = x->decode.engine;
    on_sent(&x->decode);
    on_failed(&x->decode, false, false);
    ck_assert_int_eq(place_of(x), AT_PREFILL);
    ck_assert_uint_eq(fake_legs()->opened[LEG_PREFILL], 2);
    ck_assert_uint_eq(x->params.len, 0);
    answer_prefill(PARAMS);
    ck_assert_ptr_ne(x->decode.engine, first);
}
END_TEST

START_TEST(whether_a_handoff_is_spent_is_asked_of_the_connection)
{
    reach_decode();
    x->decode.is_sent = true; /* and no event says so: the answer overtook it */
    on_head(&x->decode, 503, "a/b");
    ck_assert_int_eq(place_of(x), AT_PREFILL);
    ck_assert_uint_eq(fake_legs()->opened[LEG_PREFILL], 2);
}
END_TEST

static void check_ids(enum leg_role role, const char *tail)
{
    char id[64];

    (void)snprintf(id, sizeof(id), "%s-%s", x->inner_id, tail);
    ck_assert(
        bt_str_eq(bt_buf_str(&fake_legs()->request_id[role]), bt_str_of(id)));
}

START_TEST(the_legs_of_one_handoff_share_a_request_id)
{
    reach_decode();
    check_ids(LEG_PREFILL, "1");
    check_ids(LEG_DECODE, "1");
    on_failed(&x->decode, false, true); /* unspent: it moves */
    check_ids(LEG_DECODE, "1");
    again();
    reach_decode();
    on_sent(&x->decode);
    on_failed(&x->decode, false, false); /* spent: a new one */
    check_ids(LEG_PREFILL, "2");
    answer_prefill(PARAMS);
    check_ids(LEG_DECODE, "2");
    again();
    reach(AT_RELEASE);
    check_ids(LEG_RELEASE, "1");
    again();
    use_baton();
    start();
    answer_baton();
    check_ids(LEG_DECODE, "1");
    on_sent(&x->decode);
    on_failed(&x->decode, false, false);
    check_ids(LEG_DECODE, "1-r1"); /* the same handoff, another call */
}
END_TEST

START_TEST(a_call_of_decode_alone_has_a_request_id_of_its_own)
{
    start();
    answer_prefill("null");
    check_ids(LEG_PREFILL, "1");
    check_ids(LEG_DECODE, "2");
}
END_TEST

START_TEST(a_retry_takes_the_next_engine_and_no_turn)
{
    const uint64_t turn = worker->local.pools[0].prefill_turn;

    start();
    ck_assert_uint_eq(x->attempt.prefill->slot, turn % PER_SIDE);
    on_failed(&x->prefill, false, false);
    ck_assert_uint_eq(x->attempt.prefill->slot, (turn + 1) % PER_SIDE);
    ck_assert_uint_eq(worker->local.pools[0].prefill_turn, turn + 1);
}
END_TEST

START_TEST(a_failover_waits_for_a_prefill_engine_that_is_only_full)
{
    start();
    fill_all(ENGINE_PREFILL);
    on_failed(&x->prefill, false, false);
    ck_assert_int_eq(place_of(x), AT_WAIT);
    admission_look(&worker->local.admission);
    ck_assert_int_eq(place_of(x), AT_WAIT);
    for (size_t i = 0; i < PER_SIDE; i++) {
        atomic_store(&engine_at(ENGINE_PREFILL, i)->in_flight, 0);
    }
    admission_look(&worker->local.admission);
    ck_assert_int_eq(place_of(x), AT_PREFILL);
    ck_assert_int_eq(x->attempt.count, 1);
    check_ids(LEG_PREFILL, "2");
}
END_TEST

START_TEST(a_request_waits_when_others_take_the_last_place)
{
    fake_legs()->is_late = true;
    start();
    ck_assert_int_eq(place_of(x), AT_WAIT);
    admission_look(&worker->local.admission);
    ck_assert_int_eq(place_of(x), AT_WAIT);
    fake_legs()->is_late = false;
    admission_look(&worker->local.admission);
    ck_assert_int_eq(place_of(x), AT_PREFILL);
    fake_legs()->is_late = true;
    on_failed(&x->prefill, false, true);
    ck_assert_int_eq(place_of(x), AT_WAIT);
    on(XE_CLIENT_GONE);
}
END_TEST

START_TEST(the_place_kept_at_decode_is_given_up_where_another_is_looked_for)
{
    struct engine *const decode = engine_at(ENGINE_DECODE, 0);
    struct fake_sink other;

    decode_confs[0].max_in_flight = 1;
    atomic_store(&engine_at(ENGINE_DECODE, 1)->failed_at_ms, 1);
    start();
    ck_assert_uint_eq(atomic_load(&decode->in_flight), 1);
    (void)start_another(&other);
    ck_assert_int_eq(place_of(x), AT_WAIT);
    on(XE_CLIENT_GONE);
    fake_sink_fini(&other);
    again();
    decode_confs[0].max_in_flight = 1;
    atomic_store(&engine_at(ENGINE_DECODE, 1)->failed_at_ms, 1);
    start();
    on_failed(&x->prefill, false, true);
    ck_assert_int_eq(place_of(x), AT_PREFILL); /* it is not in its own way */
    on(XE_CLIENT_GONE);
    ck_assert_uint_eq(atomic_load(&engine_at(ENGINE_DECODE, 0)->in_flight), 0);
}
END_TEST

static void reach_wait_for_decode(void)
{
    fill_all(ENGINE_DECODE);
    on_failed(&x->decode, false, true);
    ck_assert_int_eq(place_of(x), AT_WAIT);
}

static void make_room_at_decode(void)
{
    for (size_t i = 0; i < PER_SIDE; i++) {
        atomic_store(&engine_at(ENGINE_DECODE, i)->in_flight, 0);
    }
    admission_look(&worker->local.admission);
}

START_TEST(a_handoff_waits_for_a_decode_engine_that_is_only_full)
{
    reach_decode();
    reach_wait_for_decode();
    make_room_at_decode();
    ck_assert_int_eq(place_of(x), AT_DECODE);
    ck_assert_uint_eq(fake_legs()->opened[LEG_PREFILL], 1);
    ck_assert(has(bt_buf_str(&fake_legs()->body[LEG_DECODE]), PARAMS));
}
END_TEST

START_TEST(a_stock_handoff_waits_no_longer_than_half_its_lease)
{
    reach_decode();
    reach_wait_for_decode();
    x->params_ms -= 15001;
    make_room_at_decode();
    ck_assert_int_eq(place_of(x), AT_PREFILL);
    ck_assert_uint_eq(x->params.len, 0);
}
END_TEST

START_TEST(a_hold_that_ends_while_it_waits_for_decode_is_made_anew)
{
    use_baton();
    start();
    answer_baton();
    reach_wait_for_decode();
    on_news(NEWS_HOLD_ENDED);
    make_room_at_decode();
    ck_assert_int_eq(place_of(x), AT_PREFILL);
    ck_assert_uint_eq(told.begun, 2);
    ck_assert_uint_eq(told.released, 1);
}
END_TEST

START_TEST(a_client_that_leaves_the_queue_releases_its_handoff)
{
    use_baton();
    start();
    answer_baton();
    reach_wait_for_decode();
    on(XE_CLIENT_GONE);
    ck_assert_uint_eq(told.released, 1);
    ck_assert_uint_eq(worker->local.admission.count, 0);
    check_invariants();
}
END_TEST

START_TEST(a_request_under_which_two_engines_died_is_given_up)
{
    config.retry.attempts = 9;
    start();
    on_failed(&x->prefill, false, false);
    ck_assert_int_eq(place_of(x), AT_PREFILL);
    answer_prefill(PARAMS);
    on_sent(&x->decode);
    on_failed(&x->decode, false, false);
    ck_assert_uint_eq(fake.code, 502);
    ck_assert_uint_eq(fake_legs()->opened[LEG_DECODE], 1);
}
END_TEST

START_TEST(an_engine_gone_after_a_stale_connection_died_under_the_request)
{
    config.retry.attempts = 9;
    start();
    on_failed(&x->prefill, true, false); /* it looks stale */
    on_failed(&x->prefill, false, true); /* nobody listens any more */
    ck_assert_uint_eq(x->attempt.deaths, 1);
    on_failed(&x->prefill, true, false);
    on_failed(&x->prefill, false, true);
    ck_assert_uint_eq(x->attempt.deaths, 2);
    ck_assert_uint_eq(fake.code, 503);
    ck_assert_uint_eq(fake_legs()->opened[LEG_PREFILL], 4);
}
END_TEST

/* The connection looked stale, and when P has made the handoff anew, D is found
 * to be gone: it died as one that refuses the second connection does. */
START_TEST(an_engine_gone_while_its_handoff_is_made_anew_died_under_the_request)
{
    config.retry.attempts = 9;
    reach_decode();
    on_sent(&x->decode);
    on_failed(&x->decode, true, false);
    ck_assert_int_eq(place_of(x), AT_PREFILL);
    engine_mark_failed(x->attempt.decode, 1, "lost");
    answer_prefill(PARAMS);
    ck_assert_int_eq(place_of(x), AT_DECODE);
    ck_assert_uint_eq(x->attempt.deaths, 1);
    on_sent(&x->decode);
    on_failed(&x->decode, false, false);
    ck_assert_uint_eq(fake.code, 502);
    ck_assert_uint_eq(fake_legs()->opened[LEG_DECODE], 2);
}
END_TEST

START_TEST(an_engine_that_refuses_connections_has_not_died_of_the_request)
{
    config.retry.attempts = 9;
    start();
    on_failed(&x->prefill, false, true);
    answer_prefill(PARAMS);
    on_failed(&x->decode, false, true);
    ck_assert_int_eq(place_of(x), AT_DECODE);
    ck_assert_uint_eq(x->attempt.deaths, 0);
}
END_TEST

START_TEST(one_engine_on_both_sides_serves_alone)
{
    for (size_t i = 0; i < PER_SIDE; i++) {
        engine_at(ENGINE_PREFILL, i)->place =
            engine_at(ENGINE_DECODE, i)->place;
    }
    start();
    ck_assert_int_eq(place_of(x), AT_PREFILL);
    ck_assert_uint_ne(x->attempt.prefill->place, x->attempt.decode->place);
    on_failed(&x->prefill, false, false); /* the other one is all there is */
    ck_assert_int_eq(place_of(x), AT_DECODE);
    ck_assert_int_eq(x->attempt.reason, ROUTE_REASON_SAME_ENGINE);
    ck_assert(!has(bt_buf_str(&fake_legs()->body[LEG_DECODE]), "kv_transfer"));
}
END_TEST

START_TEST(a_stale_connection_of_decode_keeps_a_baton_handoff)
{
    use_baton();
    start();
    answer_baton();
    on_sent(&x->decode);
    on_failed(&x->decode, true, false);
    ck_assert_int_eq(place_of(x), AT_DECODE);
    ck_assert(fake_legs()->was_fresh);
    ck_assert_uint_eq(told.begun, 1);
    ck_assert_int_eq(x->attempt.count, 0);
}
END_TEST

START_TEST(a_refusal_of_decode_releases_as_failed)
{
    use_baton();
    start();
    answer_baton();
    on_sent(&x->decode);
    on_head(&x->decode, 422, "application/json");
    on_body(&x->decode, "{}");
    on_end(&x->decode);
    ck_assert_uint_eq(fake.code, 422);
    ck_assert_uint_eq(told.released, 1);
    ck_assert_int_eq(told.reason, RELEASE_FAILED);
}
END_TEST

START_TEST(a_second_attempt_knows_nothing_of_the_first_ones_pull)
{
    use_baton();
    start();
    answer_baton();
    on_news(NEWS_PULL_FAILED);
    ck_assert_ptr_nonnull(x->pull);
    on_news(NEWS_HOLD_ENDED);
    on_failed(&x->decode, false, false);
    ck_assert_int_eq(place_of(x), AT_PREFILL);
    ck_assert_ptr_null(x->pull);
}
END_TEST

START_TEST(time_in_the_queue_is_a_duration_however_it_ends)
{
    reach(AT_WAIT);
    on(XE_DEADLINE);
    ck_assert_uint_eq(fake.code, 503);
    ck_assert_uint_lt(x->queued_us, 60000000);
    ck_assert_uint_eq(worker->local.admission.count, 0);
}
END_TEST

START_TEST(the_only_engines_429_is_passed_on_as_it_is)
{
    atomic_store(&engine_at(ENGINE_PREFILL, 1)->failed_at_ms, 1);
    atomic_store(&engine_at(ENGINE_DECODE, 1)->failed_at_ms, 1);
    config.retry.attempts = 0;
    start();
    on_head(&x->prefill, 429, "a/b");
    on_body(&x->prefill, "too many");
    on_end(&x->prefill);
    ck_assert_uint_eq(fake.code, 429);
    ck_assert(bt_str_eq(bt_buf_str(&fake.body), BT_STR("too many")));
    ck_assert(has(bt_buf_str(&fake.fields), "Retry-After: 7\r\n"));
    reset_sink();
    start();
    answer_prefill(PARAMS);
    on_sent(&x->decode);
    on_head(&x->decode, 429, "a/b");
    on_body(&x->decode, "too many");
    on_end(&x->decode);
    ck_assert_uint_eq(fake.code, 429);
    ck_assert(bt_str_eq(bt_buf_str(&fake.body), BT_STR("too many")));
}
END_TEST

/* P 0 and D 0 are one engine, and D 1 is down: P 0 hands over to nobody. */
static void share_first(void)
{
    engine_at(ENGINE_PREFILL, 0)->place = engine_at(ENGINE_DECODE, 0)->place;
    atomic_store(&engine_at(ENGINE_DECODE, 1)->failed_at_ms, 1);
}

START_TEST(a_429_that_is_passed_on_changes_nothing_else)
{
    share_first();
    config.retry.attempts = 0;
    start();
    ck_assert_ptr_eq(x->attempt.prefill, engine_at(ENGINE_PREFILL, 1));
    on_head(&x->prefill, 429, "a/b");
    ck_assert_int_eq(x->attempt.reason, ROUTE_REASON_PD);
    on_body(&x->prefill, "too m");
    on_failed(&x->prefill, false, false); /* its words are cut */
    ck_assert_uint_eq(fake.code, 502);
    again();
    share_first();
    config.retry.attempts = 0;
    start();
    on_head(&x->prefill, 429, "a/b");
    on_body(&x->prefill, "too many");
    on_end(&x->prefill);
    ck_assert_uint_eq(fake.code, 429);
    ck_assert(has(bt_buf_str(&fake.fields), "X-Baton-Route: pd\r\n"));
}
END_TEST

START_TEST(a_429_without_any_decode_left_is_passed_on_at_once)
{
    use_baton();
    pool_conf.handoff.on_failure = ON_FAILURE_LOCAL;
    start();
    for (size_t i = 0; i < PER_SIDE; i++) {
        atomic_store(&engine_at(ENGINE_DECODE, i)->is_linked, false);
    }
    on_head(&x->prefill, 429, "a/b");
    on_body(&x->prefill, "too many");
    ck_assert(leg_is_open(&x->prefill));
    on_end(&x->prefill);
    ck_assert_uint_eq(fake.code, 429);
    ck_assert(bt_str_eq(bt_buf_str(&fake.body), BT_STR("too many")));
}
END_TEST

START_TEST(a_baton_handoff_moves_while_its_hold_lives)
{
    const struct engine *first;

    use_baton();
    start();
    answer_baton();
    ck_assert_uint_eq(told.prefilled, 1);
    first = x->decode.engine;
    ck_assert_ptr_eq(told.decode, first);
    on_sent(&x->decode);
    on_failed(&x->decode, false, false);
    ck_assert_int_eq(place_of(x), AT_DECODE);
    ck_assert_ptr_ne(told.decode, first);
    ck_assert_uint_eq(fake_legs()->opened[LEG_PREFILL], 1);
    ck_assert_uint_eq(told.released, 0);
}
END_TEST

START_TEST(a_baton_handoff_whose_hold_ended_is_made_anew)
{
    use_baton();
    start();
    answer_baton();
    on_news(NEWS_HOLD_ENDED);
    on_failed(&x->decode, false, false);
    ck_assert_int_eq(place_of(x), AT_PREFILL);
    ck_assert_uint_eq(told.begun, 2);
}
END_TEST

/* D says that it could not read from P, and fails. */
static void fail_pull(void)
{
    const struct control_news news = {.kind = NEWS_PULL_FAILED,
                                      .handoff = x->handoff,
                                      .blames_prefill = true};

    exchange_on(x, &(struct exchange_event){.kind = XE_NEWS, .news = &news});
    on_sent(&x->decode);
    on_head(&x->decode, 500, "application/json");
    on_end(&x->decode);
}

START_TEST(a_pull_that_blames_prefill_clears_the_decode_engine)
{
    const struct engine *prefill;

    use_baton();
    start();
    answer_baton();
    prefill = x->prefill.engine;
    fail_pull();
    ck_assert_int_eq(place_of(x), AT_PREFILL);
    ck_assert_ptr_ne(x->prefill.engine, prefill);
    ck_assert_uint_eq(x->attempt.avoid_count, 1);
}
END_TEST

START_TEST(a_decode_engine_that_can_read_from_no_prefill_is_left)
{
    const struct engine *decode;

    use_baton();
    start();
    answer_baton();
    decode = x->decode.engine;
    fail_pull();
    answer_baton();
    ck_assert_ptr_eq(x->decode.engine, decode);
    fail_pull();
    ck_assert_int_eq(place_of(x), AT_PREFILL);
    answer_baton();
    ck_assert_ptr_ne(x->decode.engine, decode);
}
END_TEST

START_TEST(a_lost_link_of_decode_is_its_failure)
{
    use_baton();
    start();
    answer_baton();
    on_news(NEWS_D_LOST);
    ck_assert_uint_eq(fake_legs()->opened[LEG_DECODE], 2);
}
END_TEST

START_TEST(the_lost_link_of_a_decode_before_is_no_failure_of_this_one)
{
    struct control_news late;
    const struct exchange_event event = {.kind = XE_NEWS, .news = &late};

    use_baton();
    start();
    answer_baton();
    late = (struct control_news){.kind = NEWS_D_LOST,
                                 .handoff = x->handoff,
                                 .engine = x->attempt.decode};
    on_failed(&x->decode, false, false);
    ck_assert_ptr_ne(x->attempt.decode, late.engine);
    exchange_on(x, &event);
    ck_assert_int_eq(place_of(x), AT_DECODE);
    ck_assert_uint_eq(fake_legs()->opened[LEG_DECODE], 2);
    ck_assert_uint_eq(x->attempt.deaths, 1);
}
END_TEST

START_TEST(a_first_error_event_is_a_failure_before_commit)
{
    config.retry.attempts = 0;
    reach_decode();
    on_head(&x->decode, 200, "text/event-stream");
    on_body(&x->decode, "data: {\"error\":{\"code\":500}}\n\n");
    ck_assert_uint_eq(fake.answers, 1);
    ck_assert_uint_eq(fake.code, 500);
}
END_TEST

START_TEST(a_first_error_event_of_the_client_is_passed_on_whole)
{
    reach_decode();
    on_head(&x->decode, 200, "text/event-stream");
    on_body(&x->decode, "data: {\"error\":{\"code\":400,\"message\":\"no\"},"
                        "\"kv_transfer_params\":null}\n\n");
    ck_assert_uint_eq(fake.answers, 1);
    ck_assert_uint_eq(fake.code, 400);
    ck_assert(
        bt_str_eq(bt_buf_str(&fake.body),
                  BT_STR("{\"error\":{\"code\":400,\"message\":\"no\"}}")));
    ck_assert_uint_eq(fake_legs()->opened[LEG_DECODE], 1);
}
END_TEST

START_TEST(a_first_error_event_about_our_key_is_not_the_clients)
{
    reach_decode();
    x->attempt.decode->key = BT_STR("k");
    on_head(&x->decode, 200, "text/event-stream");
    on_body(&x->decode, "data: {\"error\":{\"code\":401}}\n\n");
    x->attempt.decode->key = (struct bt_str){0};
    ck_assert_uint_eq(fake.code, 502);
}
END_TEST

START_TEST(a_busy_decode_is_left_once_then_passed_on)
{
    reach_decode();
    on_head(&x->decode, 429, "a/b");
    ck_assert_int_eq(place_of(x), AT_DECODE);
    ck_assert_uint_eq(fake_legs()->opened[LEG_DECODE], 2);
    on_head(&x->decode, 429, "a/b");
    on_body(&x->decode, "busy");
    on_end(&x->decode);
    ck_assert_uint_eq(fake.code, 429);
    ck_assert(bt_str_eq(bt_buf_str(&fake.body), BT_STR("busy")));
}
END_TEST

START_TEST(a_refusal_of_decode_is_the_clients)
{
    reach_decode();
    on_sent(&x->decode);
    on_head(&x->decode, 404, "application/json");
    on_body(&x->decode, "{\"e\":1}");
    on_end(&x->decode);
    ck_assert_uint_eq(fake.code, 404);
    ck_assert_uint_eq(fake_legs()->opened[LEG_DECODE], 1);
}
END_TEST

START_TEST(a_stream_that_dies_gets_an_error_event_and_a_cut)
{
    reach_stream();
    on_failed(&x->decode, false, false);
    ck_assert(has(bt_buf_str(&fake.body), "data: {\"error\":"));
    ck_assert_uint_eq(fake.cuts, 1);
    ck_assert_int_eq(place_of(x), AT_DONE);
    ck_assert_uint_eq(fake_legs()->opened[LEG_DECODE], 1);
}
END_TEST

START_TEST(a_stream_that_breaks_behind_its_end_marker_is_whole)
{
    reach_stream();
    on_body(&x->decode, "data: [DONE]\n\n: and mo");
    on_failed(&x->decode, false, false);
    ck_assert_uint_eq(fake.ends, 1);
    ck_assert_int_eq(x->fault, FAULT_NONE);
    ck_assert(!has(bt_buf_str(&fake.body), "error"));
    again();
    reach_stream();
    on_body(&x->decode, "data: [DONE]\n\n");
    on(XE_DEADLINE); /* D does not end its answer */
    ck_assert_uint_eq(fake.ends, 1);
    ck_assert_int_eq(x->fault, FAULT_NONE);
    again();
    reach_stream();
    on_body(&x->decode, "data: {\"t\":\"[DONE]\"}\n\ndata: [1]\n\n");
    on_failed(&x->decode, false, false);
    ck_assert_uint_eq(fake.ends, 0);
    ck_assert_int_eq(x->fault, FAULT_STREAM_LOST);
}
END_TEST

START_TEST(a_refused_key_of_ours_is_not_the_clients_fault)
{
    struct engine *const engine = engine_at(ENGINE_PREFILL, 0);
    struct bt_str was;

    pool_conf.prefill.engines.count = PER_SIDE;
    start();
    was = x->attempt.prefill->key;
    x->attempt.prefill->key = BT_STR("secret");
    on_head(&x->prefill, 401, "a/b");
    ck_assert_uint_eq(fake.code, 502);
    ck_assert_ptr_nonnull(engine);
    engine_at(ENGINE_PREFILL, 0)->key = was;
    engine_at(ENGINE_PREFILL, 1)->key = was;
}
END_TEST

/* --- the client leaves --- */

START_TEST(a_client_that_leaves_during_prefill_strands_no_handoff)
{
    reach(AT_RELEASE);
    ck_assert_int_eq(place_of(x), AT_RELEASE);
    ck_assert_uint_eq(fake_legs()->shut, 1);
    ck_assert(has(bt_buf_str(&fake_legs()->body[LEG_RELEASE]), PARAMS));
    ck_assert(
        has(bt_buf_str(&fake_legs()->body[LEG_RELEASE]), "\"max_tokens\":1"));
    ck_assert(fake_legs()->was_fresh); /* a stale connection would lose it */
    ck_assert_uint_eq(fake_sink_verdicts(&fake), 0);
    on(XE_DEADLINE);
    ck_assert_int_eq(place_of(x), AT_DONE);
}
END_TEST

START_TEST(a_client_that_leaves_before_the_prefill_leg_is_sent_just_ends)
{
    start();
    on(XE_CLIENT_GONE);
    ck_assert_int_eq(place_of(x), AT_DONE);
}
END_TEST

START_TEST(a_decode_leg_with_a_handoff_is_sent_whole_before_it_is_closed)
{
    reach(AT_LINGER);
    ck_assert_int_eq(place_of(x), AT_LINGER);
    ck_assert(leg_is_open(&x->decode));
    on_sent(&x->decode);
    ck_assert(leg_is_open(&x->decode));
    on(XE_DEADLINE);
    ck_assert_int_eq(place_of(x), AT_DONE);
    ck_assert_uint_eq(fake_legs()->opened[LEG_RELEASE], 0);
}
END_TEST

START_TEST(a_client_that_leaves_with_baton_releases_and_cancels_at_once)
{
    use_baton();
    start();
    answer_baton();
    on(XE_CLIENT_GONE);
    ck_assert_int_eq(place_of(x), AT_DONE);
    ck_assert_uint_eq(told.released, 1);
    ck_assert_uint_eq(told.cancelled, 1);
    ck_assert_int_eq(told.reason, RELEASE_CANCELLED);
}
END_TEST

START_TEST(baton_is_released_at_the_first_event_or_by_control)
{
    use_baton();
    start();
    answer_baton();
    on_head(&x->decode, 200, "text/event-stream");
    on_body(&x->decode, "data: 1\n\n");
    ck_assert_uint_eq(told.released, 1);
    ck_assert_uint_eq(told.first_tokens, 1);
    on_end(&x->decode);
    ck_assert_uint_eq(told.released, 1);
    again();
    use_baton();
    start();
    answer_baton();
    on_news(NEWS_PULLED);
    on_head(&x->decode, 200, "text/event-stream");
    on_body(&x->decode, "data: 1\n\n");
    on_end(&x->decode);
    ck_assert_uint_eq(told.released, 0);
}
END_TEST

START_TEST(the_log_line_of_a_good_handoff_waits_for_the_report_of_its_pull)
{
    reach_report();
    ck_assert_uint_eq(fake.code, 200);
    ck_assert(!x->is_logged);
    on_news(NEWS_PULLED);
    ck_assert_int_eq(place_of(x), AT_DONE);
    ck_assert(x->is_logged);
    again();
    reach_report();
    on(XE_DEADLINE);
    ck_assert_int_eq(place_of(x), AT_DONE);
    ck_assert(x->is_logged);
}
END_TEST

/* As a client that has taken a part of its answer when it ends. */
static void end_unsent(void)
{
    write_log();
    reach_decode();
    on_sent(&x->decode);
    on_head(&x->decode, 200, "application/json");
    on_body(&x->decode, "{}");
    x->is_unsent = true;
    on_end(&x->decode);
    ck_assert_int_eq(place_of(x), AT_REPORT);
    ck_assert(!x->is_logged);
    ck_assert_uint_eq(atomic_load(&program.body_bytes), 0);
    ck_assert(!leg_is_open(&x->decode));
}

START_TEST(the_log_line_waits_until_the_client_has_its_answer)
{
    end_unsent();
    ck_assert_uint_eq(worker->local.unsent_count, 1);
    on(XE_ROOM);
    ck_assert_int_eq(place_of(x), AT_DONE);
    ck_assert_int_eq(x->fault, FAULT_NONE);
    check_over();
}
END_TEST

START_TEST(an_answer_that_the_client_did_not_take_has_its_fault)
{
    end_unsent();
    x->is_stuck = true;
    on(XE_CLIENT_GONE);
    ck_assert_int_eq(place_of(x), AT_DONE);
    ck_assert_int_eq(x->fault, FAULT_CLIENT_STALLED);
    ck_assert_uint_eq(x->code, 200);
}
END_TEST

START_TEST(a_client_that_leaves_before_it_has_its_answer_is_gone)
{
    end_unsent();
    on(XE_CLIENT_GONE);
    ck_assert_int_eq(x->fault, FAULT_CLIENT_GONE);
}
END_TEST

START_TEST(endings_beyond_their_limit_are_cut_short)
{
    struct exchange *first;

    config.limits.tails = 1;
    reach_harvest();
    first = x;
    start();
    on_sent(&x->prefill);
    on(XE_CLIENT_GONE);
    ck_assert_int_eq(place_of(x), AT_DONE);
    ck_assert_uint_eq(worker->local.tail_count, 1);
    ck_assert_int_eq(place_of(first), AT_HARVEST);
    ck_assert_uint_eq(fake_legs()->shut, 1);
    x = first;
    exchange_abort(x);
    check_over();
}
END_TEST

START_TEST(a_failed_pull_is_made_anew_by_the_same_engines_when_no_other_is_left)
{
    use_baton();
    start();
    for (unsigned i = 0; i < program.fleet->engine_count; i++) {
        if (i != x->attempt.prefill->slot && i != x->attempt.decode->slot) {
            atomic_store(&program.fleet->slots[i]->is_linked, false);
        }
    }
    answer_baton();
    on_sent(&x->decode);
    on_failed(&x->decode, false, false);
    ck_assert_uint_eq(told.released, 1);
    ck_assert_uint_eq(told.begun, 2);
    ck_assert_int_eq(place_of(x), AT_PREFILL);
}
END_TEST

START_TEST(an_unspent_handoff_is_released_when_no_decode_engine_is_left)
{
    config.retry.attempts = 0;
    reach_decode();
    on_failed(&x->decode, false, true);
    ck_assert_uint_eq(fake.code, 503);
    ck_assert_int_eq(place_of(x), AT_RELEASE);
    on_end(&x->release);
    ck_assert_int_eq(place_of(x), AT_DONE);
}
END_TEST

/* --- limits and refusals --- */

START_TEST(a_full_queue_refuses)
{
    config.limits.queue = 0;
    reach(AT_WAIT);
    ck_assert_uint_eq(fake.code, 503);
    ck_assert(has(bt_buf_str(&fake.fields), "Retry-After: 1\r\n"));
}
END_TEST

START_TEST(a_waiting_request_starts_when_there_is_room)
{
    reach(AT_WAIT);
    ck_assert_int_eq(place_of(x), AT_WAIT);
    atomic_store(&program.fleet->slots[0]->in_flight, 0);
    admission_look(&worker->local.admission);
    ck_assert_int_eq(place_of(x), AT_PREFILL);
    ck_assert_uint_eq(worker->local.admission.count, 0);
}
END_TEST

START_TEST(a_newcomer_does_not_go_ahead_of_one_that_waits)
{
    struct exchange *first;
    struct fake_sink other;

    reach(AT_WAIT);
    atomic_store(&program.fleet->slots[0]->in_flight, 0);
    first = start_another(&other);
    ck_assert_int_eq(place_of(x), AT_WAIT);
    admission_look(&worker->local.admission);
    ck_assert_int_eq(place_of(first), AT_PREFILL);
    on(XE_CLIENT_GONE);
    fake_sink_fini(&other);
}
END_TEST

START_TEST(one_that_waits_for_what_is_left_to_it_keeps_nobody_back)
{
    struct exchange *older;
    struct fake_sink second, third;
    struct engine *failed;

    start();
    failed = x->attempt.prefill;
    fill_all(ENGINE_PREFILL);
    on_failed(&x->prefill, false, true);
    ck_assert_int_eq(place_of(x), AT_WAIT);
    (void)start_another(&second);
    ck_assert_int_eq(place_of(x), AT_WAIT);
    atomic_store(&failed->in_flight, 0);
    admission_look(&worker->local.admission);
    ck_assert_int_eq(place_of(x), AT_PREFILL);
    older = start_another(&third);
    ck_assert_int_eq(place_of(x), AT_PREFILL);
    on(XE_CLIENT_GONE);
    x = older;
    on(XE_CLIENT_GONE);
    fake_sink_fini(&second);
    fake_sink_fini(&third);
}
END_TEST

START_TEST(newcomers_do_not_put_off_the_next_look_at_the_queue)
{
    struct fake_sink other;
    uint64_t due;

    reach(AT_WAIT);
    due = worker->local.admission.timer.due.at;
    while (bt_loop_now_ms(worker->local.loop) + 20 <= due) {
        bt_loop_turn(worker->local.loop, 1);
    }
    (void)start_another(&other);
    ck_assert_int_eq(place_of(x), AT_WAIT);
    ck_assert_uint_eq(worker->local.admission.timer.due.at, due);
    on(XE_CLIENT_GONE);
    fake_sink_fini(&other);
}
END_TEST

START_TEST(a_stale_unspent_handoff_past_half_its_lease_is_made_anew)
{
    reach_decode();
    x->params_ms -= 15001;
    on_failed(&x->decode, true, false);
    ck_assert_int_eq(place_of(x), AT_PREFILL);
    ck_assert_int_eq(x->attempt.count, 0);
}
END_TEST

START_TEST(bodies_together_are_bounded)
{
    config.limits.body_memory = 100;
    x = exchange_open(&worker->local, &fake.sink, ENDPOINT_CHAT);
    ck_assert_int_eq(exchange_reserve_body(x, 60), FAULT_NONE);
    ck_assert_int_eq(exchange_reserve_body(x, 101), FAULT_OVERLOADED);
    ck_assert_uint_eq(atomic_load(&program.body_bytes), 60);
    on(XE_CLIENT_GONE);
}
END_TEST

START_TEST(an_announced_body_is_charged_as_it_comes)
{
    static const char PIECE[100 * 1024];
    const uint64_t ahead = 16384;

    x = exchange_open(&worker->local, &fake.sink, ENDPOINT_CHAT);
    ck_assert_int_eq(exchange_reserve_body(x, sizeof(PIECE)), FAULT_NONE);
    ck_assert_uint_eq(atomic_load(&program.body_bytes), ahead);
    for (uint64_t came = 1000; came <= 100000; came += 1000) {
        ck_assert_int_eq(
            exchange_take_body(x, bt_str_span(bt_buf_tail(&x->body), 1000)),
            FAULT_NONE);
        ck_assert_uint_eq(x->body.len, came);
        ck_assert_uint_ge(atomic_load(&program.body_bytes), came);
        ck_assert_uint_le(atomic_load(&program.body_bytes), came + ahead);
    }
    on(XE_CLIENT_GONE);
}
END_TEST

START_TEST(a_body_of_unknown_length_is_charged_as_it_comes)
{
    static const char PIECE[1000];

    x = exchange_open(&worker->local, &fake.sink, ENDPOINT_CHAT);
    for (uint64_t came = 1000; came <= 100000; came += 1000) {
        ck_assert_int_eq(exchange_take_body(x, bt_str_span(PIECE, 1000)),
                         FAULT_NONE);
        ck_assert_uint_ge(atomic_load(&program.body_bytes), came);
        ck_assert_uint_le(atomic_load(&program.body_bytes), came + 16384);
    }
    on(XE_CLIENT_GONE);
}
END_TEST

START_TEST(the_bodies_of_one_address_are_bounded)
{
    const struct bt_addr addr = {.sa = {.ss_family = AF_INET}};
    struct quotas *quotas = quotas_open(0, 100);

    ck_assert_ptr_nonnull(quotas);
    x = exchange_open(&worker->local, &fake.sink, ENDPOINT_CHAT);
    ck_assert_int_eq(quota_enter(quotas, &addr, &x->quota), BT_OK);
    ck_assert_int_eq(exchange_reserve_body(x, 60), FAULT_NONE);
    ck_assert_int_eq(exchange_reserve_body(x, 101), FAULT_CLIENT_LIMIT);
    ck_assert_uint_eq(atomic_load(&program.body_bytes), 60);
    quota_leave(x->quota);
    on(XE_CLIENT_GONE);
    quotas_close(&quotas);
}
END_TEST

START_TEST(a_private_member_may_be_refused)
{
    pool_conf.handoff.client_params = CLIENT_PARAMS_REFUSE;
    start_with("{\"prompt\":\"x\",\"kv_transfer_params\":{}}");
    ck_assert_uint_eq(fake.code, 400);
    ck_assert_uint_eq(fake_legs()->opened[LEG_PREFILL], 0);
}
END_TEST

START_TEST(a_leg_that_cannot_be_opened_is_an_overload)
{
    fake_legs()->refuses = true;
    start();
    ck_assert_uint_eq(fake.code, 503);
    ck_assert_int_eq(place_of(x), AT_DONE);
}
END_TEST

/* --- answers that are looked at --- */

static void answer_decode(unsigned code, const char *text)
{
    on_sent(&x->decode);
    on_head(&x->decode, code, "application/json");
    on_body(&x->decode, text);
    on_end(&x->decode);
}

START_TEST(a_bad_answer_of_decode_is_tried_elsewhere_and_then_an_error)
{
    const char *const texts[] = {"{\"a\":[1", "", "{}{}", "no JSON",
                                 "\xef\xbb\xbf{}"};

    for (size_t i = 0; i < BT_ARRAY_LEN(texts); i++) {
        again();
        reach_decode();
        answer_decode(200, texts[i]);
        ck_assert_int_eq(place_of(x), AT_PREFILL); /* spent: P and D anew */
        answer_prefill(PARAMS);
        answer_decode(200, texts[i]);
        ck_assert_uint_eq(fake.answers, 1);
        ck_assert_uint_eq(fake.code, 502);
        ck_assert(has(bt_buf_str(&fake.body), "decode_bad_answer"));
        ck_assert(has(bt_buf_str(&fake.body), "not one whole JSON object"));
    }
}
END_TEST

START_TEST(a_cut_answer_has_its_fault_and_the_code_that_was_sent)
{
    static char text[RELAY_HOLD_MAX + 100];

    memset(text, 'y', sizeof(text));
    memcpy(text, "{\"t\":\"", 6);
    text[sizeof(text) - 1] = '\0';
    reach_decode();
    answer_decode(200, text);
    ck_assert_uint_eq(fake.cuts, 1);
    ck_assert_uint_eq(fake.ends, 0);
    ck_assert_int_eq(x->fault, FAULT_DECODE_BAD);
    ck_assert_uint_eq(x->code, 200);
    again();
    reach_decode();
    on_head(&x->decode, 200, "text/event-stream");
    on_body(&x->decode, "data: {}\n\ndata: {\"kv_transfer_params\":\n\n");
    ck_assert_uint_eq(fake.cuts, 1); /* one piece commits and breaks */
    ck_assert_int_eq(x->fault, FAULT_DECODE_BAD);
    ck_assert_uint_eq(fake_legs()->opened[LEG_DECODE], 1);
    again();
    reach_stream();
    on_body(&x->decode, "data: {\"kv_transfer_params\":\n\n");
    ck_assert_uint_eq(fake.cuts, 1);
    ck_assert_int_eq(x->fault, FAULT_DECODE_BAD);
    ck_assert_uint_eq(x->code, 200);
    ck_assert(has(bt_buf_str(&fake.body), "data: {\"error\":"));
}
END_TEST

START_TEST(what_decode_said_early_is_no_part_of_prefills_refusal)
{
    pool_conf.connector = CONNECTOR_MOONCAKE;
    for (size_t i = 0; i < PER_SIDE; i++) {
        atomic_store(&engine_at(ENGINE_PREFILL, i)->bootstrap_id, "\"p\"");
    }
    start();
    ck_assert(leg_is_open(&x->decode));
    on_sent(&x->prefill);
    on_sent(&x->decode);
    on_head(&x->decode, 200, "application/json");
    on_body(&x->decode, "{\"a\":");
    on_head(&x->prefill, 400, "application/json");
    on_body(&x->decode, "1}");
    on_body(&x->prefill, "{\"error\":\"bad\"}");
    on_end(&x->prefill);
    ck_assert_uint_eq(fake.code, 400);
    ck_assert(bt_str_eq(bt_buf_str(&fake.body), BT_STR("{\"error\":\"bad\"}")));
    ck_assert(!leg_is_open(&x->decode));
}
END_TEST

START_TEST(a_stream_that_begins_well_and_is_bad_in_one_read_is_cut)
{
    reach_decode();
    on_sent(&x->decode);
    on_head(&x->decode, 200, "text/event-stream");
    on_body(&x->decode, "data: {\"n\":1}\n\n"
                        "data: [{\"kv_transfer_params\":{\"a\":1}}]\n\n");
    ck_assert_uint_eq(fake.heads, 1);
    ck_assert_uint_eq(fake.cuts, 1);
    ck_assert(has(bt_buf_str(&fake.body), "data: {\"error\":"));
    ck_assert_int_eq(x->fault, FAULT_DECODE_BAD);
    ck_assert(!leg_is_open(&x->decode));
    again();
    reach_decode();
    on_sent(&x->decode);
    on_head(&x->decode, 200, "text/event-stream");
    on_body(&x->decode, "data: {\"n\":1}\n\ndata: [DONE]\n\n");
    ck_assert_int_eq(place_of(x), AT_STREAM);
    on_end(&x->decode);
    ck_assert_uint_eq(fake.ends, 1);
}
END_TEST

START_TEST(a_bad_answer_of_prefill_is_tried_elsewhere_and_then_an_error)
{
    const char *const texts[] = {
        "{\"kv_transfer_params\":" PARAMS,
        "{\"kv_transfer_params\":" PARAMS "} {}",
        "{\"kv_transfer_params\":" PARAMS "},",
        "\xef\xbb\xbf{\"kv_transfer_params\":" PARAMS "}",
        "\xff\xfe{}",
        "",
        "{\"kv_transfer_params\":" PARAMS ",\"kv\\u005ftransfer_params\":{}}"};

    for (size_t i = 0; i < BT_ARRAY_LEN(texts); i++) {
        again();
        start();
        for (int n = 0; n < 2; n++) {
            ck_assert_int_eq(place_of(x), AT_PREFILL);
            on_head(&x->prefill, 200, "application/json");
            on_body(&x->prefill, texts[i]);
            on_end(&x->prefill);
        }
        ck_assert_uint_eq(fake.code, 502);
        ck_assert(has(bt_buf_str(&fake.body), "prefill_bad_answer"));
        ck_assert_uint_eq(fake_legs()->opened[LEG_DECODE], 0);
    }
}
END_TEST

#define ECHO                                     \
    "{\"error\":{\"message\":\"{'prompt': 'x', " \
    "'kv_transfer_params': {'remote_host': '10.0.0.1'}}\"}}"

static void check_ours(unsigned code)
{
    ck_assert_uint_eq(fake.answers, 1);
    ck_assert_uint_eq(fake.code, code);
    ck_assert(has(bt_buf_str(&fake.body), "engine_refused"));
    ck_assert(!has(bt_buf_str(&fake.body), "10.0.0.1"));
    ck_assert(!has(bt_buf_str(&fake.body), "transfer_params"));
}

START_TEST(an_error_that_tells_what_is_private_becomes_one_of_ours)
{
    const unsigned codes[] = {400, 404, 422};

    for (size_t i = 0; i < BT_ARRAY_LEN(codes); i++) {
        again();
        start();
        on_head(&x->prefill, codes[i], "application/json");
        on_body(&x->prefill, ECHO);
        on_end(&x->prefill);
        check_ours(codes[i]);
        again();
        reach_decode();
        answer_decode(codes[i], ECHO);
        check_ours(codes[i]);
    }
    again();
    reach_decode();
    on_head(&x->decode, 200, "text/event-stream");
    on_body(&x->decode,
            "data: {\"error\":{\"code\":400,\n"
            "data: \"message\":\"'prompt': 'x', 'remote_host': '10.0.0.1'\"}}"
            "\n\n");
    check_ours(400);
}
END_TEST

START_TEST(an_error_that_tells_nothing_private_passes_as_it_is)
{
    reach_decode();
    answer_decode(400, "<h1>no</h1>");
    ck_assert_uint_eq(fake.code, 400);
    ck_assert(bt_str_eq(bt_buf_str(&fake.body), BT_STR("<h1>no</h1>")));
    again();
    reach_decode();
    answer_decode(404, "{\"kv_transfer_params\":null,\"error\":{\"a\":1.0}}");
    ck_assert_uint_eq(fake.code, 404);
    ck_assert(
        bt_str_eq(bt_buf_str(&fake.body), BT_STR("{\"error\":{\"a\":1.0}}")));
}
END_TEST

START_TEST(the_words_of_a_failed_engine_are_waited_for_shortly)
{
    const enum hit ends[] = {HIT_END, HIT_FAILED, HIT_DEADLINE};

    for (size_t i = 0; i < BT_ARRAY_LEN(ends); i++) {
        again();
        start();
        for (unsigned n = 1; n <= 2; n++) {
            ck_assert_uint_eq(fake_legs()->opened[LEG_PREFILL], n);
            on_head(&x->prefill, 500, "application/json");
            on_body(&x->prefill, "{\"error\":");
            ck_assert_uint_eq(fake_legs()->opened[LEG_PREFILL], n);
            hit(ends[i], &x->prefill);
        }
        ck_assert_uint_eq(fake.code, 502);
        ck_assert(has(bt_buf_str(&fake.body), "it answered 500"));
        again();
        reach_decode();
        on_sent(&x->decode);
        on_head(&x->decode, 500, "application/json");
        on_body(&x->decode, "{\"error\":");
        ck_assert_int_eq(place_of(x), AT_DECODE);
        hit(ends[i], &x->decode);
        ck_assert_int_eq(place_of(x), AT_PREFILL);
    }
}
END_TEST

START_TEST(decode_that_refuses_the_params_blames_prefill)
{
    const char *const words =
        "{\"error\":{\"message\":\"kv_transfer_params.remote_port is bad\"}}";
    const struct engine *first;

    reach_decode();
    first = x->prefill.engine;
    answer_decode(400, words);
    ck_assert_int_eq(place_of(x), AT_PREFILL);
    ck_assert_ptr_ne(x->prefill.engine, first);
    answer_prefill(PARAMS);
    answer_decode(422, words);
    ck_assert_uint_eq(fake.code, 502);
    ck_assert(has(bt_buf_str(&fake.body), "prefill_bad_answer"));
    ck_assert_uint_eq(fake_legs()->opened[LEG_RELEASE], 0); /* spent */
}
END_TEST

START_TEST(decode_alone_that_refuses_blames_nobody_else)
{
    start();
    answer_prefill("null");
    ck_assert_int_eq(place_of(x), AT_DECODE);
    answer_decode(400, "kv_transfer_params is missing");
    check_ours(400);
    ck_assert_uint_eq(fake_legs()->opened[LEG_PREFILL], 1);
}
END_TEST

HARNESS_MAIN_WITH(
    "exchange", setup, teardown,
    every_cell_of_the_table_is_reached_or_can_never_be,
    every_event_at_every_place_keeps_the_promises,
    every_place_ends_by_its_deadlines,
    a_bad_answer_of_decode_is_tried_elsewhere_and_then_an_error,
    a_cut_answer_has_its_fault_and_the_code_that_was_sent,
    what_decode_said_early_is_no_part_of_prefills_refusal,
    a_stream_that_begins_well_and_is_bad_in_one_read_is_cut,
    a_bad_answer_of_prefill_is_tried_elsewhere_and_then_an_error,
    an_error_that_tells_what_is_private_becomes_one_of_ours,
    an_error_that_tells_nothing_private_passes_as_it_is,
    the_words_of_a_failed_engine_are_waited_for_shortly,
    decode_that_refuses_the_params_blames_prefill,
    decode_alone_that_refuses_blames_nobody_else,
    a_worker_that_ends_gives_every_client_a_verdict,
    a_request_goes_to_prefill_then_decode_then_back,
    a_stream_commits_at_its_first_event_and_frees_the_body,
    a_slow_client_pauses_the_decode_leg, a_refusal_of_prefill_is_the_clients,
    a_lost_prefill_moves_to_another_engine_with_a_new_handoff,
    a_prefill_leg_leaves_an_engine_that_is_lost,
    a_decode_leg_without_a_byte_leaves_an_engine_that_is_lost,
    a_stream_stays_with_an_engine_that_is_lost,
    an_engine_is_used_until_its_part_is_done_and_known_until_the_end,
    an_engine_that_failed_a_request_is_used_by_it_no_more,
    a_stream_ends_with_an_error_when_its_engine_is_cut,
    a_leg_stays_with_a_lost_engine_when_no_other_is_usable,
    without_attempts_nothing_is_tried_again, an_empty_budget_stops_retries,
    a_stale_connection_is_a_resend_outside_the_budget,
    local_sends_to_decode_alone_when_prefill_is_used_up,
    a_busy_prefill_keeps_its_status_and_retry_after,
    an_answer_that_is_no_object_is_tried_elsewhere,
    an_endless_answer_of_prefill_is_given_up,
    a_foreign_host_never_reaches_decode,
    no_handoff_means_decode_alone_unless_required,
    forced_tools_that_prefill_cannot_parse_go_to_decode,
    an_unspent_handoff_moves_to_another_decode_engine,
    a_spent_handoff_is_never_used_twice,
    whether_a_handoff_is_spent_is_asked_of_the_connection,
    the_legs_of_one_handoff_share_a_request_id,
    a_call_of_decode_alone_has_a_request_id_of_its_own,
    a_retry_takes_the_next_engine_and_no_turn,
    a_failover_waits_for_a_prefill_engine_that_is_only_full,
    the_place_kept_at_decode_is_given_up_where_another_is_looked_for,
    a_request_waits_when_others_take_the_last_place,
    a_handoff_waits_for_a_decode_engine_that_is_only_full,
    a_stock_handoff_waits_no_longer_than_half_its_lease,
    a_hold_that_ends_while_it_waits_for_decode_is_made_anew,
    a_client_that_leaves_the_queue_releases_its_handoff,
    a_request_under_which_two_engines_died_is_given_up,
    an_engine_gone_after_a_stale_connection_died_under_the_request,
    an_engine_gone_while_its_handoff_is_made_anew_died_under_the_request,
    an_engine_that_refuses_connections_has_not_died_of_the_request,
    one_engine_on_both_sides_serves_alone,
    a_stale_connection_of_decode_keeps_a_baton_handoff,
    a_refusal_of_decode_releases_as_failed,
    a_second_attempt_knows_nothing_of_the_first_ones_pull,
    time_in_the_queue_is_a_duration_however_it_ends,
    the_only_engines_429_is_passed_on_as_it_is,
    a_429_that_is_passed_on_changes_nothing_else,
    a_429_without_any_decode_left_is_passed_on_at_once,
    a_baton_handoff_moves_while_its_hold_lives,
    a_baton_handoff_whose_hold_ended_is_made_anew,
    a_pull_that_blames_prefill_clears_the_decode_engine,
    a_decode_engine_that_can_read_from_no_prefill_is_left,
    a_lost_link_of_decode_is_its_failure,
    the_lost_link_of_a_decode_before_is_no_failure_of_this_one,
    a_first_error_event_is_a_failure_before_commit,
    a_first_error_event_of_the_client_is_passed_on_whole,
    a_first_error_event_about_our_key_is_not_the_clients,
    a_busy_decode_is_left_once_then_passed_on,
    a_refusal_of_decode_is_the_clients,
    a_stream_that_dies_gets_an_error_event_and_a_cut,
    a_stream_that_breaks_behind_its_end_marker_is_whole,
    a_refused_key_of_ours_is_not_the_clients_fault,
    a_client_that_leaves_during_prefill_strands_no_handoff,
    a_client_that_leaves_before_the_prefill_leg_is_sent_just_ends,
    a_decode_leg_with_a_handoff_is_sent_whole_before_it_is_closed,
    a_client_that_leaves_with_baton_releases_and_cancels_at_once,
    baton_is_released_at_the_first_event_or_by_control,
    the_log_line_of_a_good_handoff_waits_for_the_report_of_its_pull,
    the_log_line_waits_until_the_client_has_its_answer,
    an_answer_that_the_client_did_not_take_has_its_fault,
    a_client_that_leaves_before_it_has_its_answer_is_gone,
    endings_beyond_their_limit_are_cut_short,
    a_failed_pull_is_made_anew_by_the_same_engines_when_no_other_is_left,
    an_unspent_handoff_is_released_when_no_decode_engine_is_left,
    a_full_queue_refuses, a_waiting_request_starts_when_there_is_room,
    a_newcomer_does_not_go_ahead_of_one_that_waits,
    one_that_waits_for_what_is_left_to_it_keeps_nobody_back,
    newcomers_do_not_put_off_the_next_look_at_the_queue,
    a_stale_unspent_handoff_past_half_its_lease_is_made_anew,
    bodies_together_are_bounded, an_announced_body_is_charged_as_it_comes,
    a_body_of_unknown_length_is_charged_as_it_comes,
    the_bodies_of_one_address_are_bounded, a_private_member_may_be_refused,
    a_leg_that_cannot_be_opened_is_an_overload)
