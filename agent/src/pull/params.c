/*
 * Params written and read. Block lists travel as runs, "10-73,80".
 */
#include "agent/src/pull/params.h"

#include "agent/src/base/sized.h"
#include "agent/src/geometry/wire.h"
#include "common/json/json_write.h"
#include "common/proof.h"

#include <endian.h>
#include <inttypes.h>
#include <stdlib.h>

#define PROMPT_LEN 32u /* hex digits of a prompt's digest */

/* --- writing --- */

static void write_group(const baton_blocks *blocks, struct bt_buf *out)
{
    size_t i = 0;

    bt_buf_append_char(out, '"');
    while (i < blocks->count) {
        const size_t first = i;
        while (i + 1 < blocks->count && blocks->ids[i] != UINT32_MAX &&
               blocks->ids[i + 1] == blocks->ids[i] + 1) {
            i++;
        }
        bt_buf_printf(out, "%s%" PRIu32, first == 0 ? "" : ",",
                      blocks->ids[first]);
        if (i > first) {
            bt_buf_printf(out, "-%" PRIu32, blocks->ids[i]);
        }
        i++;
    }
    bt_buf_append_char(out, '"');
}

static void write_digests(const uint64_t *digests, size_t ranks, size_t blocks,
                          struct bt_buf *out)
{
    bt_buf_append(out, BT_STR(",\"digests\":["));
    for (size_t rank = 0; rank < ranks; rank++) {
        bt_buf_append(out, rank == 0 ? BT_STR("[") : BT_STR(",["));
        for (size_t i = 0; i < blocks; i++) {
            bt_buf_printf(out, "%s\"%" PRIx64 "\"", i == 0 ? "" : ",",
                          digests[rank * blocks + i]);
        }
        bt_buf_append_char(out, ']');
    }
    bt_buf_append_char(out, ']');
}

/* The ranks' cards must be of one engine, in order. */
static bool is_rank(const struct bta_card *card, const struct bta_card *first,
                    size_t rank, size_t count)
{
    return card->rank == rank && card->world == count &&
           card->tp == first->tp && card->pp == first->pp &&
           card->engine_boot == first->engine_boot &&
           bt_str_eq(card->engine, first->engine);
}

void bta_params_write(const struct bta_params *params, struct bt_buf *out)
{
    char hex[33];

    baton_id_format(params->handoff, hex);
    bt_buf_printf(out, "\"v\":1,\"handoff\":\"%s\"", hex);
    if (params->owner != 0) {
        bt_buf_printf(out, ",\"proxy\":\"%016" PRIx64 "\"", params->owner);
    }
    bt_buf_append(out, BT_STR(",\"engine\":"));
    bt_buf_append_json(out, params->engine);
    bt_buf_append(out, BT_STR(",\"boots\":["));
    for (uint32_t i = 0; i < params->world; i++) {
        bt_buf_printf(out, "%s\"%" PRIx64 "\"", i == 0 ? "" : ",",
                      params->boots[i]);
    }
    bt_buf_printf(out,
                  "],\"slot\":%" PRIu32 ",\"tokens\":%" PRIu64 ",\"groups\":[",
                  params->slot, params->tokens);
    for (size_t i = 0; i < params->group_count; i++) {
        bt_buf_append(out, i == 0 ? BT_STR("") : BT_STR(","));
        write_group(&params->groups[i], out);
    }
    bt_buf_append_char(out, ']');
    if (params->digests != NULL) {
        write_digests(params->digests, params->world, params->block_count, out);
    }
    if (params->is_early) {
        bt_buf_append(out, BT_STR(",\"ready\":1"));
    }
    if (params->prompt.len > 0) {
        bt_buf_printf(out, ",\"prompt\":\"%.*s\"", BT_STR_ARG(params->prompt));
    }
}

/* What is sealed: a word of its own, so that no other proof serves. */
static bool seal_text(const struct bta_params *params, struct bt_buf *text)
{
    bt_buf_append(text, BT_STR("baton-params/1\n"));
    bta_params_write(params, text);
    return !text->failed;
}

static bool write_seal(const struct bta_params *params, baton_bytes key,
                       struct bt_buf *out)
{
    char seal[BT_PROOF_LEN + 1];
    struct bt_buf text;
    bool is_sealed;

    bt_buf_init(&text);
    is_sealed = seal_text(params, &text) &&
                bt_seal_make(bt_str_span(key.data, key.length),
                             bt_buf_str(&text), seal);
    bt_buf_fini(&text);
    if (is_sealed) {
        bt_buf_printf(out, ",\"seal\":\"%s\"", seal);
    }
    return is_sealed;
}

/* --- the prompt --- */

static void add_u64(struct bt_buf *out, uint64_t value)
{
    const uint64_t bytes = htole64(value);

    bt_buf_append(out, bt_str_span((const char *)&bytes, sizeof(bytes)));
}

/* With its length before it, so that no two prompts read the same. */
static void add_bytes(struct bt_buf *out, struct bt_str bytes)
{
    add_u64(out, bytes.len);
    bt_buf_append(out, bytes);
}

static void add_tokens(struct bt_buf *out, const baton_prompt *prompt)
{
    add_u64(out, prompt->token_count);
    for (size_t i = 0; i < prompt->token_count; i++) {
        const uint32_t bytes = htole32(prompt->tokens[i]);
        bt_buf_append(out, bt_str_span((const char *)&bytes, sizeof(bytes)));
    }
}

static bool prompt_checked(const baton_prompt *prompt)
{
    bool is_good = (prompt->tokens != NULL || prompt->token_count == 0) &&
                   (prompt->items != NULL || prompt->item_count == 0);

    for (size_t i = 0; is_good && i < prompt->item_count; i++) {
        is_good = prompt->items[i].data != NULL || prompt->items[i].length == 0;
    }
    return is_good;
}

static void add_prompt(struct bt_buf *out, const baton_prompt *prompt)
{
    bt_buf_append(out, BT_STR("baton-prompt/1\n"));
    add_tokens(out, prompt);
    add_u64(out, prompt->item_count);
    for (size_t i = 0; i < prompt->item_count; i++) {
        add_bytes(out,
                  bt_str_span(prompt->items[i].data, prompt->items[i].length));
    }
    add_bytes(out, bt_str_of(prompt->adapter));
    add_bytes(out, bt_str_of(prompt->adapter_revision));
}

/* Its digest, PROMPT_LEN hex digits of it. */
static baton_status prompt_digest(const baton_prompt *given,
                                  char digest[BT_PROOF_LEN + 1],
                                  uint64_t *tokens_p)
{
    baton_prompt prompt = {.size = sizeof(prompt)};
    baton_status status = bta_sized_read(&prompt, given);
    struct bt_buf text;

    if (status != BATON_OK) {
        return status;
    }
    if (!prompt_checked(&prompt)) {
        return BATON_ERR_ARGUMENT;
    }
    bt_buf_init(&text);
    add_prompt(&text, &prompt);
    if (text.failed || !bt_digest_make(bt_buf_str(&text), digest)) {
        status = BATON_ERR_MEMORY;
    }
    bt_buf_fini(&text);
    *tokens_p = prompt.token_count;
    return status;
}

/* --- writing, all of it --- */

/* Reads the ranks' cards one after the other, for their boots. */
static baton_status fill_boots(const baton_params *input,
                               const struct bta_card *first, uint64_t *boots)
{
    baton_status status = BATON_OK;

    for (size_t i = 0; i < input->info_count && status == BATON_OK; i++) {
        struct bta_card card;
        status = bta_card_read(
            &card, bt_str_span(input->infos[i].data, input->infos[i].length),
            NULL);
        if (status == BATON_OK &&
            !is_rank(&card, first, i, input->info_count)) {
            status = BATON_ERR_PARAMS;
        }
        boots[i] = card.boot;
        bta_card_fini(&card);
    }
    return status;
}

static void fill(const baton_params *input, const struct bta_card *first,
                 struct bta_params *params)
{
    params->handoff = input->handoff;
    params->owner = input->owner;
    params->engine = first->engine;
    params->world = (uint32_t)input->info_count;
    params->slot = input->slot;
    params->tokens = input->tokens;
    for (size_t i = 0; i < input->group_count; i++) {
        params->groups[i] = input->groups[i];
    }
    params->group_count = input->group_count;
    params->digests = input->digests;
    params->is_early = (input->flags & BATON_PARAMS_READY) != 0;
    params->block_count = input->digest_count / input->info_count;
}

static baton_status write_params(const baton_params *input,
                                 const struct bta_params *params,
                                 struct bt_buf *out)
{
    bt_buf_append(out, BT_STR("{\"do_remote_prefill\":true,"
                              "\"do_remote_decode\":false,\"baton\":{"));
    bta_params_write(params, out);
    if (input->key.length > 0 && !write_seal(params, input->key, out)) {
        return BATON_ERR_MEMORY;
    }
    bt_buf_append(out, BT_STR("}}"));
    return out->failed ? BATON_ERR_MEMORY : BATON_OK;
}

static baton_status write_all(const baton_params *input, struct bt_buf *out)
{
    struct bta_params params = {0};
    char digest[BT_PROOF_LEN + 1];
    struct bta_card first;
    uint64_t tokens = input->tokens;
    baton_status status = bta_card_read(
        &first, bt_str_span(input->infos[0].data, input->infos[0].length),
        NULL);

    bt_arena_init(&params.arena);
    params.boots =
        bt_arena_zalloc(&params.arena, input->info_count * sizeof(uint64_t));
    if (status == BATON_OK && params.boots == NULL) {
        status = BATON_ERR_MEMORY;
    }
    if (status == BATON_OK) {
        fill(input, &first, &params);
        status = fill_boots(input, &first, params.boots);
    }
    if (status == BATON_OK && input->prompt != NULL) {
        status = prompt_digest(input->prompt, digest, &tokens);
        params.prompt = bt_str_span(digest, PROMPT_LEN);
    }
    if (status == BATON_OK && tokens != input->tokens) {
        status = BATON_ERR_ARGUMENT;
    }
    if (status == BATON_OK) {
        status = write_params(input, &params, out);
    }
    bt_arena_fini(&params.arena);
    bta_card_fini(&first);
    return status;
}

static bool blocks_counted(const baton_blocks *groups, size_t group_count,
                           size_t *count_p)
{
    size_t count = 0;

    for (size_t i = 0; i < group_count; i++) {
        if ((groups[i].ids == NULL && groups[i].count > 0) ||
            groups[i].count > BTA_PARAMS_BLOCKS_MAX - count) {
            return false;
        }
        count += groups[i].count;
    }
    *count_p = count;
    return true;
}

static bool infos_given(const baton_bytes *infos, size_t count)
{
    if (infos == NULL || count == 0 || count > BTA_WORLD_MAX) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        if (infos[i].data == NULL) {
            return false;
        }
    }
    return true;
}

static baton_status text_out(const struct bt_buf *out, char *text, size_t cap,
                             size_t *length_p)
{
    const struct bt_str written = bt_buf_str(out);

    *length_p = written.len;
    if (written.len > cap || (written.len > 0 && text == NULL)) {
        return BATON_ERR_SPACE;
    }
    memcpy(text, written.ptr, written.len);
    return BATON_OK;
}

static bool input_checked(const baton_params *input)
{
    size_t blocks;

    return infos_given(input->infos, input->info_count) &&
           input->handoff.lo != 0 && input->group_count <= BTA_GROUPS_MAX &&
           (input->groups != NULL || input->group_count == 0) &&
           (input->key.data != NULL || input->key.length == 0) &&
           blocks_counted(input->groups, input->group_count, &blocks) &&
           (input->digests == NULL ||
            input->digest_count == blocks * input->info_count);
}

baton_status baton_params_write(const baton_params *params, char *text,
                                size_t cap, size_t *length_p)
{
    baton_params input = {.size = sizeof(input)};
    struct bt_buf out;
    baton_status status = bta_sized_read(&input, params);

    if (status != BATON_OK) {
        return status;
    }
    if (length_p == NULL || !input_checked(&input)) {
        return BATON_ERR_ARGUMENT;
    }
    if ((input.flags & ~BATON_PARAMS_READY) != 0) {
        return BATON_ERR_UNSUPPORTED;
    }
    bt_buf_init(&out);
    status = write_all(&input, &out);
    if (status == BATON_OK) {
        status = text_out(&out, text, cap, length_p);
    }
    bt_buf_fini(&out);
    return status;
}

/* --- reading --- */

/* "10" or "10-73" */
static bool read_run(struct bt_str text, uint32_t *first_p, uint32_t *last_p)
{
    const size_t dash = bt_str_find(text, BT_STR("-"));
    uint64_t first, last;

    if (bt_str_to_u64(bt_str_span(text.ptr, dash), &first) != BT_OK) {
        return false;
    }
    last = first;
    if (dash < text.len &&
        bt_str_to_u64(bt_str_span(text.ptr + dash + 1, text.len - dash - 1),
                      &last) != BT_OK) {
        return false;
    }
    if (first > last || last > UINT32_MAX) {
        return false;
    }
    *first_p = (uint32_t)first;
    *last_p = (uint32_t)last;
    return true;
}

/* The next run of "10-73,80"; false at the end and on an error. */
static bool next_run(struct bt_str *rest, bool *failed, uint32_t *first_p,
                     uint32_t *last_p)
{
    const size_t comma = bt_str_find(*rest, BT_STR(","));

    if (rest->len == 0 || *failed) {
        return false;
    }
    if (!read_run(bt_str_span(rest->ptr, comma), first_p, last_p) ||
        comma + 1 == rest->len) {
        *failed = true;
        return false;
    }
    *rest = comma == rest->len
                ? BT_STR("")
                : bt_str_span(rest->ptr + comma + 1, rest->len - comma - 1);
    return true;
}

static bool count_runs(struct bt_str text, size_t max, size_t *count_p)
{
    bool failed = false;
    uint32_t first, last;
    size_t count = 0;

    while (next_run(&text, &failed, &first, &last)) {
        const size_t more = (size_t)last - first + 1;
        if (more > max - count) {
            return false;
        }
        count += more;
    }
    *count_p = count;
    return !failed;
}

static void read_group(struct bta_reader *reader, struct bt_str text,
                       struct bta_params *params)
{
    baton_blocks *const group = &params->groups[params->group_count];
    bool failed = false;
    uint32_t first, last;
    uint32_t *ids;
    size_t at = 0;

    if (reader->why != NULL) {
        return;
    }
    if (!count_runs(text, BTA_PARAMS_BLOCKS_MAX - params->block_count,
                    &group->count)) {
        bta_reader_fail(reader, "a block list is malformed or too long");
        return;
    }
    ids = bta_reader_alloc(reader, group->count, sizeof(*ids));
    if (ids == NULL) {
        return;
    }
    while (next_run(&text, &failed, &first, &last)) {
        for (uint64_t id = first; id <= last; id++) {
            ids[at] = (uint32_t)id;
            at++;
        }
    }
    group->ids = ids;
    params->block_count += group->count;
    params->group_count++;
}

static void read_groups(struct bta_reader *reader, struct bt_str object,
                        struct bta_params *params)
{
    size_t count;
    struct bt_json_value *const items = bta_reader_array(
        reader, object, BT_STR("groups"), BTA_GROUPS_MAX, &count);

    for (size_t i = 0; i < count && reader->why == NULL; i++) {
        read_group(reader, bta_reader_string(reader, &items[i]), params);
    }
}

static void read_hex_list(struct bta_reader *reader,
                          const struct bt_json_value *items, size_t count,
                          uint64_t *out)
{
    for (size_t i = 0; i < count && reader->why == NULL; i++) {
        const struct bt_str digits = bta_reader_string(reader, &items[i]);
        if (reader->why == NULL &&
            bt_str_hex_to_u64(digits, &out[i]) != BT_OK) {
            bta_reader_fail(reader, "a hex string is malformed");
        }
    }
}

static void read_boots(struct bta_reader *reader, struct bt_str object,
                       struct bta_params *params)
{
    size_t count;
    struct bt_json_value *const items = bta_reader_array(
        reader, object, BT_STR("boots"), BTA_WORLD_MAX, &count);

    if (count == 0) {
        bta_reader_fail(reader, "boots is empty");
        return;
    }
    params->world = (uint32_t)count;
    params->boots = bta_reader_alloc(reader, count, sizeof(uint64_t));
    if (params->boots != NULL) {
        read_hex_list(reader, items, count, params->boots);
    }
}

/* One rank's list of digests, an array inside the array. */
static void read_rank_digests(struct bta_reader *reader, struct bt_str array,
                              size_t count, uint64_t *digests)
{
    struct bt_json_iter it;
    struct bt_json_value value;
    size_t i = 0;

    bt_json_iter_array(&it, array);
    while (i < count && bt_json_next_element(&it, &value)) {
        read_hex_list(reader, &value, 1, &digests[i]);
        i++;
    }
    if (i != count || bt_json_next_element(&it, &value)) {
        bta_reader_fail(reader, "digests are not one for each block");
    }
}

static void read_digests(struct bta_reader *reader, struct bt_str object,
                         struct bta_params *params)
{
    struct bt_json_value value;
    struct bt_json_value *items;
    uint64_t *digests;
    size_t count;

    if (reader->why != NULL ||
        !bt_json_find(object, BT_STR("digests"), &value)) {
        return;
    }
    items = bta_reader_array(reader, object, BT_STR("digests"), BTA_WORLD_MAX,
                             &count);
    if (count != params->world ||
        params->block_count > BTA_PARAMS_BLOCKS_MAX / count) {
        bta_reader_fail(reader, "digests are not one list for each rank");
        return;
    }
    digests =
        bta_reader_alloc(reader, count * params->block_count, sizeof(*digests));
    for (size_t i = 0; i < count && reader->why == NULL; i++) {
        read_rank_digests(reader, items[i].text, params->block_count,
                          digests + i * params->block_count);
    }
    params->digests = digests;
}

static void read_owner(struct bta_reader *reader, struct bt_str object,
                       struct bta_params *params)
{
    struct bt_json_value value;

    if (reader->why == NULL && bt_json_find(object, BT_STR("proxy"), &value)) {
        read_hex_list(reader, &value, 1, &params->owner);
    }
}

/* So many hex digits, or nothing. */
static struct bt_str read_digits(struct bta_reader *reader,
                                 struct bt_str object, struct bt_str name,
                                 size_t length)
{
    struct bt_json_value value;
    struct bt_str digits;

    if (reader->why != NULL || !bt_json_find(object, name, &value)) {
        return BT_STR("");
    }
    digits = bta_reader_string(reader, &value);
    if (digits.len != length) {
        bta_reader_fail(reader, "prompt or seal is of another length");
    }
    return bt_arena_dup(reader->arena, digits);
}

baton_status bta_params_read(struct bta_params *params, struct bt_str text,
                             const char **why_p)
{
    struct bta_reader reader;
    struct bt_str object, handoff;

    *params = (struct bta_params){0};
    bt_arena_init(&params->arena);
    bta_reader_init(&reader, &params->arena);
    object = bta_reader_object(&reader, bta_reader_begin(&reader, text),
                               BT_STR("baton"));
    if (bta_reader_u64(&reader, object, BT_STR("v"), UINT64_MAX) != 1) {
        bta_reader_fail(&reader, "v is not 1");
    }
    handoff = bta_reader_plain(&reader, object, BT_STR("handoff"));
    if (reader.why == NULL && baton_id_parse(handoff.ptr, handoff.len,
                                             &params->handoff) != BATON_OK) {
        bta_reader_fail(&reader, "handoff is not 32 hex digits");
    }
    read_owner(&reader, object, params);
    params->engine =
        bta_reader_text(&reader, object, BT_STR("engine"), LINK_ENGINE_MAX);
    if (reader.why == NULL && !bta_engine_is_valid(params->engine)) {
        bta_reader_fail(&reader, "engine is empty or not printable ASCII");
    }
    params->slot = bta_reader_u32(&reader, object, BT_STR("slot"));
    params->tokens =
        bta_reader_u64(&reader, object, BT_STR("tokens"), UINT64_MAX / 2);
    read_boots(&reader, object, params);
    read_groups(&reader, object, params);
    read_digests(&reader, object, params);
    params->is_early =
        bta_reader_u64_or(&reader, object, BT_STR("ready"), 1, 0) == 1;
    params->prompt = read_digits(&reader, object, BT_STR("prompt"), PROMPT_LEN);
    params->seal = read_digits(&reader, object, BT_STR("seal"), BT_PROOF_LEN);
    return bta_reader_end(&reader, why_p);
}

void bta_params_fini(struct bta_params *params)
{
    bt_arena_fini(&params->arena);
    *params = (struct bta_params){0};
}

/* --- checking --- */

static baton_status check_prompt(const struct bta_params *params,
                                 const baton_prompt *prompt)
{
    char digest[BT_PROOF_LEN + 1];
    uint64_t tokens = 0;
    const baton_status status = prompt_digest(prompt, digest, &tokens);

    if (status != BATON_OK) {
        return status;
    }
    return tokens == params->tokens &&
                   bt_str_eq(params->prompt, bt_str_span(digest, PROMPT_LEN))
               ? BATON_OK
               : BATON_ERR_PROMPT;
}

static baton_status check_seal(const struct bta_params *params,
                               struct bt_str key)
{
    baton_status status = BATON_OK;
    struct bt_buf text;

    bt_buf_init(&text);
    if (!seal_text(params, &text)) {
        status = BATON_ERR_MEMORY;
    } else if (!bt_seal_is_good(key, bt_buf_str(&text), params->seal)) {
        status = BATON_ERR_SEAL;
    }
    bt_buf_fini(&text);
    return status;
}

baton_status bta_params_check(const struct bta_params *params,
                              const baton_prompt *prompt, struct bt_str key)
{
    const baton_status status =
        key.len == 0 ? BATON_OK : check_seal(params, key);

    return status != BATON_OK || prompt == NULL ? status
                                                : check_prompt(params, prompt);
}

baton_status baton_params_read(baton_bytes text, const baton_prompt *prompt,
                               baton_bytes key, baton_offer *offer_p)
{
    struct bta_params params;
    baton_offer offer = {.size = sizeof(offer)};
    baton_status status;

    if (text.data == NULL || offer_p == NULL ||
        offer_p->size < sizeof(size_t) ||
        (key.data == NULL && key.length > 0)) {
        return BATON_ERR_ARGUMENT;
    }
    status =
        bta_params_read(&params, bt_str_span(text.data, text.length), NULL);
    if (status == BATON_OK) {
        status = bta_params_check(&params, prompt,
                                  bt_str_span(key.data, key.length));
    }
    if (status == BATON_OK) {
        offer.handoff = params.handoff;
        offer.owner = params.owner;
        offer.tokens = params.tokens;
        bta_sized_write(offer_p, offer_p->size, &offer);
    }
    bta_params_fini(&params);
    return status;
}
