/*
 * The keys that clients may use: one per line of a file (common/io/key_file.h),
 * as bearer tokens. A line that begins with '#' is a comment, of whatever
 * length.
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

#endif
