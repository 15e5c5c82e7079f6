/*
 * The texts of the statuses.
 */
#include "common/base/status.h"

const char *bt_status_text(enum bt_status status)
{
    switch (status) {
    case BT_AGAIN:
        return "not now";
    case BT_OK:
        return "ok";
    case BT_ERR_NOMEM:
        return "out of memory";
    case BT_ERR_SYSTEM:
        return "system call failed";
    case BT_ERR_SYNTAX:
        return "syntax error";
    case BT_ERR_RANGE:
        return "value out of range";
    case BT_ERR_LIMIT:
        return "limit reached";
    case BT_ERR_NOT_FOUND:
        return "not found";
    case BT_ERR_EXISTS:
        return "exists already";
    case BT_ERR_UNSUPPORTED:
        return "not supported";
    case BT_ERR_REFUSED:
        return "connection refused";
    case BT_ERR_RESET:
        return "connection lost";
    case BT_ERR_CLOSED:
        return "closed by the peer";
    case BT_ERR_TIMEOUT:
        return "timed out";
    case BT_ERR_PROTOCOL:
        return "protocol violated";
    }
    return "unknown status";
}
