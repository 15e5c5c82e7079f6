/*
 * What /engines and /handoffs show, as JSON.
 */
#ifndef PROXY_ADMIN_ADMIN_VIEW_H
#define PROXY_ADMIN_ADMIN_VIEW_H

#include "common/base/buf.h"
#include "proxy/admin/admin.h"

/* False when memory is out. */
bool admin_view_engines(const struct admin_options *options,
                        struct bt_buf *body);
/* At most 1,000 live ones, the oldest first, and the last that ended. */
bool admin_view_handoffs(const struct handoffs *handoffs, struct bt_buf *body);

#endif
