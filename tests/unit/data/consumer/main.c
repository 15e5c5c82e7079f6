/*
 * Opens an agent, as any engine would, and says the library's version.
 */
#include <baton/agent.h>

#include <stdio.h>

int main(void)
{
    baton_options options = baton_options_preset();
    baton_agent *agent;

    options.engine = "consumer";
    options.role = BATON_ROLE_SCHEDULER;
    if (baton_agent_open(&options, &agent) != BATON_OK ||
        baton_agent_start(agent) != BATON_OK) {
        return 1;
    }
    baton_agent_close(agent);
    return printf("%s\n", baton_version()) < 0;
}
