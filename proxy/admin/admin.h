/*
 * The admin listener: what an operator may see. It answers GET and HEAD of
 * /metrics, /engines, /handoffs, /health and /ready. Control thread.
 */
#ifndef PROXY_ADMIN_ADMIN_H
#define PROXY_ADMIN_ADMIN_H

#include "proxy/admin/admin_view.h"

struct admin;

/* Opens the listener where one is configured; errors are logged. */
BT_MUST_CHECK enum bt_status admin_open(const struct admin_sources *sources,
                                        struct admin **admin_p);
void admin_close(struct admin **admin);
/* As bound; empty when none is configured. */
const char *admin_address(const struct admin *admin);

#endif
