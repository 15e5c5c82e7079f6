/*
 * One handoff between two processes with nothing but the library: the child
 * is P, the parent D. A socket carries what a scheduler would: info and params.
 */
#include <baton/agent.h>

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES      65536 /* of a block: 8 heads, 16 tokens, [head][token] */
#define MUST(fact) ((fact) ? (void)0 : _exit(EXIT_FAILURE))

static const baton_id handoff = {0xfeed, 0xbeef}; /* a proxy's are random */
static char kv[16 * BYTES], text[4096];
static size_t used;

static baton_agent *start(baton_role role, const char *engine)
{
    const baton_layout layout = {.size = sizeof(layout),
                                 .kind = BATON_KIND_KV,
                                 .heads = 8,
                                 .block_tokens = 16,
                                 .token_bytes = BYTES / 8 / 16,
                                 .blocks = 16};
    const baton_region region = {.size = sizeof(region),
                                 .base = kv,
                                 .length = sizeof(kv),
                                 .layout = &layout};
    baton_options options = baton_options_preset();
    baton_agent *agent;
    options.role = role;
    options.engine = engine;
    MUST(!baton_agent_open(&options, &agent));
    MUST(!baton_region_add(agent, &region, NULL));
    MUST(!baton_agent_start(agent));
    return agent;
}

static void await(baton_agent *agent, baton_event_type type)
{
    struct pollfd fd = {.fd = baton_agent_fd(agent), .events = POLLIN};
    baton_event event;
    while (baton_poll(agent, &event, 1) == 0) {
        (void)poll(&fd, 1, -1);
    }
    MUST(event.type == type);
}

static int prefill(int d)
{
    const baton_blocks blocks = {(const uint32_t[]){3, 4, 5, 9}, 4};
    const baton_progress progress = {.size = sizeof(progress),
                                     .handoff = handoff,
                                     .groups = &blocks,
                                     .group_count = 1,
                                     .tokens = 64};
    baton_bytes info = {text, 0};
    const baton_params params = {.size = sizeof(params),
                                 .infos = &info,
                                 .info_count = 1,
                                 .handoff = handoff,
                                 .groups = &blocks,
                                 .group_count = 1,
                                 .tokens = 64};
    baton_agent *const agent = start(BATON_ROLE_PREFILL, "prefill-0");
    MUST(!baton_hold_open(agent, handoff, 0, 0));
    memset(kv, 42, sizeof(kv)); /* the KV is computed */
    MUST(!baton_hold_ready(agent, &progress));
    MUST(!baton_agent_info(agent, text, sizeof(text), &info.length));
    MUST(send(d, text, info.length, 0) > 0);
    MUST(!baton_params_write(&params, text, sizeof(text), &used));
    MUST(send(d, text, used, 0) > 0);
    MUST(recv(d, text, 1, 0) == 1); /* D has pulled */
    MUST(!baton_hold_release(agent, handoff));
    await(agent, BATON_EVENT_RELEASED);
    baton_agent_close(agent);
    return EXIT_SUCCESS;
}

static baton_bytes receive(int p)
{
    const ssize_t length = recv(p, text, sizeof(text), 0);
    MUST(length > 0);
    return (baton_bytes){text, (size_t)length};
}

int main(void)
{
    const baton_blocks blocks = {(const uint32_t[]){0, 1, 2, 7}, 4};
    baton_pull_request request = {.size = sizeof(request),
                                  .handoff = handoff,
                                  .groups = &blocks,
                                  .group_count = 1};
    baton_agent *agent;
    int ends[2], status;
    MUST(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0);
    if (fork() == 0) { /* before any agent is opened */
        return prefill(ends[1]);
    }
    agent = start(BATON_ROLE_DECODE, "decode-0");
    MUST(!baton_peer_add(agent, receive(ends[0])));
    await(agent, BATON_EVENT_PEER_READY);
    request.params = receive(ends[0]);
    MUST(!baton_pull(agent, &request));
    await(agent, BATON_EVENT_PULLED);
    MUST(send(ends[0], "", 1, 0) == 1);
    baton_agent_close(agent);
    MUST(wait(&status) > 0 && status == 0);
    return kv[7 * BYTES + BYTES - 1] == 42 ? EXIT_SUCCESS : EXIT_FAILURE;
}
