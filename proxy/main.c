/*
 * baton-proxy: reads the configuration, runs the program, says how it went.
 * Exit status: 0 ended as asked, 1 failed, 2 usage or configuration.
 */
#include "common/log.h"
#include "common/process.h"
#include "proxy/program.h"

#include <signal.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    struct config *config = NULL;
    struct program_run *run = NULL;
    bool is_good = false;

    if (!bt_process_hold_stdio()) {
        return EXIT_FAILURE;
    }
    switch (config_load(argc, argv, &config)) {
    case BT_CONF_EXIT_OK:
        config_close(&config);
        return EXIT_SUCCESS;
    case BT_CONF_EXIT_USAGE:
        config_close(&config);
        return 2;
    case BT_CONF_RUN:
        break;
    }
    bt_log_set_level((enum bt_log_level)config->log.level);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGXFSZ, SIG_IGN); /* a log at its limit is a full disk */
    if (program_open(config, &run) == BT_OK) {
        is_good = program_run(run);
    }
    program_close(&run);
    config_close(&config);
    return is_good ? EXIT_SUCCESS : EXIT_FAILURE;
}
