/*
 * request: which members of an OpenAI request are edited, for which leg.
 */
#include "proxy/exchange/request.h"

#include "common/base/utf8.h"

#define SEEN(id) (1ULL << (id))

/*
 * Names are decoded up to here: no name of the table is so long that, written
 * in escapes alone, it would be cut.
 */
#define RAW_NAME_MAX 512
/* Containers within each other; each level is read once more. */
#define CONTAINERS_MAX 8
#define SHOWN_NAME_MAX 64
/* What is edited here and there costs more memory than its bytes. */
#define EDITS_MAX 1024

/* What a member means. The rows of the P leg's edits come first. */
enum member {
    MEMBER_STREAM,
    MEMBER_STREAM_OPTIONS,
    MEMBER_MIN_TOKENS,
    MEMBER_BEST_OF,
    MEMBER_RETURN_TOKEN_IDS,
    MEMBER_STOP,
    MEMBER_STOP_TOKEN_IDS,
    MEMBER_STOP_SEQUENCES,
    MEMBER_MAX_TOKENS,
    MEMBER_MAX_COMPLETION_TOKENS,
    MEMBER_IGNORE_EOS,
#define PRIVATE(name, text) MEMBER_##name,
#define PRIVATE_PREFIX(text)
#include "proxy/exchange/private.def"
    MEMBER_MODEL,
    MEMBER_PROMPT,
    MEMBER_MESSAGES,
    MEMBER_N,
    MEMBER_ECHO,
    MEMBER_PROMPT_LOGPROBS,
    MEMBER_USE_BEAM_SEARCH,
    MEMBER_PROMPT_EMBEDS,
    MEMBER_TRUNCATE,
    MEMBER_TOOL_CHOICE,
    /* Where engines look for further parameters, in each other too. */
    MEMBER_EXTRA_BODY,
    MEMBER_VLLM_XARGS,
    MEMBER_SAMPLING_PARAMS,
    MEMBER_EXTRA_ARGS,
    MEMBER_COUNT,
    MEMBER_PREFIXED = MEMBER_COUNT, /* of private.def: disagg_* */
    MEMBER_OTHER,
};

#define NAME(literal)                   \
    {                                   \
        "" literal, sizeof(literal) - 1 \
    }

static const struct bt_str NAMES[MEMBER_COUNT] = {
    [MEMBER_STREAM] = NAME("stream"),
    [MEMBER_STREAM_OPTIONS] = NAME("stream_options"),
    [MEMBER_MIN_TOKENS] = NAME("min_tokens"),
    [MEMBER_BEST_OF] = NAME("best_of"),
    [MEMBER_RETURN_TOKEN_IDS] = NAME("return_token_ids"),
    [MEMBER_STOP] = NAME("stop"),
    [MEMBER_STOP_TOKEN_IDS] = NAME("stop_token_ids"),
    [MEMBER_STOP_SEQUENCES] = NAME("stop_sequences"),
    [MEMBER_MAX_TOKENS] = NAME("max_tokens"),
    [MEMBER_MAX_COMPLETION_TOKENS] = NAME("max_completion_tokens"),
    [MEMBER_IGNORE_EOS] = NAME("ignore_eos"),
#define PRIVATE(name, text) [MEMBER_##name] = NAME(text),
#define PRIVATE_PREFIX(text)
#include "proxy/exchange/private.def"
    [MEMBER_MODEL] = NAME("model"),
    [MEMBER_PROMPT] = NAME("prompt"),
    [MEMBER_MESSAGES] = NAME("messages"),
    [MEMBER_N] = NAME("n"),
    [MEMBER_ECHO] = NAME("echo"),
    [MEMBER_PROMPT_LOGPROBS] = NAME("prompt_logprobs"),
    [MEMBER_USE_BEAM_SEARCH] = NAME("use_beam_search"),
    [MEMBER_PROMPT_EMBEDS] = NAME("prompt_embeds"),
    [MEMBER_TRUNCATE] = NAME("truncate_prompt_tokens"),
    [MEMBER_TOOL_CHOICE] = NAME("tool_choice"),
    [MEMBER_EXTRA_BODY] = NAME("extra_body"),
    [MEMBER_VLLM_XARGS] = NAME("vllm_xargs"),
    [MEMBER_SAMPLING_PARAMS] = NAME("sampling_params"),
    [MEMBER_EXTRA_ARGS] = NAME("extra_args"),
};
static const struct bt_str PREFIXES[] = {
#define PRIVATE(name, text)
#define PRIVATE_PREFIX(text) NAME(text),
#include "proxy/exchange/private.def"
};

/* The walk over one body. */
struct walk {
    struct request *request;
    struct bt_arena *arena;
    uint64_t seen;
    bool is_twice;
    struct bt_str twice;
    bool is_deep; /* more containers within each other than are read */
};

static bool is_crowded(const struct walk *walk)
{
    return walk->request->prefill.splice.count > EDITS_MAX ||
           walk->request->decode.splice.count > EDITS_MAX;
}

/* A member that is walked, and the containers around it. */
struct place {
    const struct place *up;
    enum member member;
    struct bt_str name; /* as written */
    unsigned depth;     /* containers around it */
};

static enum member member_by_name(struct bt_str name)
{
    for (unsigned i = 0; i < MEMBER_COUNT; i++) {
        if (NAMES[i].len == name.len &&
            memcmp(NAMES[i].ptr, name.ptr, name.len) == 0) {
            return (enum member)i;
        }
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(PREFIXES); i++) {
        if (bt_str_starts(name, PREFIXES[i])) {
            return MEMBER_PREFIXED;
        }
    }
    return MEMBER_OTHER;
}

/* Decodes a name that has escapes. */
static enum member member_by_escaped(struct bt_str raw, struct bt_arena *arena)
{
    const struct bt_str head = bt_str_cut(raw, RAW_NAME_MAX);
    struct bt_buf name = {0};
    struct bt_str quoted = bt_arena_printf(arena, "\"%.*s\"", BT_STR_ARG(head));
    enum member member = MEMBER_OTHER;

    if (quoted.ptr != NULL) {
        bt_json_unescape(quoted, &name);
        member = member_by_name(bt_buf_str(&name));
    }
    bt_buf_fini(&name);
    return member;
}

static enum member member_of(struct bt_str raw, struct bt_arena *arena)
{
    if (raw.len > 0 && memchr(raw.ptr, '\\', raw.len) != NULL) {
        return member_by_escaped(raw, arena);
    }
    return member_by_name(raw);
}

static bool is_private(enum member member)
{
    return (member >= MEMBER_KV && member <= MEMBER_BOOTSTRAP_ROOM) ||
           member == MEMBER_PREFIXED;
}

static bool is_container(enum member member)
{
    return member >= MEMBER_EXTRA_BODY && member <= MEMBER_EXTRA_ARGS;
}

static bool is_edited(enum member member)
{
    return member <= MEMBER_IGNORE_EOS;
}

/* Anything but null, and but false for a flag, counts as asked for. */
static bool is_on(const struct bt_json_value *value)
{
    return value->type != BT_JSON_NULL && value->type != BT_JSON_FALSE;
}

/* Is this number of choices anything but one? Odd spellings count as more. */
static bool is_several(const struct bt_json_value *value)
{
    uint64_t number = 0;

    if (value->type == BT_JSON_NULL) {
        return false;
    }
    return bt_json_to_u64(value, &number) != BT_OK || number > 1;
}

static void set_reason(struct request *request, enum route_reason reason)
{
    if (request->reason == ROUTE_REASON_PD) {
        request->reason = reason;
    }
}

/* `["a"]`, `[1,2]` and `[[1,2]]` are one prompt. */
static void read_prompt_list(struct request *request, struct bt_str text)
{
    struct bt_json_iter it;
    struct bt_json_value value;
    uint64_t others = 0;

    bt_json_iter_array(&it, text);
    while (bt_json_next_element(&it, &value)) {
        if (value.type == BT_JSON_NUMBER) {
            request->token_ids++;
            continue;
        }
        others++;
        if (value.type == BT_JSON_STRING) {
            request->text_bytes += value.text.len - 2;
        } else if (value.type == BT_JSON_ARRAY) {
            request->token_ids += value.text.len / 4;
        }
    }
    if (others > 1) {
        set_reason(request, ROUTE_REASON_BATCH);
    }
}

static void read_prompt(struct request *request,
                        const struct bt_json_value *value)
{
    if (value->type == BT_JSON_STRING) {
        request->text_bytes += value->text.len - 2;
    } else if (value->type == BT_JSON_ARRAY) {
        read_prompt_list(request, value->text);
    }
}

/* The `text` members of content parts; images and their URLs do not count. */
static void read_parts(struct request *request, struct bt_str parts)
{
    struct bt_json_iter it;
    struct bt_json_value part;
    struct bt_json_value text;

    bt_json_iter_array(&it, parts);
    while (bt_json_next_element(&it, &part)) {
        if (part.type == BT_JSON_OBJECT &&
            bt_json_find(part.text, BT_STR("text"), &text) &&
            text.type == BT_JSON_STRING) {
            request->text_bytes += text.text.len - 2;
        }
    }
}

static void read_messages(struct request *request, struct bt_str messages)
{
    struct bt_json_iter it;
    struct bt_json_value message;
    struct bt_json_value content;

    bt_json_iter_array(&it, messages);
    while (bt_json_next_element(&it, &message)) {
        if (message.type != BT_JSON_OBJECT ||
            !bt_json_find(message.text, BT_STR("content"), &content)) {
            continue;
        }
        if (content.type == BT_JSON_STRING) {
            request->text_bytes += content.text.len - 2;
        } else if (content.type == BT_JSON_ARRAY) {
            read_parts(request, content.text);
        }
    }
}

/* A copy: the log names the model after the body is gone. */
static void read_model(struct walk *walk, const struct bt_json_value *value)
{
    struct bt_buf model = {0};

    if (value->type != BT_JSON_STRING) {
        return;
    }
    bt_json_unescape(value->text, &model);
    walk->request->model = bt_arena_dup(walk->arena, bt_buf_str(&model));
    bt_buf_fini(&model);
}

static void read_tool_choice(struct request *request,
                             const struct bt_json_value *value)
{
    request->forces_tool = value->type == BT_JSON_OBJECT ||
                           (value->type == BT_JSON_STRING &&
                            bt_str_eq(value->text, BT_STR("\"required\"")));
}

/* How a member's value makes a request one for D alone. */
enum odd {
    ODD_NEVER,
    ODD_SEVERAL,  /* anything but one, or null */
    ODD_ON,       /* anything but false or null */
    ODD_NOT_NULL, /* anything but null */
    ODD_NEGATIVE, /* anything but a count, or null */
};

struct odd_row {
    enum odd odd;
    enum route_reason reason;
};

static const struct odd_row ODD_ROWS[MEMBER_COUNT] = {
    [MEMBER_N] = {ODD_SEVERAL, ROUTE_REASON_N},
    [MEMBER_BEST_OF] = {ODD_SEVERAL, ROUTE_REASON_BEST_OF},
    [MEMBER_ECHO] = {ODD_ON, ROUTE_REASON_ECHO},
    [MEMBER_PROMPT_LOGPROBS] = {ODD_NOT_NULL, ROUTE_REASON_PROMPT_LOGPROBS},
    [MEMBER_USE_BEAM_SEARCH] = {ODD_ON, ROUTE_REASON_BEAM},
    [MEMBER_PROMPT_EMBEDS] = {ODD_NOT_NULL, ROUTE_REASON_PROMPT_EMBEDS},
    /* Below zero: as much as the model's length less the limit, which differs
     * on P. */
    [MEMBER_TRUNCATE] = {ODD_NEGATIVE, ROUTE_REASON_TRUNCATE},
};

static bool is_odd(enum odd odd, const struct bt_json_value *value)
{
    uint64_t count;

    switch (odd) {
    case ODD_NEVER:
        return false;
    case ODD_SEVERAL:
        return is_several(value);
    case ODD_ON:
        return is_on(value);
    case ODD_NOT_NULL:
        return value->type != BT_JSON_NULL;
    case ODD_NEGATIVE:
        return value->type != BT_JSON_NULL &&
               bt_json_to_u64(value, &count) != BT_OK;
    }
    return false;
}

/* What routing needs to know of a member. */
static void read_fact(struct walk *walk, enum member member,
                      const struct bt_json_value *value)
{
    struct request *const request = walk->request;

    if (member >= MEMBER_COUNT) {
        return;
    }
    if (is_odd(ODD_ROWS[member].odd, value)) {
        set_reason(request, ODD_ROWS[member].reason);
    }
    if (member == MEMBER_MODEL) {
        read_model(walk, value);
    } else if (member == MEMBER_PROMPT &&
               request->endpoint == ENDPOINT_COMPLETIONS) {
        read_prompt(request, value);
    } else if (member == MEMBER_MESSAGES && value->type == BT_JSON_ARRAY) {
        read_messages(request, value->text);
    } else if (member == MEMBER_STREAM) {
        request->stream = value->type == BT_JSON_TRUE;
    } else if (member == MEMBER_TOOL_CHOICE) {
        read_tool_choice(request, value);
    }
}

static void edit_prefill(struct request *request, enum member member,
                         const struct bt_json_member *m)
{
    struct bt_json_level *const level = &request->prefill.level;
    struct bt_json_splice *const splice = &request->prefill.splice;
    const bool is_chat = request->endpoint == ENDPOINT_CHAT;

    if (is_private(member) ||
        (member >= MEMBER_STREAM_OPTIONS && member <= MEMBER_STOP_SEQUENCES)) {
        bt_json_level_drop(level, splice, m);
    } else if (member == MEMBER_STREAM) {
        bt_json_level_set(level, splice, m, BT_STR("false"));
    } else if (member == MEMBER_MAX_TOKENS ||
               (member == MEMBER_MAX_COMPLETION_TOKENS && is_chat)) {
        bt_json_level_set(level, splice, m, BT_STR("1"));
    } else if (member == MEMBER_IGNORE_EOS) {
        bt_json_level_set(level, splice, m, BT_STR("true"));
    } else {
        bt_json_level_keep(level, splice, m);
    }
}

/* The names from the top level to this member, joined by dots. */
static struct bt_str place_path(const struct place *place,
                                struct bt_arena *arena)
{
    struct bt_str path = {0};

    for (; place != NULL; place = place->up) {
        const struct bt_str name =
            place->member < MEMBER_COUNT
                ? NAMES[place->member]
                : bt_str_cut(place->name, SHOWN_NAME_MAX);

        path = bt_arena_printf(arena, "%.*s%s%.*s", BT_STR_ARG(name),
                               path.len > 0 ? "." : "", BT_STR_ARG(path));
    }
    return path;
}

static void note_private(struct walk *walk, const struct place *place)
{
    if (walk->request->private_name.len == 0) {
        walk->request->private_name = place_path(place, walk->arena);
    }
}

/* Private members inside a container go, on both legs. */
static void edit_inner(struct walk *walk, const struct place *container,
                       struct bt_str object)
{
    struct bt_json_splice *const prefill = &walk->request->prefill.splice;
    struct bt_json_splice *const decode = &walk->request->decode.splice;
    struct bt_json_level prefill_level;
    struct bt_json_level decode_level;
    struct bt_json_iter it;
    struct bt_json_member m;

    if (container->depth == CONTAINERS_MAX) {
        walk->is_deep = true;
        return;
    }
    bt_json_level_open(&prefill_level, object);
    bt_json_level_open(&decode_level, object);
    bt_json_iter_object(&it, object);
    while (!is_crowded(walk) && bt_json_next_member(&it, &m)) {
        const struct place place = {container, member_of(m.name, walk->arena),
                                    m.name, container->depth + 1};

        if (is_private(place.member)) {
            note_private(walk, &place);
            bt_json_level_drop(&prefill_level, prefill, &m);
            bt_json_level_drop(&decode_level, decode, &m);
            continue;
        }
        bt_json_level_keep(&prefill_level, prefill, &m);
        bt_json_level_keep(&decode_level, decode, &m);
        if (is_container(place.member) && m.value.type == BT_JSON_OBJECT) {
            edit_inner(walk, &place, m.value.text);
        }
    }
}

static void read_member(struct walk *walk, const struct bt_json_member *m)
{
    struct request *const request = walk->request;
    const enum member member = member_of(m->name, walk->arena);
    const struct place place = {NULL, member, m->name, 0};
    const bool counts_once = is_edited(member) || is_private(member);

    if (counts_once && member != MEMBER_PREFIXED &&
        (walk->seen & SEEN(member)) != 0) {
        walk->is_twice = true;
        walk->twice = m->name;
    }
    if (member != MEMBER_OTHER) {
        walk->seen |= SEEN(member);
    }
    edit_prefill(request, member, m);
    if (is_private(member)) {
        note_private(walk, &place);
        bt_json_level_drop(&request->decode.level, &request->decode.splice, m);
    } else {
        bt_json_level_keep(&request->decode.level, &request->decode.splice, m);
    }
    if (is_container(member) && m->value.type == BT_JSON_OBJECT) {
        edit_inner(walk, &place, m->value.text);
    }
    read_fact(walk, member, &m->value);
}

/* The members that the P leg needs and the client did not send. */
static void add_members(struct walk *walk)
{
    struct request *const request = walk->request;
    const bool has_limit =
        (walk->seen & SEEN(MEMBER_MAX_TOKENS)) != 0 ||
        (request->endpoint == ENDPOINT_CHAT &&
         (walk->seen & SEEN(MEMBER_MAX_COMPLETION_TOKENS)) != 0);
    const bool has_eos = (walk->seen & SEEN(MEMBER_IGNORE_EOS)) != 0;

    if (!has_limit && !has_eos) {
        request->prefill.members =
            BT_STR("\"max_tokens\":1,\"ignore_eos\":true");
    } else if (!has_limit) {
        request->prefill.members = BT_STR("\"max_tokens\":1");
    } else if (!has_eos) {
        request->prefill.members = BT_STR("\"ignore_eos\":true");
    }
}

static void edit_init(struct request_edit *edit, struct bt_arena *arena,
                      struct bt_str body)
{
    *edit = (struct request_edit){0};
    bt_json_splice_init(&edit->splice, arena, body);
}

static const char *close_of(struct bt_str body)
{
    size_t len = body.len;

    while (len > 0 && body.ptr[len - 1] != '}') {
        len--;
    }
    return len == 0 ? NULL : body.ptr + len - 1;
}

/*
 * Is this ASCII in units of two or four bytes? Some clients send UTF-16, which
 * JSON between programs may not be (RFC 8259 8.1).
 */
static bool is_wide(struct bt_str body)
{
    return bt_str_starts(body, BT_STR("\xff\xfe")) ||
           bt_str_starts(body, BT_STR("\xfe\xff")) ||
           bt_str_starts(body, BT_STR("\0")) ||
           (body.len > 1 && body.ptr[1] == '\0');
}

/* Opens the top levels at the first '{'. */
static bool levels_open(struct request *request, struct bt_str body)
{
    const char *const open =
        body.len == 0 ? NULL : memchr(body.ptr, '{', body.len);

    if (open == NULL) {
        return false;
    }
    const struct bt_str object =
        bt_str_span(open, body.len - (size_t)(open - body.ptr));

    bt_json_level_open(&request->prefill.level, object);
    bt_json_level_open(&request->decode.level, object);
    return true;
}

enum fault request_read(struct request *request, struct bt_arena *arena,
                        enum endpoint endpoint, struct bt_str body,
                        struct bt_str *detail_p)
{
    struct walk walk = {.request = request, .arena = arena};
    struct bt_json_iter it;
    struct bt_json_member member;

    *detail_p = (struct bt_str){0};
    *request = (struct request){.endpoint = endpoint, .body = body};
    edit_init(&request->prefill, arena, body);
    edit_init(&request->decode, arena, body);
    if (is_wide(body)) {
        *detail_p = BT_STR("it is in UTF-16 or UTF-32; send it in UTF-8");
        return FAULT_BAD_JSON;
    }
    if (!levels_open(request, body)) {
        *detail_p = BT_STR("no object in it");
        return FAULT_BAD_JSON;
    }
    bt_json_iter_object(&it, bt_utf8_skip_mark(body));
    while (!is_crowded(&walk) && bt_json_next_member(&it, &member)) {
        read_member(&walk, &member);
    }
    if (is_crowded(&walk)) {
        *detail_p = bt_arena_printf(
            arena, "more than %d places in it would have to be edited",
            EDITS_MAX);
        return FAULT_BAD_REQUEST;
    }
    if (bt_json_iter_end(&it) != BT_OK) {
        *detail_p = bt_arena_printf(
            arena, "%s at byte %zu",
            it.status == BT_ERR_LIMIT ? "nested too deeply" : "not JSON",
            bt_json_iter_offset(&it));
        return FAULT_BAD_JSON;
    }
    if (walk.is_twice) {
        *detail_p = bt_arena_dup(arena, walk.twice);
        return FAULT_DUPLICATE;
    }
    if (walk.is_deep) {
        *detail_p = bt_arena_printf(
            arena,
            "more than %d of extra_body, vllm_xargs, sampling_params "
            "and extra_args within each other",
            CONTAINERS_MAX);
        return FAULT_BAD_REQUEST;
    }
    request->close = close_of(body);
    add_members(&walk);
    if (arena->failed || request->prefill.splice.failed ||
        request->decode.splice.failed) {
        return FAULT_OVERLOADED;
    }
    return FAULT_NONE;
}

bool request_has_private(const struct request *request)
{
    return request->private_name.len > 0;
}

void request_close_edit(const struct request *request,
                        struct request_edit *edit, struct bt_arena *arena,
                        struct bt_str params)
{
    const struct bt_str name = BT_STR("\"kv_transfer_params\":");
    struct bt_str members = edit->members;

    if (params.len > 0) {
        char *const text =
            bt_arena_alloc(arena, members.len + name.len + params.len + 1);
        char *at = text;

        if (text == NULL) {
            edit->splice.failed = true;
            return;
        }
        bt_str_put(&at, members);
        bt_str_put(&at, members.len > 0 ? BT_STR(",") : BT_STR(""));
        bt_str_put(&at, name);
        bt_str_put(&at, params);
        members = bt_str_span(text, (size_t)(at - text));
    }
    bt_json_level_close(&edit->level, &edit->splice, request->close, members);
}

void request_release_edit(const struct request *request,
                          struct request_edit *edit_p, struct bt_arena *arena,
                          struct bt_str params, bool is_invalid)
{
    const struct bt_str limit = BT_STR("\"max_tokens\":1");
    const struct bt_str invalid = BT_STR("\"max_tokens\":-1");

    *edit_p = request->prefill;
    bt_json_splice_copy(&edit_p->splice, &request->prefill.splice);
    if (is_invalid && bt_str_starts(edit_p->members, limit)) {
        edit_p->members = invalid;
    }
    request_close_edit(request, edit_p, arena, params);
    if (!is_invalid || edit_p->splice.failed) {
        return;
    }
    /* An invalid limit is refused by D before admission. */
    for (size_t i = 0; i < edit_p->splice.count; i++) {
        struct bt_json_edit *const edit = &edit_p->splice.edits[i];

        if (bt_str_eq(edit->insert, BT_STR("1"))) {
            edit->insert = BT_STR("-1");
        }
    }
}
