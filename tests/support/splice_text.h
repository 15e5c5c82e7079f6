/*
 * What a splice stands for, as one text.
 */
#ifndef TESTS_SUPPORT_SPLICE_TEXT_H
#define TESTS_SUPPORT_SPLICE_TEXT_H

#include "common/json/json_splice.h"

#include <stdlib.h>

static inline void splice_text(const struct bt_json_splice *splice,
                               struct bt_buf *out)
{
    struct iovec *const iov =
        calloc(bt_json_splice_iov_max(splice), sizeof(*iov));
    const size_t count = iov == NULL ? 0 : bt_json_splice_iov(splice, iov);

    out->failed = out->failed || iov == NULL;
    for (size_t i = 0; i < count; i++) {
        bt_buf_append(out, bt_str_span(iov[i].iov_base, iov[i].iov_len));
    }
    free(iov);
}

#endif
