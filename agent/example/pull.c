/*
 * One handoff between two processes with nothing but the library: the child
 * is P, the parent D. A pipe carries what a scheduler would: info and params.
 */
#include <baton/agent.h>

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES       65536 /* of a block */
#define CHECK(call) ((call) == BATON_OK ? (void)0 : _exit(EXIT_FAILURE))

static char kv[16 * BYTES];
static const baton_id handoff = {0xfeed, 0xbeef}; /* a proxy's are random */
static const uint32_t p_ids[] = {3, 4, 5, 9}, d_ids[] = {0, 1, 2, 7};
static struct {
    size_t info_length, params_length;
    char info[2048], params[2048];
} note;

static baton_agent *start(baton_role role, const char *engine)
{
    /* group 0, layer 0; 8 heads, 16 tokens a block, [token][head]; 16 blocks */
    const baton_layout layout = {sizeof(layout), 0, 0,  BATON_KIND_KV, 8,    16,
                                 BYTES / 8 / 16, 0, 16, BYTES,         BYTES};
    baton_options options = baton_options_preset();
    baton_agent *agent;

    options.role = role;
    options.engine = engine;
    CHECK(baton_agent_open(&options, &agent));
    CHECK(
        baton_region_add(agent, kv, sizeof(kv), BATON_MEMORY_HOST, 0, &layout));
    CHECK(baton_agent_start(agent));
    return agent;
}

static baton_event next_event(baton_agent *agent, const char *who)
{
    struct pollfd fd = {.fd = baton_agent_fd(agent), .events = POLLIN};
    baton_event event;
    while (baton_poll(agent, &event, 1) == 0) {
        (void)poll(&fd, 1, -1);
    }
    (void)printf("%s: event %d (%s), %u reads\n", who, (int)event.type,
                 baton_reason_text(event.reason), event.runs);
    return event;
}

static int prefill(int to_d, int from_d)
{
    const baton_blocks group = {p_ids, 4};
    baton_agent *const agent = start(BATON_ROLE_PREFILL, "prefill-0");
    CHECK(baton_hold_open(agent, handoff, 0, 0));
    memset(kv, 42, sizeof(kv)); /* the KV is computed */
    CHECK(baton_hold_ready(agent, handoff, &group, 1, 64, 0, NULL, 0));
    CHECK(baton_agent_info(agent, note.info, sizeof(note.info),
                           &note.info_length));
    CHECK(baton_params_write(&(baton_bytes){note.info, note.info_length}, 1,
                             handoff, 0, &group, 1, 64, NULL, 0, note.params,
                             sizeof(note.params), &note.params_length));
    (void)!write(to_d, &note, sizeof(note));
    (void)!read(from_d, &note, 1); /* D has pulled */
    CHECK(baton_hold_release(agent, handoff));
    (void)next_event(agent, "P");
    baton_agent_close(agent);
    return fflush(stdout);
}

int main(void)
{
    const baton_blocks group = {d_ids, 4};
    baton_pull_request request = {.size = sizeof(request),
                                  .handoff = handoff,
                                  .groups = &group,
                                  .group_count = 1};
    baton_agent *agent;
    int up[2], down[2];
    CHECK(pipe(up) == 0 && pipe(down) == 0 ? BATON_OK : BATON_ERR_SYSTEM);
    if (fork() == 0) { /* before any agent is opened */
        return prefill(up[1], down[0]);
    }
    agent = start(BATON_ROLE_DECODE, "decode-0");
    (void)!read(up[0], &note, sizeof(note));
    CHECK(baton_peer_add(agent, (baton_bytes){note.info, note.info_length}));
    (void)next_event(agent, "D");
    request.params = (baton_bytes){note.params, note.params_length};
    CHECK(baton_pull(agent, &request));
    CHECK(next_event(agent, "D").type == BATON_EVENT_PULLED ? BATON_OK
                                                            : BATON_ERR_STATE);
    (void)!write(down[1], "", 1);
    baton_agent_close(agent);
    (void)wait(NULL);
    return kv[7 * BYTES + BYTES - 1] == 42 ? EXIT_SUCCESS : EXIT_FAILURE;
}
