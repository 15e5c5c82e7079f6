/*
 * One handoff between two processes with nothing but the library: the child
 * is P, the parent D. A pipe carries what a scheduler would: info and params.
 */
#include <baton/agent.h>

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES      65536 /* of a block: 8 heads, 16 tokens, [token][head] */
#define MUST(fact) ((fact) ? (void)0 : _exit(EXIT_FAILURE))

static const baton_id handoff = {0xfeed, 0xbeef}; /* a proxy's are random */
static char kv[16 * BYTES], info[4096], params[4096];
static size_t used;

static baton_agent *start(baton_role role, const char *engine)
{
    const baton_layout layout = {sizeof(layout), 0, 0,  BATON_KIND_KV, 8,    16,
                                 BYTES / 8 / 16, 0, 16, BYTES,         BYTES};
    baton_options options = baton_options_preset();
    baton_agent *agent;
    options.role = role;
    options.engine = engine;
    MUST(!baton_agent_open(&options, &agent) &&
         !baton_region_add(agent, kv, sizeof(kv), BATON_MEMORY_HOST, 0,
                           &layout) &&
         !baton_agent_start(agent));
    return agent;
}

static void expect(baton_agent *agent, baton_event_type type)
{
    struct pollfd fd = {.fd = baton_agent_fd(agent), .events = POLLIN};
    baton_event event;
    while (baton_poll(agent, &event, 1) == 0) {
        (void)poll(&fd, 1, -1);
    }
    (void)printf("event %d: %s\n", (int)event.type,
                 baton_reason_text(event.reason));
    MUST(event.type == type);
}

static int prefill(int out, int in, const baton_blocks *blocks)
{
    baton_agent *const agent = start(BATON_ROLE_PREFILL, "prefill-0");
    MUST(!baton_hold_open(agent, handoff, 0, 0));
    memset(kv, 42, sizeof(kv)); /* the KV is computed */
    MUST(!baton_hold_ready(agent, handoff, blocks, 1, 64, 0, NULL, 0) &&
         !baton_agent_info(agent, info, sizeof(info), &used) &&
         !baton_params_write(&(baton_bytes){info, used}, 1, handoff, 0, blocks,
                             1, 64, NULL, 0, params, sizeof(params), &used));
    MUST(write(out, info, sizeof(info)) > 0 &&
         write(out, params, sizeof(params)) > 0 &&
         read(in, info, 1) == 1 && /* D has pulled */
         !baton_hold_release(agent, handoff));
    expect(agent, BATON_EVENT_RELEASED);
    baton_agent_close(agent);
    return fflush(stdout);
}

int main(void)
{
    const uint32_t p_ids[] = {3, 4, 5, 9}, d_ids[] = {0, 1, 2, 7};
    const baton_blocks p_blocks = {p_ids, 4}, d_blocks = {d_ids, 4};
    baton_pull_request request = {.size = sizeof(request),
                                  .handoff = handoff,
                                  .groups = &d_blocks,
                                  .group_count = 1};
    baton_agent *agent;
    int up[2], down[2];
    MUST(pipe(up) == 0 && pipe(down) == 0);
    if (fork() == 0) { /* before any agent is opened */
        return prefill(up[1], down[0], &p_blocks);
    }
    agent = start(BATON_ROLE_DECODE, "decode-0");
    MUST(read(up[0], info, sizeof(info)) == sizeof(info) &&
         read(up[0], params, sizeof(params)) == sizeof(params));
    MUST(!baton_peer_add(agent, (baton_bytes){info, strlen(info)}));
    expect(agent, BATON_EVENT_PEER_READY);
    request.params = (baton_bytes){params, strlen(params)};
    MUST(!baton_pull(agent, &request));
    expect(agent, BATON_EVENT_PULLED);
    MUST(write(down[1], "", 1) == 1 && wait(NULL) > 0);
    baton_agent_close(agent);
    return kv[7 * BYTES + BYTES - 1] == 42 ? EXIT_SUCCESS : EXIT_FAILURE;
}
