/*
 * baton-proxy: reads the configuration, runs the program, says how it went.
 * Exit status: 0 ended as asked, 1 failed, 2 usage or configuration.
 */
#include "common/base/log.h"
#include "common/io/process.h"
#include "proxy/program.h"

#include <signal.h>
#include <stdlib.h>

/*
 * Signals that end no server, from the first moment to the last: while the
 * program runs, its loop hears the first three.
 */
static void ignore_signals(void)
{
    static const int NUMBERS[] = {
        SIGHUP,  SIGUSR1, SIGUSR2,
        SIGPIPE, SIGXFSZ, /* a log at its limit is a full disk */
    };

    for (size_t i = 0; i < BT_ARRAY_LEN(NUMBERS); i++) {
        (void)signal(NUMBERS[i], SIG_IGN);
    }
}

int main(int argc, char **argv)
{
    struct config *config = NULL;
    struct program_run *run = NULL;
    bool is_good = false;

    ignore_signals();
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
    if (program_open(config, &run) == BT_OK) {
        is_good = program_run(run);
    }
    program_close(&run);
    config_close(&config);
    return is_good ? EXIT_SUCCESS : EXIT_FAILURE;
}
