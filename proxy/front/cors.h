/*
 * cors: which pages of other sites may call this service from a browser, and
 * the fields that tell the browser so (the Fetch standard). Pure.
 *
 *     OPTIONS with Origin and Access-Control-Request-Method   a preflight
 *     any other request with Origin                           its answer names
 *                                                             the origin
 */
#ifndef PROXY_FRONT_CORS_H
#define PROXY_FRONT_CORS_H

#include "common/http/http_head.h"
#include "proxy/config/config.h"

/* Without origins nothing of this happens. */
bool cors_is_on(const struct cors_conf *cors);

/*
 * What the answer names as the origin that may read it: a text of the
 * configuration, NULL: none.
 */
const char *cors_origin(const struct cors_conf *cors,
                        const struct bt_http_head *head);

bool cors_is_preflight(const struct bt_http_head *head);
/* The lines of the answer to a preflight of `origin`. */
void cors_write_preflight(const struct cors_conf *cors, const char *origin,
                          const struct bt_http_head *head, struct bt_buf *out);

/* Appends an answer's lines, and ours. */
void cors_write_answer(const struct cors_conf *cors, const char *origin,
                       struct bt_str fields, struct bt_buf *out);

#endif
