/*
 * The keys that clients may use: one per line of a file, as bearer tokens; and
 * the reading of the one key that we use towards engines or agents. In the
 * list a line that begins with '#' is a comment, of whatever length. A key has
 * 4,096 bytes at most; what is wrong with one is logged with its line.
 */
#ifndef PROXY_CONFIG_AUTH_H
#define PROXY_CONFIG_AUTH_H

#include "common/base/str.h"

struct auth;

/* path NULL: every client may. Errors are logged. */
BT_MUST_CHECK enum bt_status auth_open(const char *path, struct auth **auth_p);
void auth_close(struct auth **auth);

/* Are client keys configured? NULL is fine: no. */
bool auth_is_needed(const struct auth *auth);
/* `authorization` is the field's value. Takes the same time for every key. */
bool auth_allows(const struct auth *auth, struct bt_str authorization);

/* The first line of a file without blanks around it. Errors are logged. */
BT_MUST_CHECK enum bt_status auth_key_read(const char *path,
                                           struct bt_str *key_p);
/* Wipes and frees a key that was read. */
void auth_key_free(struct bt_str *key);

#endif
