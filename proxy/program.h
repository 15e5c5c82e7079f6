/*
 * Setting the program up and taking it down, in one order.
 */
#ifndef PROXY_PROGRAM_H
#define PROXY_PROGRAM_H

#include "proxy/worker.h"

struct program_run;

/* Everything bound and built, nothing runs yet. Errors are logged. */
BT_MUST_CHECK enum bt_status program_open(const struct config *config,
                                          struct program_run **run_p);
/* Runs until TERM or INT has been obeyed. False when it could not start. */
bool program_run(struct program_run *run);
void program_close(struct program_run **run);

#endif
