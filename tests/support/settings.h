/*
 * The proxy's settings at their defaults, and a secret file to name in them.
 */
#ifndef TESTS_SUPPORT_SETTINGS_H
#define TESTS_SUPPORT_SETTINGS_H

#include "proxy/config/config.h"

extern struct config config;
extern struct bt_conf_error config_error; /* the last one */
extern char secret[]; /* a file that its owner alone may read */

/* Before and after each test. */
void settings_init(void);
void settings_fini(void);
/* As --set does; must succeed. */
void settings_set(const char *path, const char *value);
/* A pool of the baton connector that config_check lets pass. */
void settings_make_good(void);

/* config_check says this, and no more. */
void expect_refusal(const char *message);

/* A value in a good configuration, and all that is said of it. */
struct refusal {
    const char *path;
    const char *value;
    const char *message;
};
void expect_refusals(const struct refusal *rows, size_t count);

#endif
