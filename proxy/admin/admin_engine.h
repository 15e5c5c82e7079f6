/*
 * What may be asked of single engines:
 *
 *     POST   /engines             adds one: 201, or 400, 409, 503
 *     GET    /engines/{id}        200, or 404 when it is gone
 *     DELETE /engines/{id}        202: it leaves; 409: the configuration's
 *     POST   /engines/{id}/drain  202: it gets no new requests
 *     DELETE /engines/{id}/drain  200: it gets some again
 *
 * Whoever may change something shows a key of auth.admin_keys_file; where
 * there is none, it comes from this host and is no page in a browser.
 */
#ifndef PROXY_ADMIN_ADMIN_ENGINE_H
#define PROXY_ADMIN_ADMIN_ENGINE_H

#include "common/http/http_head.h"
#include "common/io/net.h"
#include "proxy/admin/admin_view.h"

#define ADMIN_BODY_MAX (64 * BT_KIB)

enum admin_engine_verb {
    ADMIN_ENGINE_ADD,
    ADMIN_ENGINE_SHOW,
    ADMIN_ENGINE_REMOVE,
    ADMIN_ENGINE_DRAIN,
    ADMIN_ENGINE_TAKE_BACK,
};

struct admin_engine_ask {
    enum admin_engine_verb verb;
    uint64_t id; /* ADD: it is set when that is done */
};

/*
 * Is that a path of these? Then *allow_p is NULL, or tells what it allows
 * where the method is none of that.
 */
bool admin_engine_find(struct bt_str method, struct bt_str path,
                       struct admin_engine_ask *ask_p, const char **allow_p);
/* 0: it may; else a status, with what is wrong in *why_p (static). */
unsigned admin_engine_refuses(const struct admin_sources *sources,
                              const struct admin_engine_ask *ask,
                              const struct bt_http_head *head,
                              const struct bt_addr *peer, const char **why_p);
/*
 * Does it. The status; `body` gets the answer, where the status is below 300,
 * and else error_p the text of what is wrong.
 */
unsigned admin_engine_do(const struct admin_sources *sources,
                         struct admin_engine_ask *ask, struct bt_str request,
                         struct bt_buf *body, struct bt_conf_error *error_p);

#endif
