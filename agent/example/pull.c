/*
 * One handoff between two processes with nothing but the library: the child
 * is the prefill side, the parent the decode side. Pipes carry what a proxy
 * or a scheduler would: the info first, then the params.
 */
#include <baton/agent.h>

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define BLOCKS 16
#define BYTES  65536

static _Alignas(4096) char kv[BLOCKS * BYTES];
static const baton_id handoff = {0xfeed, 0xbeef}; /* a proxy makes it random */

#define CHECK(call)                                                       \
    do {                                                                  \
        const baton_status status_ = (call);                              \
        if (status_ != BATON_OK) {                                        \
            (void)fprintf(stderr, "%s: %s\n", #call,                      \
                          baton_status_text(status_));                    \
            exit(EXIT_FAILURE);                                           \
        }                                                                 \
    } while (0)

static baton_agent *start(baton_role role)
{
    const baton_layout layout = {
        .size = sizeof(layout), .kind = BATON_KIND_KV, .heads = 8,
        .block_tokens = 16, .token_bytes = BYTES / 8 / 16, .blocks = BLOCKS,
        .stride = BYTES, .block_bytes = BYTES};
    baton_options options = baton_options_preset();
    baton_agent *agent;

    options.role = role;
    options.engine = role == BATON_ROLE_PREFILL ? "prefill-0" : "decode-0";
    CHECK(baton_agent_open(&options, &agent));
    CHECK(baton_region_add(agent, kv, sizeof(kv), BATON_MEMORY_HOST, 0,
                           &layout));
    CHECK(baton_agent_start(agent));
    return agent;
}

static baton_event next_event(baton_agent *agent)
{
    struct pollfd fd = {.fd = baton_agent_fd(agent), .events = POLLIN};
    baton_event event;

    while (baton_poll(agent, &event, 1) == 0) {
        (void)poll(&fd, 1, -1);
    }
    return event;
}

static int prefill(int to_parent, int from_parent)
{
    const uint32_t ids[] = {3, 4, 5, 9};
    const baton_blocks group = {ids, 4};
    baton_agent *const agent = start(BATON_ROLE_PREFILL);
    char info[4096], params[4096];
    size_t info_length, params_length;

    CHECK(baton_agent_info(agent, info, sizeof(info), &info_length));
    CHECK(baton_hold_open(agent, handoff, 0, 0)); /* then the KV is computed */
    memset(kv, 42, sizeof(kv));
    CHECK(baton_hold_ready(agent, handoff, &group, 1, 64, 0, NULL, 0));
    CHECK(baton_params_write(&(baton_bytes){info, info_length}, 1, handoff, 0,
                             &group, 1, 64, NULL, 0, params, sizeof(params),
                             &params_length));
    (void)!write(to_parent, &info_length, sizeof(info_length));
    (void)!write(to_parent, info, info_length);
    (void)!write(to_parent, params, params_length);
    (void)!read(from_parent, info, 1); /* decode has pulled */
    CHECK(baton_hold_release(agent, handoff));
    (void)printf("prefill: released, %s\n",
                 baton_reason_text(next_event(agent).reason));
    baton_agent_close(agent);
    return EXIT_SUCCESS;
}

static int decode(int to_child, int from_child)
{
    const uint32_t ids[] = {0, 1, 2, 7};
    const baton_blocks group = {ids, 4};
    baton_agent *const agent = start(BATON_ROLE_DECODE);
    baton_pull_request request = {.size = sizeof(request), .tag = 1};
    char text[8192];
    size_t info_length = 0;
    baton_event event;

    (void)!read(from_child, &info_length, sizeof(info_length));
    (void)!read(from_child, text, info_length);
    CHECK(baton_peer_add(agent, (baton_bytes){text, info_length}));
    event = next_event(agent);
    (void)printf("decode: peer %s ready by %s\n", event.engine,
                 event.provider);
    request.handoff = handoff;
    request.params.data = text;
    request.params.length = (size_t)read(from_child, text, sizeof(text));
    request.groups = &group;
    request.group_count = 1;
    CHECK(baton_pull(agent, &request));
    event = next_event(agent);
    (void)printf("decode: %llu bytes in %u reads, %u us, reason %s\n",
                 (unsigned long long)event.bytes, event.runs,
                 event.read_us + event.proof_us,
                 baton_reason_text(event.reason));
    (void)!write(to_child, "x", 1);
    baton_agent_close(agent);
    return event.type == BATON_EVENT_PULLED && kv[7 * BYTES + BYTES - 1] == 42
               ? EXIT_SUCCESS
               : EXIT_FAILURE;
}

int main(void)
{
    int up[2], down[2], status = EXIT_FAILURE;

    if (pipe(up) != 0 || pipe(down) != 0) {
        return EXIT_FAILURE;
    }
    if (fork() == 0) { /* before any agent is opened */
        return prefill(up[1], down[0]);
    }
    status = decode(down[1], up[0]);
    (void)wait(NULL);
    return status;
}
