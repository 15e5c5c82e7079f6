/*
 * Cards as text. Every number of a foreign card is checked here, so that sums
 * and products of its numbers cannot overflow anywhere else.
 */
#include "agent/src/geometry/card.h"

#include "agent/link/link_message.h"
#include "agent/src/geometry/wire.h"
#include "common/json/json_write.h"

#include <inttypes.h>
#include <string.h>

#define NAME(member) link_member_name(LINK_MEMBER_##member)

bool bta_engine_is_valid(struct bt_str engine)
{
    if (engine.len == 0 || engine.len > LINK_ENGINE_MAX) {
        return false;
    }
    for (size_t i = 0; i < engine.len; i++) {
        if (engine.ptr[i] < 0x20 || engine.ptr[i] > 0x7e) {
            return false;
        }
    }
    return true;
}

static const char *const kind_names[] = {
    [BATON_KIND_K] = "k",         [BATON_KIND_V] = "v",
    [BATON_KIND_KV] = "kv",       [BATON_KIND_LATENT] = "latent",
    [BATON_KIND_INDEX] = "index", [BATON_KIND_STATE] = "state",
};
static const char *const memory_names[] = {
    [BATON_MEMORY_HOST] = "host",
    [BATON_MEMORY_CUDA] = "cuda",
};
static const char *const role_names[] = {
    [BATON_ROLE_PREFILL] = "prefill",
    [BATON_ROLE_DECODE] = "decode",
    [BATON_ROLE_BOTH] = "both",
    [BATON_ROLE_SCHEDULER] = "scheduler",
};

/* --- layouts --- */

/* Things that a block is made of: its heads, or itself. */
static uint64_t parts_of(const baton_layout *layout)
{
    return layout->heads == 0 ? 1 : layout->heads;
}

baton_layout bta_layout_filled(const baton_layout *layout)
{
    baton_layout filled = *layout;

    if (filled.model_heads == 0 &&
        filled.heads <= UINT32_MAX - filled.first_head) {
        filled.model_heads = filled.first_head + filled.heads;
    }
    /* What there is one of has no stride. */
    if (filled.token_stride == 0 || filled.block_tokens <= 1) {
        filled.token_stride = filled.token_bytes;
    }
    if (filled.head_stride == 0 || filled.heads <= 1) {
        filled.head_stride = (uint64_t)filled.block_tokens * filled.token_bytes;
    }
    if (filled.block_stride == 0 &&
        __builtin_mul_overflow((uint64_t)filled.block_tokens *
                                   filled.token_bytes,
                               parts_of(&filled), &filled.block_stride)) {
        filled.block_stride = 0; /* and the check will say so */
    }
    return filled;
}

/* Is a kind's division into heads what it must be? */
static bool heads_checked(const baton_layout *layout)
{
    switch (layout->kind) {
    case BATON_KIND_K:
    case BATON_KIND_V:
    case BATON_KIND_KV:
        return layout->heads > 0;
    case BATON_KIND_LATENT:
        return layout->heads == 0;
    default:
        return true;
    }
}

/* From the first byte of a block to behind its last one; false: overflow. */
static bool span_of(const baton_layout *layout, uint64_t *span_p)
{
    uint64_t heads, tokens;

    return !__builtin_mul_overflow(parts_of(layout) - 1, layout->head_stride,
                                   &heads) &&
           !__builtin_mul_overflow((uint64_t)layout->block_tokens - 1,
                                   layout->token_stride, &tokens) &&
           !__builtin_add_overflow(heads, tokens, span_p) &&
           !__builtin_add_overflow(*span_p, (uint64_t)layout->token_bytes,
                                   span_p);
}

const char *bta_layout_check(const baton_layout *layout)
{
    uint64_t bytes;

    if (layout->kind >= BT_ARRAY_LEN(kind_names) &&
        (layout->kind < BATON_KIND_NAMED || layout->kind > BATON_KIND_MAX)) {
        return "unknown kind";
    }
    if (!heads_checked(layout)) {
        return "k, v and kv have heads, a latent has none";
    }
    if (layout->model_heads < layout->heads ||
        layout->first_head > layout->model_heads - layout->heads) {
        return "first_head and heads are not within model_heads";
    }
    if (layout->block_tokens == 0 || layout->token_bytes == 0 ||
        layout->blocks == 0 || layout->blocks > UINT32_MAX) {
        return "block_tokens, token_bytes and blocks start at 1";
    }
    if (layout->token_stride < layout->token_bytes ||
        layout->head_stride < layout->token_bytes || !span_of(layout, &bytes)) {
        return "token_stride or head_stride is smaller than a token's bytes, "
               "or a block does not fit 64 bits";
    }
    if (layout->block_stride < bytes) {
        return "block_stride is smaller than a block";
    }
    if (__builtin_mul_overflow(layout->blocks, layout->block_stride, &bytes)) {
        return "blocks * block_stride does not fit 64 bits";
    }
    return NULL;
}

uint64_t bta_layout_block_bytes(const baton_layout *layout)
{
    uint64_t bytes = 0;

    (void)span_of(layout, &bytes);
    return bytes;
}

bool bta_layout_is_dense(const baton_layout *layout)
{
    const uint64_t bytes = layout->token_bytes;
    const bool is_head_major =
        layout->token_stride == bytes &&
        layout->head_stride == layout->block_tokens * bytes;
    const bool is_token_major =
        layout->head_stride == bytes &&
        layout->token_stride == parts_of(layout) * bytes;

    return is_head_major || is_token_major;
}

uint64_t bta_layout_length(const baton_layout *layout)
{
    return (layout->blocks - 1) * layout->block_stride +
           bta_layout_block_bytes(layout);
}

const char *bta_layout_differs(const baton_layout *a, const baton_layout *b)
{
#define SAME(member)               \
    if (a->member != b->member) {  \
        return #member " differs"; \
    }
    SAME(group)
    SAME(layer)
    SAME(kind)
    SAME(first_head)
    SAME(heads)
    SAME(model_heads)
    SAME(block_tokens)
    SAME(token_bytes)
    SAME(window_tokens)
    SAME(token_stride)
    SAME(head_stride)
#undef SAME
    return NULL;
}

/* --- writing --- */

static void write_target(const struct bta_card_target *target,
                         struct bt_buf *out)
{
    bt_buf_printf(out,
                  "\"base\":\"%" PRIx64 "\",\"at\":\"%" PRIx64
                  "\",\"key\":\"%" PRIx64 "\"",
                  target->base, target->at, target->key);
}

static void write_endpoint(const struct bta_card_endpoint *endpoint,
                           struct bt_buf *out)
{
    bt_buf_append(out, BT_STR("{\"provider\":"));
    bt_buf_append_json(out, endpoint->provider);
    bt_buf_append(out, BT_STR(",\"addr\":\""));
    for (size_t i = 0; i < endpoint->address_length; i++) {
        bt_buf_printf(out, "%02x", (unsigned)endpoint->address[i]);
    }
    bt_buf_printf(out,
                  "\",\"host_id\":\"%016" PRIx64 "%016" PRIx64
                  "\",\"pidns\":%" PRIu64 ",\"uid\":%" PRIu64
                  ",\"pid\":%" PRIu64 "}",
                  endpoint->host_hi, endpoint->host_lo, endpoint->pidns,
                  endpoint->uid, endpoint->pid);
}

/* --- regions --- */

/*
 * The numbers of a layout. A region that is written behind another leaves out
 * what is the same in both; its layer, where it is the next one.
 */
struct number {
    const char *name;
    size_t at;
    bool is_long;  /* uint64_t, else uint32_t */
    bool is_spare; /* the first region may leave it out too: 0 */
    uint64_t max;
};

#define NUMBER(text, member, long, spare, limit)                 \
    {                                                            \
        text, offsetof(baton_layout, member), long, spare, limit \
    }

static const struct number NUMBERS[] = {
    NUMBER("group", group, false, false, UINT32_MAX),
    NUMBER("layer", layer, false, false, UINT32_MAX),
    NUMBER("first_head", first_head, false, true, UINT32_MAX),
    NUMBER("heads", heads, false, false, UINT32_MAX),
    NUMBER("model_heads", model_heads, false, true, UINT32_MAX),
    NUMBER("block_tokens", block_tokens, false, false, UINT32_MAX),
    NUMBER("token_bytes", token_bytes, false, false, UINT32_MAX),
    NUMBER("window", window_tokens, false, true, UINT32_MAX),
    NUMBER("blocks", blocks, true, false, UINT32_MAX),
    NUMBER("stride", block_stride, true, false, UINT64_MAX),
    NUMBER("token_stride", token_stride, true, true, UINT64_MAX),
    NUMBER("head_stride", head_stride, true, true, UINT64_MAX),
};

static uint64_t number_of(const baton_layout *layout,
                          const struct number *number)
{
    const char *const at = (const char *)layout + number->at;
    uint32_t small;
    uint64_t large;

    if (number->is_long) {
        memcpy(&large, at, sizeof(large));
        return large;
    }
    memcpy(&small, at, sizeof(small));
    return small;
}

static void set_number(baton_layout *layout, const struct number *number,
                       uint64_t value)
{
    char *const at = (char *)layout + number->at;
    const uint32_t small = (uint32_t)value;

    if (number->is_long) {
        memcpy(at, &value, sizeof(value));
    } else {
        memcpy(at, &small, sizeof(small));
    }
}

/* What a region behind this one has where it says nothing. */
static baton_layout next_layout(const baton_layout *layout)
{
    baton_layout next = *layout;

    next.layer += next.layer < UINT32_MAX ? 1 : 0;
    return next;
}

/* A kind's name, or its number where the host named it. */
static void write_kind(uint32_t kind, struct bt_buf *out)
{
    if (kind < BT_ARRAY_LEN(kind_names)) {
        bt_buf_printf(out, "\"kind\":\"%s\",", kind_names[kind]);
    } else {
        bt_buf_printf(out, "\"kind\":%" PRIu32 ",", kind);
    }
}

/* `count` layers from this region on, `step` bytes from each to the next. */
static void write_region(const struct bta_card_region *region,
                         const struct bta_card_region *before, uint64_t count,
                         uint64_t step, struct bt_buf *out)
{
    const baton_layout *const layout = &region->layout;
    const baton_layout known =
        before == NULL ? *layout : next_layout(&before->layout);

    bt_buf_append(out, before == NULL ? BT_STR("{") : BT_STR(",{"));
    for (size_t i = 0; i < BT_ARRAY_LEN(NUMBERS); i++) {
        const uint64_t value = number_of(layout, &NUMBERS[i]);

        if (before == NULL || value != number_of(&known, &NUMBERS[i])) {
            bt_buf_printf(out, "\"%s\":%" PRIu64 ",", NUMBERS[i].name, value);
        }
    }
    if (before == NULL || layout->kind != known.kind) {
        write_kind(layout->kind, out);
    }
    if (before == NULL || region->memory != before->memory) {
        bt_buf_printf(out, "\"mem\":\"%s\",", memory_names[region->memory]);
    }
    if (count > 1) {
        bt_buf_printf(out, "\"layers\":%" PRIu64 ",\"step\":%" PRIu64 ",",
                      count, step);
    }
    write_target(&region->target, out);
    bt_buf_append_char(out, '}');
}

/* Is b the layer behind a, in the same registered memory? */
static bool is_next(const struct bta_card_region *a,
                    const struct bta_card_region *b)
{
    const baton_layout next = next_layout(&a->layout);

    for (size_t i = 0; i < BT_ARRAY_LEN(NUMBERS); i++) {
        if (number_of(&next, &NUMBERS[i]) !=
            number_of(&b->layout, &NUMBERS[i])) {
            return false;
        }
    }
    return a->layout.kind == b->layout.kind && a->memory == b->memory &&
           a->target.key == b->target.key && a->target.base < b->target.base &&
           b->target.base - a->target.base == b->target.at - a->target.at;
}

/* How many layers stand in a row from here on, at one step. */
static size_t count_layers(const struct bta_card_region *regions, size_t count,
                           uint64_t *step_p)
{
    size_t layers = 1;

    *step_p = 0;
    while (layers < count && is_next(&regions[layers - 1], &regions[layers])) {
        const uint64_t step =
            regions[layers].target.base - regions[layers - 1].target.base;

        if (layers > 1 && step != *step_p) {
            break;
        }
        *step_p = step;
        layers++;
    }
    return layers;
}

static void write_regions(const struct bta_card *card, struct bt_buf *out)
{
    const struct bta_card_region *before = NULL;
    size_t i = 0;

    while (i < card->region_count) {
        const struct bta_card_region *const region = &card->regions[i];
        uint64_t step = 0;
        const size_t layers =
            count_layers(region, card->region_count - i, &step);

        write_region(region, before, layers, step, out);
        i += layers;
        before = &card->regions[i - 1];
    }
}

/* Which heads and layers are here: what an engine is judged by. */
static void write_summary(const struct bta_card *card, struct bt_buf *out)
{
    const baton_layout none = {0};
    const baton_layout *const first =
        card->region_count > 0 ? &card->regions[0].layout : &none;
    uint32_t least = UINT32_MAX;
    uint32_t most = 0;

    for (size_t i = 0; i < card->region_count; i++) {
        const uint32_t layer = card->regions[i].layout.layer;

        least = layer < least ? layer : least;
        most = layer > most ? layer : most;
    }
    link_line_name(out, LINK_MEMBER_SUMMARY);
    bt_buf_printf(out,
                  "{\"first_head\":%" PRIu32 ",\"heads\":%" PRIu32
                  ",\"model_heads\":%" PRIu32 ",\"first_layer\":%" PRIu32
                  ",\"last_layer\":%" PRIu32 "}",
                  first->first_head, first->heads, first->model_heads,
                  least < most ? least : most, most);
}

static void write_places(const struct bta_card *card, struct bt_buf *out)
{
    link_line_name(out, LINK_MEMBER_CARD);
    bt_buf_append(out, BT_STR("{\"endpoints\":["));
    for (size_t i = 0; i < card->endpoint_count; i++) {
        bt_buf_append(out, i == 0 ? BT_STR("") : BT_STR(","));
        write_endpoint(&card->endpoints[i], out);
    }
    bt_buf_append(out, BT_STR("],\"regions\":["));
    write_regions(card, out);
    bt_buf_append(out, BT_STR("],\"slots\":{"));
    write_target(&card->slots, out);
    bt_buf_printf(out,
                  ",\"n\":%" PRIu64 ",\"step\":%" PRIu64 "},\"boot_word\":{",
                  card->slot_count, card->slot_step);
    write_target(&card->boot_word, out);
    bt_buf_append(out, BT_STR("}}"));
}

static void write_boot(struct bt_buf *out, enum link_member member,
                       uint64_t boot)
{
    link_line_name(out, member);
    bt_buf_printf(out, "\"%" PRIx64 "\"", boot);
}

void bta_card_write(const struct bta_card *card, struct bt_buf *out)
{
    const baton_layout none = {0};
    const baton_layout *const layout =
        card->region_count > 0 ? &card->regions[0].layout : &none;

    link_line_text(out, LINK_MEMBER_ENGINE, card->engine);
    write_boot(out, LINK_MEMBER_ENGINE_BOOT, card->engine_boot);
    write_boot(out, LINK_MEMBER_BOOT, card->boot);
    link_line_u64(out, LINK_MEMBER_RANK, card->rank);
    link_line_u64(out, LINK_MEMBER_WORLD, card->world);
    link_line_u64(out, LINK_MEMBER_TP, card->tp);
    link_line_u64(out, LINK_MEMBER_PP, card->pp);
    link_line_u64(out, LINK_MEMBER_DP, card->dp);
    link_line_text(out, LINK_MEMBER_ROLE, bt_str_of(role_names[card->role]));
    link_line_text(out, LINK_MEMBER_URL, card->url);
    link_line_u64(out, LINK_MEMBER_BLOCKS, layout->blocks);
    link_line_u64(out, LINK_MEMBER_BLOCK_TOKENS, layout->block_tokens);
    link_line_text(out, LINK_MEMBER_FINGERPRINT, card->fingerprint);
    bt_buf_printf(out, ",\"max_handoffs\":%" PRIu32, card->max_handoffs);
    write_places(card, out);
    write_summary(card, out);
}

/* --- reading --- */

static void read_target(struct bta_reader *reader, struct bt_str object,
                        struct bta_card_target *target)
{
    target->base = bta_reader_hex(reader, object, BT_STR("base"));
    target->at = bta_reader_hex(reader, object, BT_STR("at"));
    target->key = bta_reader_hex(reader, object, BT_STR("key"));
}

/* The target's bytes must not run over the end of the address space. */
static void check_target(struct bta_reader *reader,
                         const struct bta_card_target *target, uint64_t length)
{
    if (target->base > UINT64_MAX - length ||
        target->at > UINT64_MAX - length) {
        bta_reader_fail(reader, "a region runs over the address space");
    }
}

static void read_address(struct bta_reader *reader, struct bt_str hex,
                         struct bta_card_endpoint *endpoint)
{
    if (hex.len % 2 != 0 || hex.len / 2 > sizeof(endpoint->address)) {
        bta_reader_fail(reader, "an endpoint's addr is malformed");
        return;
    }
    for (size_t i = 0; i < hex.len / 2; i++) {
        uint64_t byte = 0;
        if (bt_str_hex_to_u64(bt_str_span(hex.ptr + 2 * i, 2), &byte) !=
            BT_OK) {
            bta_reader_fail(reader, "an endpoint's addr is malformed");
            return;
        }
        endpoint->address[i] = (unsigned char)byte;
    }
    endpoint->address_length = hex.len / 2;
}

static void read_endpoint(struct bta_reader *reader, struct bt_str object,
                          struct bta_card_endpoint *endpoint)
{
    const struct bt_str host =
        bta_reader_plain(reader, object, BT_STR("host_id"));

    endpoint->provider =
        bta_reader_text(reader, object, BT_STR("provider"), 64);
    read_address(reader, bta_reader_plain(reader, object, BT_STR("addr")),
                 endpoint);
    if (host.len != 32 ||
        bt_str_hex_to_u64(bt_str_span(host.ptr, 16), &endpoint->host_hi) !=
            BT_OK ||
        bt_str_hex_to_u64(bt_str_span(host.ptr + 16, 16), &endpoint->host_lo) !=
            BT_OK) {
        bta_reader_fail(reader, "an endpoint's host_id is malformed");
    }
    endpoint->pidns =
        bta_reader_u64(reader, object, BT_STR("pidns"), UINT64_MAX);
    endpoint->uid = bta_reader_u64(reader, object, BT_STR("uid"), UINT32_MAX);
    endpoint->pid = bta_reader_u64(reader, object, BT_STR("pid"), INT32_MAX);
}

/* `before` may be NULL. */
static uint32_t read_kind(struct bta_reader *reader, struct bt_str object,
                          const baton_layout *before)
{
    struct bt_json_value value = {.type = BT_JSON_NULL};
    const bool is_there =
        reader->why == NULL && bt_json_find(object, BT_STR("kind"), &value);

    if (!is_there && before != NULL) {
        return before->kind;
    }
    if (value.type == BT_JSON_NUMBER) {
        const uint32_t kind = bta_reader_u32(reader, object, BT_STR("kind"));
        return kind < BATON_KIND_NAMED ? BATON_KIND_MAX + 1 : kind;
    }
    return (uint32_t)bta_reader_name(reader, object, BT_STR("kind"), kind_names,
                                     BT_ARRAY_LEN(kind_names));
}

/* `before`: the region in front of this one, whose members it may leave out;
 * NULL: it is the first. */
static void read_layout(struct bta_reader *reader, struct bt_str object,
                        const struct bta_card_region *before,
                        baton_layout *layout_p)
{
    baton_layout layout = {.size = sizeof(layout)};
    const char *why;

    if (before != NULL) {
        layout = next_layout(&before->layout);
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(NUMBERS); i++) {
        const struct number *const number = &NUMBERS[i];
        const struct bt_str name = bt_str_of(number->name);

        set_number(&layout, number,
                   before == NULL && !number->is_spare
                       ? bta_reader_u64(reader, object, name, number->max)
                       : bta_reader_u64_or(reader, object, name, number->max,
                                           number_of(&layout, number)));
    }
    layout.kind =
        read_kind(reader, object, before == NULL ? NULL : &before->layout);
    *layout_p = bta_layout_filled(&layout);
    why = bta_layout_check(layout_p);
    if (why != NULL) {
        bta_reader_fail(reader, why);
    }
}

static baton_memory read_memory(struct bta_reader *reader, struct bt_str object,
                                const struct bta_card_region *before)
{
    struct bt_json_value value;
    size_t index;

    if (before != NULL && reader->why == NULL &&
        !bt_json_find(object, BT_STR("mem"), &value)) {
        return before->memory;
    }
    index = bta_reader_name(reader, object, BT_STR("mem"), memory_names,
                            BT_ARRAY_LEN(memory_names));
    return (baton_memory)index;
}

/* The region `i` layers behind the first of an entry. */
static void set_layer(struct bta_reader *reader,
                      const struct bta_card_region *first, uint64_t i,
                      uint64_t step, struct bta_card_region *region)
{
    uint64_t bytes;

    *region = *first;
    if (i > UINT32_MAX - first->layout.layer ||
        __builtin_mul_overflow(i, step, &bytes) ||
        __builtin_add_overflow(first->target.base, bytes,
                               &region->target.base) ||
        __builtin_add_overflow(first->target.at, bytes, &region->target.at)) {
        bta_reader_fail(reader, "layers run over the address space");
        return;
    }
    region->layout.layer += (uint32_t)i;
    check_target(reader, &region->target, bta_layout_length(&region->layout));
}

static uint64_t layers_of(struct bta_reader *reader, struct bt_str object)
{
    const uint64_t layers = bta_reader_u64_or(reader, object, BT_STR("layers"),
                                              BTA_CARD_REGIONS_MAX, 1);

    if (layers == 0) {
        bta_reader_fail(reader, "layers start at 1");
    }
    return layers;
}

/* One entry; how many regions it stands for. */
static size_t read_region(struct bta_reader *reader, struct bt_str object,
                          const struct bta_card_region *before,
                          struct bta_card_region *regions)
{
    const uint64_t layers = layers_of(reader, object);
    const uint64_t step =
        bta_reader_u64_or(reader, object, BT_STR("step"), UINT64_MAX, 0);
    struct bta_card_region first = {0};

    first.memory = read_memory(reader, object, before);
    read_layout(reader, object, before, &first.layout);
    read_target(reader, object, &first.target);
    for (uint64_t i = 0; reader->why == NULL && i < layers; i++) {
        set_layer(reader, &first, i, step, &regions[i]);
    }
    return (size_t)layers;
}

static void read_endpoints(struct bta_reader *reader, struct bt_str places,
                           struct bta_card *card)
{
    struct bt_json_value *const items =
        bta_reader_array(reader, places, BT_STR("endpoints"),
                         BTA_CARD_ENDPOINTS_MAX, &card->endpoint_count);

    card->endpoints = bta_reader_alloc(reader, card->endpoint_count,
                                       sizeof(*card->endpoints));
    for (size_t i = 0; reader->why == NULL && i < card->endpoint_count; i++) {
        read_endpoint(reader, items[i].text, &card->endpoints[i]);
    }
}

static void read_regions(struct bta_reader *reader, struct bt_str places,
                         struct bta_card *card)
{
    size_t entries = 0;
    struct bt_json_value *const items = bta_reader_array(
        reader, places, BT_STR("regions"), BTA_CARD_REGIONS_MAX, &entries);
    uint64_t total = 0;
    size_t count = 0;

    for (size_t i = 0; reader->why == NULL && i < entries; i++) {
        total += layers_of(reader, items[i].text);
    }
    if (total > BTA_CARD_REGIONS_MAX) {
        bta_reader_fail(reader, "too many regions");
    }
    card->regions = bta_reader_alloc(reader, reader->why == NULL ? total : 0,
                                     sizeof(*card->regions));
    for (size_t i = 0; reader->why == NULL && i < entries; i++) {
        count += read_region(reader, items[i].text,
                             count == 0 ? NULL : &card->regions[count - 1],
                             &card->regions[count]);
    }
    card->region_count = reader->why == NULL ? count : 0;
}

static void read_places(struct bta_reader *reader, struct bt_str places,
                        struct bta_card *card)
{
    const struct bt_str slots =
        bta_reader_object(reader, places, BT_STR("slots"));
    const struct bt_str boot_word =
        bta_reader_object(reader, places, BT_STR("boot_word"));

    read_endpoints(reader, places, card);
    read_regions(reader, places, card);
    read_target(reader, slots, &card->slots);
    card->slot_count = bta_reader_u64(reader, slots, BT_STR("n"), UINT32_MAX);
    card->slot_step = bta_reader_u64_or(reader, slots, BT_STR("step"),
                                        UINT16_MAX, BTA_SLOT_BYTES);
    if (card->slot_step < BTA_SLOT_BYTES || card->slot_step % 8 != 0) {
        bta_reader_fail(reader, "slots are records of at least 16 bytes");
    }
    check_target(reader, &card->slots, card->slot_count * card->slot_step);
    read_target(reader, boot_word, &card->boot_word);
    check_target(reader, &card->boot_word, sizeof(uint64_t));
}

static void read_identity(struct bta_reader *reader, struct bt_str object,
                          struct bta_card *card)
{
    const size_t role = bta_reader_name(reader, object, NAME(ROLE), role_names,
                                        BT_ARRAY_LEN(role_names));

    card->engine =
        bta_reader_text(reader, object, NAME(ENGINE), LINK_ENGINE_MAX);
    card->url = bta_reader_text(reader, object, NAME(URL), LINK_URL_MAX);
    card->fingerprint = bta_reader_text(reader, object, NAME(FINGERPRINT),
                                        LINK_FINGERPRINT_MAX);
    card->engine_boot = bta_reader_hex(reader, object, NAME(ENGINE_BOOT));
    card->boot = bta_reader_hex(reader, object, NAME(BOOT));
    card->rank = bta_reader_u32(reader, object, NAME(RANK));
    card->world = bta_reader_u32(reader, object, NAME(WORLD));
    card->tp = bta_reader_u32(reader, object, NAME(TP));
    card->pp = bta_reader_u32(reader, object, NAME(PP));
    card->dp =
        (uint32_t)bta_reader_u64_or(reader, object, NAME(DP), UINT32_MAX, 0);
    card->role = (baton_role)role;
    if (!bta_engine_is_valid(card->engine)) {
        bta_reader_fail(reader, "engine is empty or not printable ASCII");
    }
    if (card->boot == 0) {
        bta_reader_fail(reader, "boot is 0");
    }
    if (card->world == 0 || card->rank >= card->world || card->tp == 0 ||
        card->pp == 0) {
        bta_reader_fail(reader, "rank, world, tp or pp is out of its range");
    }
}

void bta_card_init(struct bta_card *card)
{
    *card = (struct bta_card){0};
    bt_arena_init(&card->arena);
}

void bta_card_fini(struct bta_card *card)
{
    bt_arena_fini(&card->arena);
    *card = (struct bta_card){0};
}

baton_status bta_card_read(struct bta_card *card, struct bt_str text,
                           const char **why_p)
{
    struct bta_reader reader;
    struct bt_str object;

    bta_card_init(card);
    bta_reader_init(&reader, &card->arena);
    object = bta_reader_begin(&reader, text);
    read_identity(&reader, object, card);
    card->max_handoffs = (uint32_t)bta_reader_u64_or(
        &reader, object, BT_STR("max_handoffs"), UINT32_MAX, UINT32_MAX);
    read_places(&reader, bta_reader_object(&reader, object, NAME(CARD)), card);
    return bta_reader_end(&reader, why_p);
}
