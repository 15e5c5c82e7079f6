/*
 * The one status type of common/ and proxy/: 0 is success, positive means
 * "not now", negative is an error. The first function that knows the cause
 * logs it; the others pass the status on.
 */
#ifndef COMMON_BASE_STATUS_H
#define COMMON_BASE_STATUS_H

enum bt_status {
    BT_AGAIN = 1, /* not now: would block, or above high water */
    BT_OK = 0,
    BT_ERR_NOMEM = -1,       /* memory could not be had */
    BT_ERR_SYSTEM = -2,      /* a system call failed; errno tells */
    BT_ERR_SYNTAX = -3,      /* the bytes do not follow their grammar */
    BT_ERR_RANGE = -4,       /* a value is outside its range */
    BT_ERR_LIMIT = -5,       /* a configured limit was met */
    BT_ERR_NOT_FOUND = -6,   /* no such thing */
    BT_ERR_EXISTS = -7,      /* it is there already */
    BT_ERR_UNSUPPORTED = -8, /* known, but not done here */
    BT_ERR_REFUSED = -9,     /* the peer refused the connection */
    BT_ERR_RESET = -10,      /* the connection was lost */
    BT_ERR_CLOSED = -11,     /* the peer closed in good order, too early */
    BT_ERR_TIMEOUT = -12,    /* a deadline passed */
    BT_ERR_PROTOCOL = -13,   /* well-formed, but against the protocol */
};

/* A short lower-case text, static. */
const char *bt_status_text(enum bt_status status);

#endif
