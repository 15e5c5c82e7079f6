/*
 * Whole files.
 */
#ifndef COMMON_IO_FILE_H
#define COMMON_IO_FILE_H

#include "common/base/buf.h"

/* Appends what is in a file. False: errno says why; EFBIG: above `most`. */
BT_MUST_CHECK bool bt_file_read(const char *path, size_t most,
                                struct bt_buf *out);

#endif
