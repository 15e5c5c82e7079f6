/*
 * A descriptor that lines are written to, and where its file lies: whoever
 * renames log files asks for them to be opened anew.
 */
#ifndef COMMON_IO_LOG_FILE_H
#define COMMON_IO_LOG_FILE_H

#include "common/base/base.h"

struct bt_log_file {
    int fd;
    char *path; /* NULL: no regular file, nothing to open */
};

/* `path` NULL: the one that the file has now. Errors leave path NULL. */
void bt_log_file_note(struct bt_log_file *file, int fd, const char *path);
/*
 * Opens the path anew and puts it in the descriptor's place: a line goes whole
 * into the old file or the new one. A failure is logged and the old file kept.
 * True when it was opened.
 */
bool bt_log_file_reopen(const struct bt_log_file *file);
void bt_log_file_forget(struct bt_log_file *file);

#endif
