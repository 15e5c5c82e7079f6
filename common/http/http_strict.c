/*
 * The strict layer: see http_strict.h.
 */
#include "common/http/http_strict.h"

#define CHUNK_LINE_MAX  1024          /* one size line */
#define CHUNK_EXTRA_MAX (16 * BT_KIB) /* all extensions and trailers */
#define CHUNK_SIZE_MAX  ((uint64_t)1 << 40)
#define METHOD_MAX      16 /* longer than any that is known */
#define LENGTH_MAX      ((uint64_t)1 << 62)

static bool refuse(struct bt_http_parse_error *error_p, unsigned code,
                   const char *reason)
{
    error_p->code = code;
    error_p->reason = reason;
    return false;
}

/* ---- characters ---- */

static bool is_alnum(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c >= '0' && c <= '9');
}

static bool is_token_char(char c)
{
    return is_alnum(c) || (c != '\0' && strchr("!#$%&'*+-.^_`|~", c) != NULL);
}

/* How many characters of a token `text` begins with. */
static size_t token_len(struct bt_str text)
{
    size_t len = 0;

    while (len < text.len && is_token_char(text.ptr[len])) {
        len++;
    }
    return len;
}

static bool is_token(struct bt_str text)
{
    return text.len > 0 && token_len(text) == text.len;
}

/* HTAB, SP, visible ASCII, and bytes from 0x80. */
static bool is_text_char(char c)
{
    const unsigned char byte = (unsigned char)c;

    return byte == '\t' || (byte >= 0x20 && byte != 0x7f);
}

static bool is_text(struct bt_str text)
{
    for (size_t i = 0; i < text.len; i++) {
        if (!is_text_char(text.ptr[i])) {
            return false;
        }
    }
    return true;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_hex(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

/* ---- lines ---- */

static bool check_version(struct bt_str version,
                          struct bt_http_parse_error *error_p)
{
    const char *v = version.ptr;

    if (version.len != 8 || memcmp(v, "HTTP/", 5) != 0 || !is_digit(v[5]) ||
        v[6] != '.' || !is_digit(v[7])) {
        return refuse(error_p, 400, "the protocol is not HTTP");
    }
    if (v[5] != '1' || (v[7] != '0' && v[7] != '1')) {
        return refuse(error_p, 505, "only HTTP/1.0 and HTTP/1.1 are spoken");
    }
    return true;
}

static bool is_known_method(struct bt_str method)
{
    static const char *const known[] = {"GET",   "POST",  "HEAD",    "PUT",
                                        "PATCH", "TRACE", "OPTIONS", "DELETE"};

    for (size_t i = 0; i < BT_ARRAY_LEN(known); i++) {
        if (bt_str_eq(method, bt_str_of(known[i]))) {
            return true;
        }
    }
    return false;
}

static bool check_method(struct bt_str method,
                         struct bt_http_parse_error *error_p)
{
    if (!is_token(method)) {
        return refuse(error_p, 400, "the method is not a token");
    }
    if (bt_str_eq(method, BT_STR("CONNECT"))) {
        return refuse(error_p, 405, "CONNECT is not served");
    }
    if (!is_known_method(method)) {
        return refuse(error_p, 501, "the method is unknown");
    }
    return true;
}

static bool check_target(struct bt_str target, size_t limit,
                         struct bt_http_parse_error *error_p)
{
    if (target.len == 0) {
        return refuse(error_p, 400, "the request line has no target");
    }
    if (target.len > limit) {
        return refuse(error_p, 414, "the target is too long");
    }
    for (size_t i = 0; i < target.len; i++) {
        const unsigned char byte = (unsigned char)target.ptr[i];

        if (byte <= 0x20 || byte >= 0x7f || byte == '#') {
            return refuse(error_p, 400, "a character of the target");
        }
    }
    return true;
}

static bool strict_request_line(struct bt_str line, size_t target_limit,
                                struct bt_http_parse_error *error_p)
{
    const size_t first = bt_str_find(line, BT_STR(" "));
    struct bt_str version, target;
    size_t second;

    if (first == line.len) {
        return refuse(error_p, 400, "the request line is malformed");
    }
    target = bt_str_span(line.ptr + first + 1, line.len - first - 1);
    second = bt_str_find(target, BT_STR(" "));
    if (second == target.len) {
        return refuse(error_p, 400, "the request line has no version");
    }
    version = bt_str_span(target.ptr + second + 1, target.len - second - 1);
    target.len = second;
    if (target.len == 0) {
        return refuse(error_p, 400, "the request line is malformed");
    }
    return check_version(version, error_p) &&
           check_method(bt_str_span(line.ptr, first), error_p) &&
           check_target(target, target_limit, error_p);
}

static bool strict_status_line(struct bt_str line,
                               struct bt_http_parse_error *error_p)
{
    const char *code = line.ptr + 9;

    if (line.len < 12 || line.ptr[8] != ' ') {
        return refuse(error_p, 502, "the status line is malformed");
    }
    if (!check_version(bt_str_span(line.ptr, 8), error_p)) {
        return false;
    }
    if (code[0] < '1' || code[0] > '5' || !is_digit(code[1]) ||
        !is_digit(code[2]) || (line.len > 12 && line.ptr[12] != ' ')) {
        return refuse(error_p, 502, "the status code is not 100 to 599");
    }
    if (!is_text(line)) {
        return refuse(error_p, 502, "a control byte in the status line");
    }
    return true;
}

bool bt_http_strict_start(enum bt_http_role role, struct bt_str line,
                          size_t target_limit,
                          struct bt_http_parse_error *error_p)
{
    return role == BT_HTTP_REQUESTS
               ? strict_request_line(line, target_limit, error_p)
               : strict_status_line(line, error_p);
}

bool bt_http_strict_begun(struct bt_str part,
                          struct bt_http_parse_error *error_p)
{
    const struct bt_str begin = bt_str_cut(part, METHOD_MAX);
    const struct bt_str method =
        bt_str_cut(begin, bt_str_find(begin, BT_STR(" ")));

    return is_token(method) ||
           refuse(error_p, 400, "these bytes begin no HTTP request");
}

bool bt_http_strict_field(struct bt_str line,
                          struct bt_http_parse_error *error_p)
{
    const size_t name = token_len(line);

    if (line.ptr[0] == ' ' || line.ptr[0] == '\t') {
        return refuse(error_p, 400, "a field line begins with white space");
    }
    if (name == 0 || name == line.len || line.ptr[name] != ':') {
        return refuse(error_p, 400,
                      bt_str_find(line, BT_STR(":")) == line.len
                          ? "a field line has no colon"
                          : "a field name is not a token");
    }
    if (!is_text(bt_str_span(line.ptr + name, line.len - name))) {
        return refuse(error_p, 400, "a control byte in a field");
    }
    return true;
}

/* ---- heads ---- */

static void take_start(enum bt_http_role role, struct bt_str line,
                       struct bt_http_head *head)
{
    if (role == BT_HTTP_REQUESTS) {
        head->method = bt_str_cut(line, bt_str_find(line, BT_STR(" ")));
        head->target = bt_str_skip(line, head->method.len + 1);
        head->target.len -= sizeof(" HTTP/1.1") - 1;
        head->minor = (unsigned)(line.ptr[line.len - 1] - '0');
        return;
    }
    head->minor = (unsigned)(line.ptr[7] - '0');
    head->code = (unsigned)(line.ptr[9] - '0') * 100 +
                 (unsigned)(line.ptr[10] - '0') * 10 +
                 (unsigned)(line.ptr[11] - '0');
    head->reason = bt_str_skip(line, 13);
}

void bt_http_strict_take(enum bt_http_role role, struct bt_str text,
                         struct bt_http_head *head,
                         struct bt_http_field *fields)
{
    const char *const last = text.ptr + text.len;
    const char *line = text.ptr;
    const char *end = memchr(line, '\r', text.len);
    size_t count = 0;

    take_start(role, bt_str_span(line, (size_t)(end - line)), head);
    for (line = end + 2; *line != '\r'; line = end + 2) {
        const char *const colon = memchr(line, ':', (size_t)(last - line));

        end = memchr(colon, '\r', (size_t)(last - colon));
        fields[count++] = (struct bt_http_field){
            .name = bt_str_span(line, (size_t)(colon - line)),
            .value =
                bt_str_trim(bt_str_span(colon + 1, (size_t)(end - colon - 1)))};
    }
    head->fields = fields;
    head->field_count = count;
}

/* What the fields of one head say, gathered in one pass. */
struct field_facts {
    unsigned host_count;
    unsigned length_count;
    unsigned coding_count;
    struct bt_str host;
    struct bt_str length;
    struct bt_str coding;
    bool says_close;
    bool says_keep_alive;
    bool says_upgrade;
    bool has_upgrade;
    bool expects_continue;
};

static void note_connection(struct field_facts *facts, struct bt_str list)
{
    struct bt_str item;

    while (bt_str_next_item(&list, &item)) {
        facts->says_close |= bt_str_eq_nocase(item, BT_STR("close"));
        facts->says_keep_alive |= bt_str_eq_nocase(item, BT_STR("keep-alive"));
        facts->says_upgrade |= bt_str_eq_nocase(item, BT_STR("upgrade"));
    }
}

static void note_field(struct field_facts *facts,
                       const struct bt_http_field *field)
{
    const struct bt_str name = field->name;

    if (bt_str_eq_nocase(name, BT_STR("host"))) {
        facts->host_count++;
        facts->host = field->value;
    } else if (bt_str_eq_nocase(name, BT_STR("content-length"))) {
        facts->length_count++;
        facts->length = field->value;
    } else if (bt_str_eq_nocase(name, BT_STR("transfer-encoding"))) {
        facts->coding_count++;
        facts->coding = field->value;
    } else if (bt_str_eq_nocase(name, BT_STR("connection"))) {
        note_connection(facts, field->value);
    } else if (bt_str_eq_nocase(name, BT_STR("upgrade"))) {
        facts->has_upgrade = true;
    } else if (bt_str_eq_nocase(name, BT_STR("expect"))) {
        facts->expects_continue |=
            bt_str_eq_nocase(field->value, BT_STR("100-continue"));
    }
}

static struct field_facts gather(const struct bt_http_head *head)
{
    struct field_facts facts = {.host_count = 0};

    for (size_t i = 0; i < head->field_count; i++) {
        note_field(&facts, &head->fields[i]);
    }
    return facts;
}

/* Not exactly "chunked": a coding not done here (501), or nonsense (400). */
static bool refuse_coding(struct bt_str coding,
                          struct bt_http_parse_error *error_p)
{
    struct bt_str rest = coding;
    struct bt_str item = {"", 0};
    unsigned chunked = 0;

    while (bt_str_next_item(&rest, &item)) {
        if (!is_token(item)) {
            return refuse(error_p, 400, "transfer-encoding is malformed");
        }
        chunked += bt_str_eq_nocase(item, BT_STR("chunked")) ? 1 : 0;
    }
    if (item.len == 0) {
        return refuse(error_p, 400, "transfer-encoding is empty");
    }
    if (chunked > 1 ||
        (chunked == 1 && !bt_str_eq_nocase(item, BT_STR("chunked")))) {
        return refuse(error_p, 400, "chunked must come once and last");
    }
    return refuse(error_p, 501, "only transfer-encoding chunked is known");
}

static bool check_coding(const struct field_facts *facts, unsigned minor,
                         struct bt_http_parse_error *error_p)
{
    if (facts->length_count > 0) {
        return refuse(error_p, 400,
                      "content-length and transfer-encoding together");
    }
    if (minor == 0) {
        return refuse(error_p, 400, "transfer-encoding in HTTP/1.0");
    }
    if (facts->coding_count > 1) {
        return refuse(error_p, 400, "several transfer-encoding fields");
    }
    if (!bt_str_eq_nocase(facts->coding, BT_STR("chunked"))) {
        return refuse_coding(facts->coding, error_p);
    }
    return true;
}

static bool check_length(const struct field_facts *facts, uint64_t *length_p,
                         struct bt_http_parse_error *error_p)
{
    enum bt_status status;
    uint64_t length;

    if (facts->length_count > 1) {
        return refuse(error_p, 400, "several content-length fields");
    }
    status = bt_str_to_u64(facts->length, &length);
    if (status == BT_ERR_RANGE) {
        return refuse(error_p, 413, "content-length is too large");
    }
    if (status != BT_OK) {
        return refuse(error_p, 400, "content-length is not a number");
    }
    if (length > LENGTH_MAX) {
        return refuse(error_p, 413, "content-length is too large");
    }
    *length_p = length;
    return true;
}

/* The framing that the fields ask for; `otherwise` when they say nothing. */
static bool set_framing(struct bt_http_head *head,
                        const struct field_facts *facts,
                        enum bt_http_framing otherwise,
                        struct bt_http_parse_error *error_p)
{
    head->framing = otherwise;
    head->content_length = 0;
    if (facts->coding_count > 0) {
        head->framing = BT_HTTP_CHUNKED;
        return check_coding(facts, head->minor, error_p);
    }
    if (facts->length_count > 0) {
        if (!check_length(facts, &head->content_length, error_p)) {
            return false;
        }
        head->framing =
            head->content_length > 0 ? BT_HTTP_LENGTH : BT_HTTP_NO_BODY;
    }
    return true;
}

static bool check_host(const struct field_facts *facts, unsigned minor,
                       struct bt_http_parse_error *error_p)
{
    if (facts->host_count > 1) {
        return refuse(error_p, 400, "several host fields");
    }
    if (facts->host_count == 0 && minor > 0) {
        return refuse(error_p, 400, "the host field is missing");
    }
    for (size_t i = 0; i < facts->host.len; i++) {
        const char c = facts->host.ptr[i];

        if (!is_alnum(c) &&
            (c == '\0' || strchr("-._~%!$&'()*+;=:[]", c) == NULL)) {
            return refuse(error_p, 400, "the host field is malformed");
        }
    }
    return true;
}

/* Absolute form: what lies behind the authority, which we do not use. */
static bool cut_authority(struct bt_str *target,
                          struct bt_http_parse_error *error_p)
{
    const size_t scheme = bt_str_starts_nocase(*target, BT_STR("http://")) ? 7
                          : bt_str_starts_nocase(*target, BT_STR("https://"))
                              ? 8
                              : 0;
    size_t len = 0;

    if (scheme == 0) {
        return refuse(error_p, 400, "the target is not a path");
    }
    target->ptr += scheme;
    target->len -= scheme;
    while (len < target->len && target->ptr[len] != '/' &&
           target->ptr[len] != '?') {
        if (target->ptr[len] == '@') {
            return refuse(error_p, 400, "user information in the target");
        }
        len++;
    }
    if (len == 0) {
        return refuse(error_p, 400, "the target has no host");
    }
    target->ptr += len;
    target->len -= len;
    return true;
}

static bool set_path(struct bt_http_head *head,
                     struct bt_http_parse_error *error_p)
{
    struct bt_str target = head->target;
    size_t end;

    if (bt_str_eq(target, BT_STR("*"))) {
        head->path = target;
        head->query = bt_str_span("", 0);
        return bt_str_eq(head->method, BT_STR("OPTIONS")) ||
               refuse(error_p, 400, "the target * is for OPTIONS alone");
    }
    if (target.ptr[0] != '/' && !cut_authority(&target, error_p)) {
        return false;
    }
    end = bt_str_find(target, BT_STR("?"));
    head->path = end == 0 ? BT_STR("/") : bt_str_span(target.ptr, end);
    head->query = end < target.len
                      ? bt_str_span(target.ptr + end + 1, target.len - end - 1)
                      : bt_str_span("", 0);
    return true;
}

static bool lives_on(const struct field_facts *facts, unsigned minor)
{
    if (facts->says_close) {
        return false;
    }
    return minor > 0 || facts->says_keep_alive;
}

bool bt_http_strict_request(struct bt_http_head *head,
                            struct bt_http_parse_error *error_p)
{
    const struct field_facts facts = gather(head);

    if (!check_host(&facts, head->minor, error_p) ||
        !set_framing(head, &facts, BT_HTTP_NO_BODY, error_p) ||
        !set_path(head, error_p)) {
        return false;
    }
    head->keep_alive = lives_on(&facts, head->minor);
    head->expects_continue = facts.expects_continue && head->minor > 0;
    head->upgrades = facts.says_upgrade && facts.has_upgrade;
    return true;
}

bool bt_http_strict_answer(struct bt_http_head *head, bool asked_head,
                           struct bt_http_parse_error *error_p)
{
    const struct field_facts facts = gather(head);

    if (head->code == 101) {
        return refuse(error_p, 502, "an upgrade nobody asked for");
    }
    if (!set_framing(head, &facts, BT_HTTP_UNTIL_CLOSE, error_p)) {
        return false;
    }
    if (asked_head || head->code < 200 || head->code == 204 ||
        head->code == 304) {
        head->framing = BT_HTTP_NO_BODY;
    }
    head->keep_alive =
        lives_on(&facts, head->minor) && head->framing != BT_HTTP_UNTIL_CLOSE;
    head->expects_continue = false;
    head->upgrades = facts.says_upgrade && facts.has_upgrade;
    return true;
}

/* ---- chunks ---- */

#define PLAIN_DIGITS 7 /* below CHUNK_SIZE_MAX whatever they are */

enum chunk_state {
    CHUNK_SIZE, /* at the first digit or behind one */
    CHUNK_EXT_NAME_START,
    CHUNK_EXT_NAME,
    CHUNK_EXT_VALUE_START,
    CHUNK_EXT_VALUE,
    CHUNK_EXT_QUOTED,
    CHUNK_EXT_ESCAPED,
    CHUNK_EXT_BEHIND, /* the closing quote */
    CHUNK_SIZE_LF,
    CHUNK_DATA,
    CHUNK_DATA_CR,
    CHUNK_DATA_LF,
    CHUNK_LINE_START, /* of a trailer, or of the final CRLF */
    CHUNK_TRAILER_NAME,
    CHUNK_TRAILER_VALUE,
    CHUNK_TRAILER_LF,
    CHUNK_END_LF,
    CHUNK_DONE,
    CHUNK_REFUSED,
};

static unsigned hex_value(char c)
{
    if (is_digit(c)) {
        return (unsigned)(c - '0');
    }
    return (unsigned)((c | 0x20) - 'a') + 10;
}

static enum chunk_state size_next(struct bt_http_chunks *chunks, char c)
{
    if (is_hex(c)) {
        chunks->left = chunks->left * 16 + hex_value(c);
        chunks->digits++;
        return chunks->digits > 16 || chunks->left > CHUNK_SIZE_MAX
                   ? CHUNK_REFUSED
                   : CHUNK_SIZE;
    }
    if (chunks->digits == 0) {
        return CHUNK_REFUSED;
    }
    if (c == ';') {
        return CHUNK_EXT_NAME_START;
    }
    return c == '\r' ? CHUNK_SIZE_LF : CHUNK_REFUSED;
}

/* Behind a whole extension. */
static enum chunk_state ext_ends(char c)
{
    if (c == ';') {
        return CHUNK_EXT_NAME_START;
    }
    return c == '\r' ? CHUNK_SIZE_LF : CHUNK_REFUSED;
}

/* In a quoted value, or at the beginning of any. */
static enum chunk_state ext_value_next(enum chunk_state state, char c)
{
    if (state == CHUNK_EXT_VALUE_START) {
        if (c == '"') {
            return CHUNK_EXT_QUOTED;
        }
        return is_token_char(c) ? CHUNK_EXT_VALUE : CHUNK_REFUSED;
    }
    if (state == CHUNK_EXT_QUOTED && c == '\\') {
        return CHUNK_EXT_ESCAPED;
    }
    if (state == CHUNK_EXT_QUOTED && c == '"') {
        return CHUNK_EXT_BEHIND;
    }
    return is_text_char(c) ? CHUNK_EXT_QUOTED : CHUNK_REFUSED;
}

static enum chunk_state ext_next(enum chunk_state state, char c)
{
    if (state == CHUNK_EXT_NAME_START) {
        return is_token_char(c) ? CHUNK_EXT_NAME : CHUNK_REFUSED;
    }
    if (state == CHUNK_EXT_NAME && c == '=') {
        return CHUNK_EXT_VALUE_START;
    }
    if (state == CHUNK_EXT_NAME || state == CHUNK_EXT_VALUE) {
        return is_token_char(c) ? state : ext_ends(c);
    }
    return state == CHUNK_EXT_BEHIND ? ext_ends(c) : ext_value_next(state, c);
}

/* The LF of a size line: data follows, or the trailers behind the last. */
static enum chunk_state size_line_ends(struct bt_http_chunks *chunks, char c)
{
    if (c != '\n') {
        return CHUNK_REFUSED;
    }
    chunks->digits = 0;
    chunks->line_bytes = 0;
    return chunks->left > 0 ? CHUNK_DATA : CHUNK_LINE_START;
}

static enum chunk_state trailer_next(enum chunk_state state, char c)
{
    switch ((unsigned)state) { /* these four alone come here */
    case CHUNK_LINE_START:
        if (c == '\r') {
            return CHUNK_END_LF;
        }
        return is_token_char(c) ? CHUNK_TRAILER_NAME : CHUNK_REFUSED;
    case CHUNK_TRAILER_NAME:
        if (c == ':') {
            return CHUNK_TRAILER_VALUE;
        }
        return is_token_char(c) ? CHUNK_TRAILER_NAME : CHUNK_REFUSED;
    case CHUNK_TRAILER_VALUE:
        if (c == '\r') {
            return CHUNK_TRAILER_LF;
        }
        return is_text_char(c) ? CHUNK_TRAILER_VALUE : CHUNK_REFUSED;
    default:
        return c == '\n' ? CHUNK_LINE_START : CHUNK_REFUSED;
    }
}

static enum chunk_state byte_next(struct bt_http_chunks *chunks, char c)
{
    const enum chunk_state state = (enum chunk_state)chunks->state;

    if (state == CHUNK_SIZE) {
        return size_next(chunks, c);
    }
    if (state < CHUNK_SIZE_LF) {
        return ext_next(state, c);
    }
    if (state == CHUNK_SIZE_LF) {
        return size_line_ends(chunks, c);
    }
    if (state == CHUNK_DATA_CR) {
        return c == '\r' ? CHUNK_DATA_LF : CHUNK_REFUSED;
    }
    if (state == CHUNK_DATA_LF) {
        return c == '\n' ? CHUNK_SIZE : CHUNK_REFUSED;
    }
    if (state < CHUNK_END_LF) {
        return trailer_next(state, c);
    }
    return state == CHUNK_END_LF && c == '\n' ? CHUNK_DONE : CHUNK_REFUSED;
}

static enum bt_http_chunk_run run_of(enum chunk_state state)
{
    if (state == CHUNK_DATA) {
        return BT_HTTP_CHUNK_DATA;
    }
    if ((state > CHUNK_SIZE && state < CHUNK_SIZE_LF) ||
        (state >= CHUNK_TRAILER_NAME && state <= CHUNK_TRAILER_LF)) {
        return BT_HTTP_CHUNK_IGNORED;
    }
    return BT_HTTP_CHUNK_FRAMING;
}

static bool over_limits(struct bt_http_chunks *chunks)
{
    const enum chunk_state state = (enum chunk_state)chunks->state;

    if (run_of(state) == BT_HTTP_CHUNK_IGNORED) {
        chunks->line_bytes++;
        chunks->extra_bytes++;
    }
    if (state == CHUNK_LINE_START) {
        chunks->line_bytes = 0;
    }
    return chunks->extra_bytes > CHUNK_EXTRA_MAX ||
           (state < CHUNK_SIZE_LF && chunks->line_bytes > CHUNK_LINE_MAX);
}

/* Is the byte between these two states one to be ignored? */
static bool is_ignored(enum chunk_state from, enum chunk_state to)
{
    return run_of(to) == BT_HTTP_CHUNK_IGNORED ||
           (from >= CHUNK_TRAILER_NAME && from <= CHUNK_TRAILER_LF);
}

/* The run of one kind at the front; a refused byte ends it as BAD. */
static enum bt_http_chunk_run framing_run(struct bt_http_chunks *chunks,
                                          struct bt_str bytes, size_t *len_p)
{
    enum bt_http_chunk_run run = BT_HTTP_CHUNK_FRAMING;
    size_t len = 0;

    while (len < bytes.len && chunks->state != CHUNK_DATA) {
        const enum chunk_state from = (enum chunk_state)chunks->state;
        const enum chunk_state to = byte_next(chunks, bytes.ptr[len]);
        const enum bt_http_chunk_run kind = is_ignored(from, to)
                                                ? BT_HTTP_CHUNK_IGNORED
                                                : BT_HTTP_CHUNK_FRAMING;

        /* These bytes change the state alone, so they can be seen again. */
        if (len > 0 && kind != run) {
            break;
        }
        run = kind;
        chunks->state = to;
        len++;
        if (to == CHUNK_REFUSED || over_limits(chunks)) {
            return BT_HTTP_CHUNK_BAD;
        }
        if (to == CHUNK_DONE) {
            run = BT_HTTP_CHUNK_END;
            break;
        }
    }
    *len_p = len;
    return run;
}

/*
 * From one chunk's data to the next one's where all of it is there and nothing
 * but digits stands in the size line, as is usual; else 0, and nothing is
 * changed: byte by byte then.
 */
static size_t plain_framing(struct bt_http_chunks *chunks, struct bt_str bytes)
{
    uint64_t size = 0;
    size_t at = 2;

    if (chunks->state != CHUNK_DATA_CR || bytes.len < 2 ||
        bytes.ptr[0] != '\r' || bytes.ptr[1] != '\n') {
        return 0;
    }
    while (at < bytes.len && at < 2 + PLAIN_DIGITS && is_hex(bytes.ptr[at])) {
        size = size * 16 + hex_value(bytes.ptr[at]);
        at++;
    }
    if (size == 0 || bytes.len - at < 2 || bytes.ptr[at] != '\r' ||
        bytes.ptr[at + 1] != '\n') {
        return 0;
    }
    chunks->left = size;
    chunks->state = CHUNK_DATA;
    return at + 2;
}

enum bt_http_chunk_run bt_http_chunks_next(struct bt_http_chunks *chunks,
                                           struct bt_str bytes, size_t *len_p)
{
    if (chunks->state == CHUNK_DATA) {
        const size_t len =
            bytes.len < chunks->left ? bytes.len : (size_t)chunks->left;

        chunks->left -= len;
        if (chunks->left == 0) {
            chunks->state = CHUNK_DATA_CR;
        }
        *len_p = len;
        return BT_HTTP_CHUNK_DATA;
    }
    *len_p = plain_framing(chunks, bytes);
    return *len_p > 0 ? BT_HTTP_CHUNK_FRAMING
                      : framing_run(chunks, bytes, len_p);
}
