/*
 * An agent's introduction: its proof of the key, who it is, and the text that
 * its peers will get, which is copied and never printed anew.
 */
#include "proxy/agents/agents_core.h"

#include <stdlib.h>

static const struct {
    const char *text;
    enum agent_role role;
} ROLES[] = {
    {"prefill", AGENT_ROLE_PREFILL},
    {"decode", AGENT_ROLE_DECODE},
    {"both", AGENT_ROLE_BOTH},
    {"scheduler", AGENT_ROLE_SCHEDULER},
};

const char *agent_role_text(enum agent_role role)
{
    for (size_t i = 0; i < BT_ARRAY_LEN(ROLES); i++) {
        if (ROLES[i].role == role) {
            return ROLES[i].text;
        }
    }
    return "unknown";
}

static bool proof_is_good(const struct agent_link *link,
                          const struct link_message *message)
{
    const struct bt_str proof = link_message_text(message, LINK_MEMBER_PROOF);
    const struct bt_str key = link->agents->key;

    return key.len == 0 ||
           bt_proof_is_good(key, &link->nonces, BT_PROOF_AGENT, proof);
}

static bool read_role(const struct link_message *message,
                      struct agent_hello *hello)
{
    const struct bt_str role = link_message_text(message, LINK_MEMBER_ROLE);

    for (size_t i = 0; i < BT_ARRAY_LEN(ROLES); i++) {
        if (bt_str_eq(role, bt_str_of(ROLES[i].text))) {
            hello->role = ROLES[i].role;
            return true;
        }
    }
    return false;
}

static bool read_boots(const struct link_message *message,
                       struct agent_hello *hello)
{
    const struct bt_json_value *const boots =
        &message->members[LINK_MEMBER_BOOTS];
    struct bt_json_iter it;
    struct bt_json_value item;

    if (boots->type == BT_JSON_NONE) {
        return true;
    }
    bt_json_iter_array(&it, boots->text);
    while (bt_json_next_element(&it, &item)) {
        if (hello->boot_count == AGENT_BOOTS_MAX ||
            item.type != BT_JSON_STRING ||
            bt_str_hex_to_u64(bt_str_span(item.text.ptr + 1, item.text.len - 2),
                              &hello->boots[hello->boot_count]) != BT_OK) {
            return false;
        }
        hello->boot_count++;
    }
    return bt_json_iter_end(&it) == BT_OK;
}

/* Names that we do not know are another version's. */
static bool read_features(const struct link_message *message,
                          struct agent_hello *hello)
{
    const struct bt_json_value *const features =
        &message->members[LINK_MEMBER_FEATURES];
    struct bt_json_iter it;
    struct bt_json_value item;

    if (features->type == BT_JSON_NONE) {
        return true;
    }
    bt_json_iter_array(&it, features->text);
    while (bt_json_next_element(&it, &item)) {
        if (bt_str_eq(item.text, BT_STR("\"" LINK_FEATURE_WANT "\""))) {
            hello->has_want = true;
        }
    }
    return bt_json_iter_end(&it) == BT_OK;
}

static bool read_url(const struct link_message *message,
                     struct agent_hello *hello, const char **why_p)
{
    char *const text = link_message_dup(message, LINK_MEMBER_URL, LINK_URL_MAX);
    struct bt_url url;

    if (text == NULL) {
        *why_p = "hello has no url";
        return false;
    }
    if (bt_url_parse(text, &url, NULL) != BT_OK) {
        free(text);
        *why_p = "hello's url is no engine's URL";
        return false;
    }
    free(text);
    hello->url = bt_str_dup(bt_str_of(url.normal));
    *why_p = "out of memory";
    return hello->url != NULL;
}

static bool is_printable(const char *text)
{
    for (; *text != '\0'; text++) {
        if ((unsigned char)*text < 0x20 || *text == 0x7f) {
            return false;
        }
    }
    return true;
}

static bool read_texts(const struct link_message *message,
                       struct agent_hello *hello, const char **why_p)
{
    hello->engine =
        link_message_dup(message, LINK_MEMBER_ENGINE, LINK_ENGINE_MAX);
    if (hello->engine == NULL || hello->engine[0] == '\0' ||
        !is_printable(hello->engine)) {
        *why_p = "hello's engine is not 1 to 255 printable characters";
        return false;
    }
    hello->fingerprint = link_message_dup(message, LINK_MEMBER_FINGERPRINT,
                                          LINK_FINGERPRINT_MAX);
    if (hello->fingerprint == NULL) {
        *why_p = "hello's fingerprint is no string of at most 4096 bytes";
        return false;
    }
    return read_url(message, hello, why_p);
}

static bool read_numbers(const struct link_message *message,
                         struct agent_hello *hello, const char **why_p)
{
    hello->rank = link_message_u32(message, LINK_MEMBER_RANK, UINT32_MAX);
    hello->world = link_message_u32(message, LINK_MEMBER_WORLD, 0);
    hello->tp = link_message_u32(message, LINK_MEMBER_TP, 1);
    hello->pp = link_message_u32(message, LINK_MEMBER_PP, 1);
    hello->dp = link_message_u32(message, LINK_MEMBER_DP, 0);
    hello->blocks = link_message_u64(message, LINK_MEMBER_BLOCKS, 0);
    hello->block_tokens =
        link_message_u64(message, LINK_MEMBER_BLOCK_TOKENS, 0);
    if (hello->world == 0 || hello->world > HANDOFF_RANKS_MAX ||
        hello->rank >= hello->world) {
        *why_p = "hello's rank and world are not 0 <= rank < world <= 64";
        return false;
    }
    if (!link_message_hex(message, LINK_MEMBER_BOOT, &hello->boot) ||
        hello->boot == 0) {
        *why_p = "hello's boot is no hex number above 0";
        return false;
    }
    if (!link_message_hex(message, LINK_MEMBER_ENGINE_BOOT,
                          &hello->engine_boot)) {
        *why_p = "hello's engine_boot is no hex number";
        return false;
    }
    return true;
}

static bool read_summary(const struct link_message *message,
                         struct agent_hello *hello)
{
    const struct bt_json_value *const summary =
        &message->members[LINK_MEMBER_SUMMARY];

    if (summary->type == BT_JSON_NONE) {
        hello->summary = bt_str_dup(BT_STR("{}"));
    } else if (summary->type == BT_JSON_OBJECT &&
               summary->text.len <= LINK_SUMMARY_MAX) {
        hello->summary = bt_str_dup(summary->text);
    }
    return hello->summary != NULL;
}

/* What an agent says to us alone. */
static bool is_ours(enum link_member member)
{
    return member == LINK_MEMBER_TYPE || member == LINK_MEMBER_V ||
           member == LINK_MEMBER_PROOF || member == LINK_MEMBER_FEATURES ||
           member == LINK_MEMBER_BOOTS || member == LINK_MEMBER_SUMMARY;
}

/* Everything that the agent said of itself to others too. */
static bool copy_peer(struct bt_str line, struct agent_hello *hello)
{
    struct bt_json_iter it;
    struct bt_json_member member;

    bt_buf_init(&hello->peer);
    bt_json_iter_object(&it, line);
    while (bt_json_next_member(&it, &member)) {
        if (!is_ours(link_member_of(member.name))) {
            bt_buf_append_char(&hello->peer, hello->peer.len == 0 ? '{' : ',');
            bt_buf_append(
                &hello->peer,
                bt_str_span(member.begin, (size_t)(member.end - member.begin)));
        }
    }
    bt_buf_append_char(&hello->peer, '}');
    return bt_json_iter_end(&it) == BT_OK && !hello->peer.failed;
}

bool agent_hello_read(const struct agent_link *link, struct bt_str line,
                      const struct link_message *message,
                      struct agent_hello *hello, const char **code_p,
                      const char **why_p)
{
    *code_p = "version";
    *why_p = "this proxy speaks version 1 of the link";
    if (link_message_u64(message, LINK_MEMBER_V, 0) != LINK_VERSION) {
        return false;
    }
    *code_p = "proof";
    *why_p = "hello does not prove the shared key";
    if (!proof_is_good(link, message)) {
        return false;
    }
    *code_p = "bad_hello";
    if (!read_texts(message, hello, why_p) ||
        !read_numbers(message, hello, why_p)) {
        return false;
    }
    *why_p = "hello's role is not prefill, decode, both or scheduler";
    if (!read_role(message, hello)) {
        return false;
    }
    *why_p = "hello's boots are no list of at most 64 hex numbers";
    if (!read_boots(message, hello)) {
        return false;
    }
    *why_p = "hello's features are no list";
    if (!read_features(message, hello)) {
        return false;
    }
    *why_p = "hello's summary is no object of at most 1024 bytes";
    if (!read_summary(message, hello)) {
        return false;
    }
    *why_p = "hello has no card";
    if (hello->role != AGENT_ROLE_SCHEDULER &&
        message->members[LINK_MEMBER_CARD].type != BT_JSON_OBJECT) {
        return false;
    }
    *code_p = "other";
    *why_p = "out of memory";
    return copy_peer(line, hello);
}

void agent_hello_fini(struct agent_hello *hello)
{
    free(hello->engine);
    free(hello->url);
    free(hello->fingerprint);
    free(hello->summary);
    bt_buf_fini(&hello->peer);
    memset(hello, 0, sizeof(*hello));
}
