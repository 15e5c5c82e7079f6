/*
 * What can go wrong in a way that the client sees: one row per fault in
 * fault.def. HTTP statuses and error texts stand nowhere else.
 */
#ifndef PROXY_BASE_FAULT_H
#define PROXY_BASE_FAULT_H

#include "common/base/buf.h"

enum fault {
    FAULT_NONE,
#define FAULT(name, status, type, code, message) FAULT_##name,
#include "proxy/base/fault.def"
#undef FAULT
    FAULT_COUNT
};

extern const char *const fault_names[FAULT_COUNT]; /* lower-case, for labels */

unsigned fault_status(enum fault fault);
/* May the same request succeed a little later? (Retry-After is sent.) */
bool fault_is_passing(enum fault fault);
/* The fault for a status of the HTTP layer (400, 408, 414, 431, 501, 505). */
enum fault fault_of_http(unsigned status);

/*
 * Appends an OpenAI error object. `detail` (may be empty; cut) follows the
 * row's message; `status` 0 is the row's own.
 */
void fault_write(struct bt_buf *out, enum fault fault, unsigned status,
                 struct bt_str detail);
/* The same as one server-sent event. */
void fault_write_event(struct bt_buf *out, enum fault fault, unsigned status);

#endif
