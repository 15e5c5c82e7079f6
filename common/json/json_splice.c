/*
 * The edit list of one text, always in the text's order and without overlap:
 *
 *     text    ....[from  to)........[from to).......
 *     result  ....insert............insert..........
 *
 * A new edit never begins before the last one, but for two cases: it covers
 * edits made inside a member that is now dropped or set (they are removed),
 * and the run at a level's start grows up to the next kept member in place.
 */
#include "common/json/json_splice.h"

#define EDITS_FIRST 8

void bt_json_splice_init(struct bt_json_splice *splice, struct bt_arena *arena,
                         struct bt_str text)
{
    *splice = (struct bt_json_splice){.text = text, .arena = arena};
}

static bool reserve_edit(struct bt_json_splice *splice)
{
    const size_t cap = splice->cap == 0 ? EDITS_FIRST : splice->cap * 2;
    struct bt_json_edit *edits;

    if (splice->edits != NULL && splice->count < splice->cap) {
        return true;
    }
    edits = cap > SIZE_MAX / 2 / sizeof(*edits)
                ? NULL
                : bt_arena_alloc(splice->arena, cap * sizeof(*edits));
    if (edits == NULL) {
        splice->failed = true;
        return false;
    }
    if (splice->edits != NULL) {
        memcpy(edits, splice->edits, splice->count * sizeof(*edits));
    }
    splice->edits = edits;
    splice->cap = cap;
    return true;
}

/* Takes out the edits that begin at `from` or behind it. */
static void remove_edits(struct bt_json_splice *splice, const char *from)
{
    while (splice->count > 0 && splice->edits[splice->count - 1].from >= from) {
        splice->count--;
    }
}

static void push_edit(struct bt_json_splice *splice, const char *from,
                      const char *to, struct bt_str insert)
{
    if (reserve_edit(splice)) {
        splice->edits[splice->count++] =
            (struct bt_json_edit){.from = from, .to = to, .insert = insert};
    }
}

static void add_edit(struct bt_json_splice *splice, const char *from,
                     const char *to, struct bt_str insert)
{
    struct bt_json_edit *last;

    if (splice->failed) {
        return;
    }
    remove_edits(splice, from);
    last = splice->count == 0 ? NULL : &splice->edits[splice->count - 1];
    if (last != NULL && last->to == from &&
        (last->insert.len == 0 || insert.len == 0)) {
        last->to = to;
        last->insert = insert.len == 0 ? last->insert : insert;
        return;
    }
    push_edit(splice, from, to, insert);
}

void bt_json_level_open(struct bt_json_level *level, struct bt_str object)
{
    const char *const brace = memchr(object.ptr, '{', object.len);

    *level = (struct bt_json_level){.last_end =
                                        brace == NULL ? object.ptr : brace + 1};
}

void bt_json_level_keep(struct bt_json_level *level,
                        struct bt_json_splice *splice,
                        const struct bt_json_member *member)
{
    if (!level->has_kept && level->lead_edit != 0 && !splice->failed) {
        splice->edits[level->lead_edit - 1].to = member->begin;
    }
    level->has_kept = true;
    level->last_end = member->end;
}

void bt_json_level_drop(struct bt_json_level *level,
                        struct bt_json_splice *splice,
                        const struct bt_json_member *member)
{
    const bool is_first = !level->has_kept && level->lead_edit == 0;
    const char *const from = is_first ? member->begin : level->last_end;

    add_edit(splice, from, member->end, bt_str_span(NULL, 0));
    if (is_first) {
        level->lead_edit = splice->count;
    }
    level->last_end = member->end;
}

void bt_json_level_set(struct bt_json_level *level,
                       struct bt_json_splice *splice,
                       const struct bt_json_member *member, struct bt_str value)
{
    const struct bt_str old = member->value.text;

    bt_json_level_keep(level, splice, member);
    add_edit(splice, old.ptr, old.ptr + old.len, value);
}

/*
 * An edit of its own even behind a dropped member: were it merged, no later
 * close could take it back.
 */
void bt_json_level_close(const struct bt_json_level *level,
                         struct bt_json_splice *splice, const char *close,
                         struct bt_str members)
{
    struct bt_str insert = members;
    char *joined;

    if (splice->failed) {
        return;
    }
    remove_edits(splice, close);
    if (members.len == 0) {
        return;
    }
    if (level->has_kept) {
        joined = members.len == SIZE_MAX
                     ? NULL
                     : bt_arena_alloc(splice->arena, members.len + 1);
        if (joined == NULL) {
            splice->failed = true;
            return;
        }
        joined[0] = ',';
        memcpy(joined + 1, members.ptr, members.len);
        insert = bt_str_span(joined, members.len + 1);
    }
    push_edit(splice, close, close, insert);
}

void bt_json_splice_copy(struct bt_json_splice *splice,
                         const struct bt_json_splice *from)
{
    *splice = *from;
    splice->edits = NULL;
    splice->cap = 0;
    splice->count = 0;
    for (size_t i = 0; i < from->count && !splice->failed; i++) {
        push_edit(splice, from->edits[i].from, from->edits[i].to,
                  from->edits[i].insert);
    }
}

size_t bt_json_splice_len(const struct bt_json_splice *splice)
{
    size_t len = splice->text.len;

    for (size_t i = 0; i < splice->count; i++) {
        const struct bt_json_edit *const edit = &splice->edits[i];

        len = len - (size_t)(edit->to - edit->from) + edit->insert.len;
    }
    return len;
}

size_t bt_json_splice_iov_max(const struct bt_json_splice *splice)
{
    return 2 * splice->count + 1;
}

/* The span of the text between edit i-1 and edit i; i = count: the rest. */
static struct bt_str kept_span(const struct bt_json_splice *splice, size_t i)
{
    const char *const from =
        i == 0 ? splice->text.ptr : splice->edits[i - 1].to;
    const char *const to = i == splice->count
                               ? splice->text.ptr + splice->text.len
                               : splice->edits[i].from;

    return bt_str_span(from, (size_t)(to - from));
}

static size_t put_iov(struct iovec *iov, size_t count, struct bt_str bytes)
{
    /* writev() only reads, but its struct says otherwise. */
    union {
        const char *from;
        void *to;
    } const ptr = {.from = bytes.ptr};

    if (bytes.len == 0) {
        return count;
    }
    iov[count].iov_base = ptr.to;
    iov[count].iov_len = bytes.len;
    return count + 1;
}

size_t bt_json_splice_iov(const struct bt_json_splice *splice,
                          struct iovec *iov)
{
    size_t count = 0;

    for (size_t i = 0; i < splice->count; i++) {
        count = put_iov(iov, count, kept_span(splice, i));
        count = put_iov(iov, count, splice->edits[i].insert);
    }
    return put_iov(iov, count, kept_span(splice, splice->count));
}
