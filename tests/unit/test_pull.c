/*
 * Pulls between two processes, over tcp and over cma.
 */
#include "tests/support/agent_pair.h"
#include "tests/support/harness.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static const baton_id id_a = {0x1111, 0x2222};
static const baton_id id_b = {0x3333, 0x4444};
static struct pair pair;
static struct pair_answer answer;

/* --- process_vm_readv as this machine has it, or as a test wants it --- */

static struct {
    atomic_int error;      /* fails with it; 0: reads */
    atomic_bool is_short;  /* of more than a word only half comes */
    atomic_bool is_parked; /* the next read of data waits for `go` */
    sem_t go;
    size_t lengths[64]; /* of the reads since the park, in order */
    atomic_size_t count;
} cma;

static size_t bytes_of(const struct iovec *vectors, unsigned long count)
{
    size_t bytes = 0;

    for (unsigned long i = 0; i < count; i++) {
        bytes += vectors[i].iov_len;
    }
    return bytes;
}

static void park(size_t bytes)
{
    if (bytes > sizeof(uint64_t) && atomic_exchange(&cma.is_parked, false)) {
        atomic_store(&cma.count, 0);
        ck_assert_int_eq(sem_wait(&cma.go), 0);
    }
    if (atomic_load(&cma.count) < BT_ARRAY_LEN(cma.lengths)) {
        cma.lengths[atomic_fetch_add(&cma.count, 1)] = bytes;
    }
}

/* The system's header names the parameters with two underscores. */
/* NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name) */
ssize_t process_vm_readv(pid_t pid, const struct iovec *local,
                         unsigned long local_count, const struct iovec *remote,
                         unsigned long remote_count, unsigned long flags)
{
    const size_t bytes = bytes_of(local, local_count);

    park(bytes);
    if (atomic_load(&cma.error) != 0) {
        errno = atomic_load(&cma.error);
        return -1;
    }
    if (atomic_load(&cma.is_short) && bytes > sizeof(uint64_t)) {
        const struct iovec half = {local[0].iov_base, local[0].iov_len / 2};
        const struct iovec theirs = {remote[0].iov_base, half.iov_len};
        return syscall(SYS_process_vm_readv, pid, &half, 1, &theirs, 1, flags);
    }
    return syscall(SYS_process_vm_readv, pid, local, local_count, remote,
                   remote_count, flags);
}

/* --- the agent's log --- */

static struct {
    pthread_mutex_t lock;
    char text[8192];
} said = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The tests may share one process. */
static void setup(void)
{
    atomic_store(&cma.error, 0);
    atomic_store(&cma.is_short, false);
    atomic_store(&cma.is_parked, false);
    atomic_store(&cma.count, 0);
    said.text[0] = '\0';
}

static void on_log(void *arg, int level, const char *text)
{
    const size_t len = strlen(text);
    size_t at;

    (void)arg;
    (void)level;
    (void)pthread_mutex_lock(&said.lock);
    at = strlen(said.text);
    if (at + len + 2 < sizeof(said.text)) {
        memcpy(said.text + at, text, len);
        memcpy(said.text + at + len, "\n", 2);
    }
    (void)pthread_mutex_unlock(&said.lock);
}

static bool was_said(const char *text)
{
    bool found;

    (void)pthread_mutex_lock(&said.lock);
    found = strstr(said.text, text) != NULL;
    (void)pthread_mutex_unlock(&said.lock);
    return found;
}

/* --- shared by both paths --- */

static baton_event pull_event(void)
{
    baton_event event = {.tag = 0};

    do {
        ck_assert(pair_event(pair.agent, &event));
    } while (event.type == BATON_EVENT_PEER_READY ||
             event.type == BATON_EVENT_PEER_FAILED);
    return event;
}

static void open_with(const char *provider)
{
    const struct pair_options options = {.provider = provider};
    baton_event event;

    pair_open(&pair, &options);
    event = pair_introduce(&pair);
    ck_assert_int_eq(event.type, BATON_EVENT_PEER_READY);
    ck_assert_str_eq(event.provider, provider);
    ck_assert_str_eq(event.engine, "p");
}

static void check_bytes(const char *provider)
{
    const uint32_t theirs[] = {7, 8, 9, 20, 3};
    const uint32_t ours[] = {3, 4, 5, 9, 1};
    baton_event event;

    open_with(provider);
    pair_hold(&pair, id_a, 5, theirs, 5, 42, &answer);
    ck_assert_int_eq(pair_pull(&pair, id_a, &answer, ours, 5, 0, 77), BATON_OK);
    event = pull_event();
    ck_assert_int_eq(event.type, BATON_EVENT_PULLED);
    ck_assert_uint_eq(event.tag, 77);
    ck_assert_uint_eq(event.blocks, 5);
    ck_assert_uint_eq(event.runs, 6);
    ck_assert_uint_eq(event.bytes, 5 * 2 * 4096);
    ck_assert_str_eq(event.provider, provider);
    for (size_t i = 0; i < 5; i++) {
        ck_assert(pair_block_is(&pair, ours[i], 42, theirs[i]));
    }
    ck_assert_uint_eq(*pair_block(&pair, 0, 0), 0);
    ck_assert_uint_eq(*pair_block(&pair, 1, 6), 0);
    pair_close(&pair);
}

static void check_lost_after(const char *provider, enum pair_order order)
{
    const uint32_t ids[] = {1, 2};
    baton_event event;

    open_with(provider);
    pair_hold(&pair, id_a, 0, ids, 2, 1, &answer);
    {
        static struct pair_answer other;
        pair_tell(&pair, order, id_a, 0, ids, 2, 0, &other);
        ck_assert_int_eq(other.status, BATON_OK);
    }
    ck_assert_int_eq(pair_pull(&pair, id_a, &answer, ids, 2, 0, 1), BATON_OK);
    event = pull_event();
    ck_assert_int_eq(event.type, BATON_EVENT_PULL_FAILED);
    ck_assert_int_eq(event.reason, BATON_REASON_LOST);
    pair_close(&pair);
}

START_TEST(reads_scattered_blocks_over_tcp)
{
    check_bytes("tcp");
}
END_TEST

START_TEST(reads_scattered_blocks_over_cma)
{
    check_bytes("cma");
}
END_TEST

START_TEST(fails_as_lost_after_a_break_over_tcp)
{
    check_lost_after("tcp", PAIR_BREAK);
}
END_TEST

START_TEST(fails_as_lost_after_a_break_over_cma)
{
    check_lost_after("cma", PAIR_BREAK);
}
END_TEST

START_TEST(fails_as_lost_after_blocks_were_reused)
{
    check_lost_after("tcp", PAIR_REUSED);
}
END_TEST

START_TEST(fails_as_lost_after_a_release)
{
    check_lost_after("cma", PAIR_RELEASE);
}
END_TEST

START_TEST(reads_only_the_tail_that_is_missing)
{
    const uint32_t theirs[] = {10, 11, 12, 13};
    const uint32_t ours[] = {30, 31};
    baton_event event;

    open_with("tcp");
    pair_hold(&pair, id_a, 1, theirs, 4, 9, &answer);
    ck_assert_int_eq(
        pair_pull(&pair, id_a, &answer, ours, 2, 2 * PAIR_TOKENS, 1), BATON_OK);
    event = pull_event();
    ck_assert_int_eq(event.type, BATON_EVENT_PULLED);
    ck_assert_uint_eq(event.runs, 2);
    ck_assert(pair_block_is(&pair, 30, 9, 12));
    ck_assert(pair_block_is(&pair, 31, 9, 13));
    pair_close(&pair);
}
END_TEST

START_TEST(a_full_hit_is_pulled_at_once)
{
    const uint32_t theirs[] = {10, 11};
    baton_event event;

    open_with("cma");
    pair_hold(&pair, id_a, 1, theirs, 2, 9, &answer);
    ck_assert_int_eq(
        pair_pull(&pair, id_a, &answer, NULL, 0, 2 * PAIR_TOKENS, 1), BATON_OK);
    event = pull_event();
    ck_assert_int_eq(event.type, BATON_EVENT_PULLED);
    ck_assert_uint_eq(event.bytes, 0);
    pair_close(&pair);
}
END_TEST

START_TEST(strides_wider_than_blocks_are_not_merged)
{
    const struct pair_options options = {
        .provider = "tcp", .block_bytes = 4096, .stride = 8192};
    const uint32_t ids[] = {1, 2, 3};
    baton_event event;

    pair_open(&pair, &options);
    ck_assert_int_eq(pair_introduce(&pair).type, BATON_EVENT_PEER_READY);
    pair_hold(&pair, id_a, 1, ids, 3, 3, &answer);
    ck_assert_int_eq(pair_pull(&pair, id_a, &answer, ids, 3, 0, 1), BATON_OK);
    event = pull_event();
    ck_assert_int_eq(event.type, BATON_EVENT_PULLED);
    ck_assert_uint_eq(event.runs, 6);
    ck_assert(pair_block_is(&pair, 2, 3, 2));
    ck_assert_uint_eq(pair_block(&pair, 0, 2)[4096], 0);
    pair_close(&pair);
}
END_TEST

START_TEST(finds_flipped_bytes_by_checksum)
{
    const struct pair_options options = {.provider = "tcp", .checksum = 1};
    const uint32_t ids[] = {4, 5};
    static struct pair_answer other;

    pair_open(&pair, &options);
    ck_assert_int_eq(pair_introduce(&pair).type, BATON_EVENT_PEER_READY);
    pair_hold(&pair, id_a, 1, ids, 2, 3, &answer);
    ck_assert_int_eq(pair_pull(&pair, id_a, &answer, ids, 2, 0, 1), BATON_OK);
    ck_assert_int_eq(pull_event().type, BATON_EVENT_PULLED);
    pair_tell(&pair, PAIR_FLIP, id_a, 1, ids + 1, 1, 0, &other);
    ck_assert_int_eq(pair_pull(&pair, id_a, &answer, ids, 2, 0, 2), BATON_OK);
    ck_assert_int_eq(pull_event().reason, BATON_REASON_CHECKSUM);
    /* The prefix that D had is not checked. */
    pair_tell(&pair, PAIR_FLIP, id_a, 1, ids, 1, 0, &other);
    pair_tell(&pair, PAIR_FLIP, id_a, 1, ids + 1, 1, 0, &other);
    ck_assert_int_eq(
        pair_pull(&pair, id_a, &answer, ids + 1, 1, PAIR_TOKENS, 3), BATON_OK);
    ck_assert_int_eq(pull_event().type, BATON_EVENT_PULLED);
    pair_close(&pair);
}
END_TEST

START_TEST(refuses_a_peer_of_another_fingerprint)
{
    const struct pair_options options = {
        .provider = "tcp", .fingerprint = "other", .log = on_log};
    const uint32_t ids[] = {4};
    baton_event event;

    pair_open(&pair, &options);
    event = pair_introduce(&pair);
    ck_assert_int_eq(event.type, BATON_EVENT_PEER_FAILED);
    ck_assert_int_eq(event.reason, BATON_REASON_MISMATCH);
    ck_assert(was_said("mismatch: the fingerprints differ"));
    pair_hold(&pair, id_a, 1, ids, 1, 3, &answer);
    ck_assert_int_eq(pair_pull(&pair, id_a, &answer, ids, 1, 0, 1), BATON_OK);
    ck_assert_int_eq(pull_event().reason, BATON_REASON_MISMATCH);
    pair_close(&pair);
}
END_TEST

START_TEST(tells_what_of_a_peers_layout_differs)
{
    const struct pair_options options = {.provider = "cma", .log = on_log};
    baton_event event;
    char *at;

    pair_open(&pair, &options);
    at = strstr(pair.info, "\"window\":0");
    ck_assert_ptr_nonnull(at);
    at[strlen("\"window\":")] = '9';
    event = pair_introduce(&pair);
    ck_assert_int_eq(event.type, BATON_EVENT_PEER_FAILED);
    ck_assert_int_eq(event.reason, BATON_REASON_MISMATCH);
    ck_assert(was_said("group 0 layer 0 kind 0: window_tokens differs"));
    pair_close(&pair);
}
END_TEST

START_TEST(a_pull_from_a_stranger_fails)
{
    const struct pair_options options = {.provider = "cma"};
    const uint32_t ids[] = {4};

    pair_open(&pair, &options);
    pair_hold(&pair, id_a, 1, ids, 1, 3, &answer);
    ck_assert_int_eq(pair_pull(&pair, id_a, &answer, ids, 1, 0, 1), BATON_OK);
    ck_assert_int_eq(pull_event().reason, BATON_REASON_UNKNOWN_PEER);
    pair_close(&pair);
}
END_TEST

START_TEST(wrong_requests_are_refused_at_once)
{
    const uint32_t ids[] = {4};
    const uint32_t outside[] = {PAIR_BLOCKS};

    open_with("cma");
    pair_hold(&pair, id_a, 1, ids, 1, 3, &answer);
    ck_assert_int_eq(pair_pull(&pair, id_a, &answer, outside, 1, 0, 1),
                     BATON_ERR_ARGUMENT);
    ck_assert_int_eq(pair_pull(&pair, id_b, &answer, ids, 1, 0, 1),
                     BATON_ERR_PARAMS);
    answer.length--;
    ck_assert_int_eq(pair_pull(&pair, id_a, &answer, ids, 1, 0, 1),
                     BATON_ERR_PARAMS);
    ck_assert_int_eq(baton_cancel(pair.agent, 1), BATON_ERR_UNKNOWN);
    ck_assert_int_eq(baton_hold_open(pair.agent, id_a, 0, 0), BATON_ERR_STATE);
    pair_close(&pair);
}
END_TEST

START_TEST(a_wrong_count_of_blocks_is_a_mismatch)
{
    const uint32_t ids[] = {4, 5};

    open_with("tcp");
    pair_hold(&pair, id_a, 1, ids, 2, 3, &answer);
    ck_assert_int_eq(pair_pull(&pair, id_a, &answer, ids, 1, 0, 1), BATON_OK);
    ck_assert_int_eq(pull_event().reason, BATON_REASON_MISMATCH);
    pair_close(&pair);
}
END_TEST

/* --- failing peers --- */

/* 40 of them fill every socket buffer. */
#define BIG_BLOCK (BT_MIB / 2)

static void open_big(uint32_t timeout_ms)
{
    const struct pair_options options = {.provider = "tcp",
                                         .block_bytes = BIG_BLOCK,
                                         .pull_timeout_ms = timeout_ms};

    pair_open(&pair, &options);
    ck_assert_int_eq(pair_introduce(&pair).type, BATON_EVENT_PEER_READY);
}

static void stop_child(void)
{
    int status = 0;

    ck_assert_int_eq(kill(pair.child, SIGSTOP), 0);
    ck_assert_int_eq(waitpid(pair.child, &status, WUNTRACED), pair.child);
    ck_assert(WIFSTOPPED(status));
}

static void fill_ids(uint32_t *ids, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        ids[i] = (uint32_t)i;
    }
}

/* After the event no byte may change any more, though P wakes up. */
static void check_no_late_write(void)
{
    unsigned char *const first = pair_block(&pair, 0, 0);
    const size_t bytes = (size_t)(PAIR_REGIONS * PAIR_BLOCKS) * BIG_BLOCK;

    memset(first, 0xee, bytes);
    ck_assert_int_eq(kill(pair.child, SIGCONT), 0);
    /* P answers only when it runs again, its native thread long served. */
    for (unsigned i = 0; i < 20; i++) {
        pair_tell(&pair, PAIR_INFO, id_a, 0, NULL, 0, 0, &answer);
        (void)poll(NULL, 0, 10);
    }
    for (size_t at = 0; at < bytes; at++) {
        if (first[at] != 0xee) {
            ck_abort_msg("byte %zu was written after the end", at);
        }
    }
}

START_TEST(a_stopped_peer_writes_nothing_after_the_time_out)
{
    uint32_t ids[40];

    fill_ids(ids, 40);
    open_big(200);
    pair_hold(&pair, id_a, 1, ids, 40, 3, &answer);
    stop_child();
    ck_assert_int_eq(pair_pull(&pair, id_a, &answer, ids, 40, 0, 1), BATON_OK);
    ck_assert_int_eq(pull_event().reason, BATON_REASON_TIMEOUT);
    check_no_late_write();
    pair_close(&pair);
}
END_TEST

START_TEST(a_cancel_with_a_stopped_peer_ends_after_the_drain)
{
    uint32_t ids[40];
    baton_event event;

    fill_ids(ids, 40);
    open_big(60000);
    pair_hold(&pair, id_a, 1, ids, 40, 3, &answer);
    stop_child();
    ck_assert_int_eq(pair_pull(&pair, id_a, &answer, ids, 40, 0, 9), BATON_OK);
    ck_assert_int_eq(baton_cancel(pair.agent, 9), BATON_OK);
    event = pull_event();
    ck_assert_int_eq(event.type, BATON_EVENT_PULL_FAILED);
    ck_assert_int_eq(event.reason, BATON_REASON_CANCELLED);
    check_no_late_write();
    pair_close(&pair);
}
END_TEST

START_TEST(a_peer_that_woke_up_is_read_again)
{
    uint32_t ids[40];

    fill_ids(ids, 40);
    open_big(30000);
    pair_hold(&pair, id_a, 1, ids, 40, 3, &answer);
    stop_child();
    ck_assert_int_eq(pair_pull(&pair, id_a, &answer, ids, 40, 0, 1), BATON_OK);
    ck_assert_int_eq(baton_cancel(pair.agent, 1), BATON_OK);
    ck_assert_int_eq(pull_event().reason, BATON_REASON_CANCELLED);
    ck_assert_int_eq(kill(pair.child, SIGCONT), 0);
    ck_assert_int_eq(pair_pull(&pair, id_a, &answer, ids, 40, 0, 2), BATON_OK);
    ck_assert_int_eq(pull_event().type, BATON_EVENT_PULLED);
    ck_assert(pair_block_is(&pair, 39, 3, 39));
    pair_close(&pair);
}
END_TEST

static void check_killed(const char *provider)
{
    const struct pair_options options = {.provider = provider,
                                         .pull_timeout_ms = 2000};
    const uint32_t ids[] = {1, 2};
    baton_event event;
    int status;

    pair_open(&pair, &options);
    ck_assert_int_eq(pair_introduce(&pair).type, BATON_EVENT_PEER_READY);
    pair_hold(&pair, id_a, 1, ids, 2, 3, &answer);
    ck_assert_int_eq(kill(pair.child, SIGKILL), 0);
    ck_assert_int_eq(waitpid(pair.child, &status, 0), pair.child);
    ck_assert_int_eq(pair_pull(&pair, id_a, &answer, ids, 2, 0, 1), BATON_OK);
    event = pull_event();
    ck_assert_int_eq(event.type, BATON_EVENT_PULL_FAILED);
    ck_assert(event.reason == BATON_REASON_UNREACHABLE ||
              event.reason == BATON_REASON_TIMEOUT);
    pair_close(&pair);
}

START_TEST(a_killed_peer_is_unreachable_over_tcp)
{
    check_killed("tcp");
}
END_TEST

START_TEST(a_killed_peer_is_unreachable_over_cma)
{
    check_killed("cma");
}
END_TEST

START_TEST(a_path_that_failed_twice_gives_way_to_the_next)
{
    const struct pair_options options = {.provider = "auto", .log = on_log};
    const uint32_t ids[] = {1, 2};
    baton_event event;

    pair_open(&pair, &options);
    ck_assert_str_eq(pair_introduce(&pair).provider, "cma");
    pair_hold(&pair, id_a, 1, ids, 2, 3, &answer);
    atomic_store(&cma.is_short, true);
    for (uint64_t tag = 1; tag <= 2; tag++) {
        ck_assert_int_eq(pair_pull(&pair, id_a, &answer, ids, 2, 0, tag),
                         BATON_OK);
        ck_assert_int_eq(pull_event().reason, BATON_REASON_UNREACHABLE);
    }
    ck_assert_int_eq(pair_pull(&pair, id_a, &answer, ids, 2, 0, 3), BATON_OK);
    event = pull_event();
    ck_assert_int_eq(event.type, BATON_EVENT_PULLED);
    ck_assert_str_ne(event.provider, "cma");
    ck_assert(pair_block_is(&pair, 2, 3, 2));
    ck_assert(was_said("2 vectors: 4096 of 16384 bytes came"));
    ck_assert(was_said("reads by cma failed twice"));
    pair_close(&pair);
}
END_TEST

START_TEST(tells_why_a_path_is_not_taken)
{
    const struct pair_options options = {.provider = "auto", .log = on_log};

    atomic_store(&cma.error, EPERM);
    pair_open(&pair, &options);
    ck_assert_str_ne(pair_introduce(&pair).provider, "cma");
    ck_assert(was_said("not by cma: process_vm_readv of pid "));
    ck_assert(was_said("Operation not permitted (errno 1); "));
    ck_assert(was_said("CAP_SYS_PTRACE"));
    pair_close(&pair);
}
END_TEST

START_TEST(a_proof_goes_before_the_data_of_other_pulls)
{
    const struct pair_options options = {.provider = "cma",
                                         .block_bytes = 1 << 20};
    static struct pair_answer other;
    const uint32_t few[] = {1, 3, 5, 7};
    const uint32_t many[] = {9, 11, 13, 15, 17, 19, 21, 23};

    pair_open(&pair, &options);
    (void)pair_introduce(&pair);
    pair_hold(&pair, id_a, 1, few, 4, 3, &answer);
    pair_hold(&pair, id_b, 2, many, 8, 4, &other);
    ck_assert_int_eq(sem_init(&cma.go, 0, 0), 0);
    atomic_store(&cma.is_parked, true);
    ck_assert_int_eq(pair_pull(&pair, id_a, &answer, few, 4, 0, 1), BATON_OK);
    ck_assert_int_eq(pair_pull(&pair, id_b, &other, many, 8, 0, 2), BATON_OK);
    ck_assert_int_eq(sem_post(&cma.go), 0);
    ck_assert_uint_eq(pull_event().tag, 1);
    ck_assert_uint_eq(pull_event().tag, 2);
    /* Two slices of the first, its word, four of the second, its word. */
    ck_assert_uint_eq(cma.lengths[1], 4 << 20);
    ck_assert_uint_eq(cma.lengths[2], sizeof(uint64_t));
    ck_assert_uint_eq(cma.lengths[6], 4 << 20);
    ck_assert_uint_eq(cma.lengths[7], sizeof(uint64_t));
    pair_close(&pair);
}
END_TEST

START_TEST(params_of_a_peers_earlier_life_fail)
{
    static struct pair_answer old;
    const uint32_t ids[] = {1, 2};

    open_with("tcp");
    pair_hold(&pair, id_a, 1, ids, 2, 3, &old);
    pair_close(&pair);
    open_with("tcp");
    ck_assert_int_eq(pair_pull(&pair, id_a, &old, ids, 2, 0, 1), BATON_OK);
    ck_assert_int_eq(pull_event().reason, BATON_REASON_RESTARTED);
    pair_close(&pair);
}
END_TEST

START_TEST(a_card_that_lies_about_its_boot_is_not_trusted)
{
    const struct pair_options options = {.provider = "tcp"};
    baton_event event;
    char *boot;

    pair_open(&pair, &options);
    pair.info[pair.info_length] = '\0';
    boot = strstr(pair.info, "\"boot\":\"");
    ck_assert_ptr_nonnull(boot);
    boot[8] = boot[8] == '1' ? '2' : '1';
    event = pair_introduce(&pair);
    ck_assert_int_eq(event.type, BATON_EVENT_PEER_FAILED);
    ck_assert_int_eq(event.reason, BATON_REASON_RESTARTED);
    pair_close(&pair);
}
END_TEST

START_TEST(removing_a_peer_fails_its_pulls)
{
    uint32_t ids[40];

    fill_ids(ids, 40);
    open_big(60000);
    pair_hold(&pair, id_a, 1, ids, 40, 3, &answer);
    stop_child();
    ck_assert_int_eq(pair_pull(&pair, id_a, &answer, ids, 40, 0, 1), BATON_OK);
    ck_assert_int_eq(baton_peer_remove(pair.agent, "p", 0), BATON_OK);
    ck_assert(pull_event().reason != BATON_REASON_NONE);
    ck_assert_int_eq(kill(pair.child, SIGCONT), 0);
    pair_close(&pair);
}
END_TEST

START_TEST(many_pulls_at_once_all_end)
{
    const uint32_t ids[] = {1, 2, 3, 4, 5, 6, 7, 8};
    baton_stats stats = {.size = sizeof(stats)};
    bool seen[200] = {false};

    open_with("tcp");
    pair_hold(&pair, id_a, 1, ids, 8, 3, &answer);
    for (uint64_t tag = 0; tag < 200; tag++) {
        ck_assert_int_eq(pair_pull(&pair, id_a, &answer, ids, 8, 0, tag),
                         BATON_OK);
    }
    for (unsigned i = 0; i < 200; i++) {
        const baton_event event = pull_event();
        ck_assert_int_eq(event.type, BATON_EVENT_PULLED);
        ck_assert(!seen[event.tag]);
        seen[event.tag] = true;
    }
    ck_assert_int_eq(baton_agent_stats(pair.agent, &stats), BATON_OK);
    ck_assert_uint_eq(stats.pulls_live, 0);
    ck_assert_uint_eq(stats.pulls_total, 200);
    ck_assert_uint_eq(stats.pulled_bytes, 200 * 8 * 2 * 4096);
    ck_assert_uint_eq(stats.peers_ready, 1);
    pair_close(&pair);
}
END_TEST

START_TEST(closing_an_agent_ends_the_pulls_that_wait)
{
    const uint32_t ids[] = {1, 2, 3, 4, 5, 6, 7, 8};

    for (int round = 0; round < 4; round++) {
        open_with(round % 2 == 0 ? "cma" : "tcp");
        pair_hold(&pair, id_a, 1, ids, 8, 3, &answer);
        for (uint64_t tag = 0; tag < 300; tag++) {
            ck_assert_int_eq(pair_pull(&pair, id_a, &answer, ids, 8, 0, tag),
                             BATON_OK);
        }
        pair_close(&pair);
    }
}
END_TEST

/* --- params that come before the blocks --- */

static const uint32_t early_ids[] = {1, 2, 3};
#define EARLY_TOKENS (3 * PAIR_TOKENS)

static struct pair_answer early;

static void tell_early(enum pair_order order, uint64_t value)
{
    pair_tell(&pair, order, id_a, 1, early_ids, 3, value, &answer);
    ck_assert_int_eq(answer.status, BATON_OK);
}

/* A pull that began when its hold was opened and nothing was written. */
static void pull_early(const char *provider, uint32_t timeout_ms)
{
    const struct pair_options options = {.provider = provider,
                                         .pull_timeout_ms = timeout_ms};

    pair_open(&pair, &options);
    ck_assert_int_eq(pair_introduce(&pair).type, BATON_EVENT_PEER_READY);
    tell_early(PAIR_OPEN, 0);
    tell_early(PAIR_EARLY, EARLY_TOKENS);
    early = answer;
    ck_assert_int_eq(pair_pull(&pair, id_a, &early, early_ids, 3, 0, 7),
                     BATON_OK);
}

static void check_waits(const char *provider)
{
    baton_event event;

    pull_early(provider, 0);
    tell_early(PAIR_TOLD, PAIR_TOKENS);
    tell_early(PAIR_FILL, 42);
    tell_early(PAIR_TOLD, EARLY_TOKENS - 1);
    /* Not a byte was read before all was told: what lay there is gone. */
    tell_early(PAIR_FILL, 43);
    tell_early(PAIR_TOLD, EARLY_TOKENS);
    event = pull_event();
    ck_assert_int_eq(event.type, BATON_EVENT_PULLED);
    for (uint32_t i = 1; i <= 3; i++) {
        ck_assert(pair_block_is(&pair, i, 43, i));
    }
    tell_early(PAIR_READY, EARLY_TOKENS);
    tell_early(PAIR_RELEASE, 0);
    pair_close(&pair);
}

START_TEST(waits_for_what_is_not_written_yet_over_tcp)
{
    check_waits("tcp");
}
END_TEST

START_TEST(waits_for_what_is_not_written_yet_over_cma)
{
    check_waits("cma");
}
END_TEST

static void check_waiting_ends(const char *provider)
{
    baton_event event;

    pull_early(provider, 0);
    tell_early(PAIR_BREAK, 0);
    event = pull_event();
    ck_assert_int_eq(event.type, BATON_EVENT_PULL_FAILED);
    ck_assert_int_eq(event.reason, BATON_REASON_LOST);
    /* The slot's next hold begins at none, whatever the last one told. */
    tell_early(PAIR_OPEN, 0);
    tell_early(PAIR_TOLD, EARLY_TOKENS);
    tell_early(PAIR_BREAK, 0);
    tell_early(PAIR_OPEN, 0);
    ck_assert_int_eq(pair_pull(&pair, id_a, &early, early_ids, 3, 0, 8),
                     BATON_OK);
    ck_assert_int_eq(baton_cancel(pair.agent, 8), BATON_OK);
    event = pull_event();
    ck_assert_int_eq(event.reason, BATON_REASON_CANCELLED);
    pair_close(&pair);
}

START_TEST(a_wait_ends_with_the_hold_or_the_pull_over_tcp)
{
    check_waiting_ends("tcp");
}
END_TEST

START_TEST(a_wait_ends_with_the_hold_or_the_pull_over_cma)
{
    check_waiting_ends("cma");
}
END_TEST

START_TEST(a_wait_is_within_the_deadline)
{
    static const char *const PROVIDERS[] = {"tcp", "cma"};

    for (size_t i = 0; i < BT_ARRAY_LEN(PROVIDERS); i++) {
        baton_event event;

        pull_early(PROVIDERS[i], 50);
        tell_early(PAIR_TOLD, EARLY_TOKENS - 1);
        event = pull_event();
        ck_assert_int_eq(event.type, BATON_EVENT_PULL_FAILED);
        ck_assert_int_eq(event.reason, BATON_REASON_TIMEOUT);
        pair_close(&pair);
    }
}
END_TEST

START_TEST(a_forks_child_closes_nothing_of_its_parents)
{
    const uint32_t ids[] = {1, 2};
    baton_event event;
    int status = 0;
    pid_t child;

    open_with("tcp");
    pair_hold(&pair, id_a, 1, ids, 2, 3, &answer);
    child = fork();
    if (child == 0) {
        baton_agent_close(pair.agent);
        _exit(0);
    }
    ck_assert_int_gt(child, 0);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    ck_assert_int_eq(pair_pull(&pair, id_a, &answer, ids, 2, 0, 1), BATON_OK);
    event = pull_event();
    ck_assert_int_eq(event.type, BATON_EVENT_PULLED);
    pair_close(&pair);
}
END_TEST

HARNESS_MAIN_WITH(
    "pull", setup, NULL, reads_scattered_blocks_over_tcp,
    reads_scattered_blocks_over_cma, fails_as_lost_after_a_break_over_tcp,
    fails_as_lost_after_a_break_over_cma,
    fails_as_lost_after_blocks_were_reused, fails_as_lost_after_a_release,
    reads_only_the_tail_that_is_missing, a_full_hit_is_pulled_at_once,
    strides_wider_than_blocks_are_not_merged, finds_flipped_bytes_by_checksum,
    refuses_a_peer_of_another_fingerprint, tells_what_of_a_peers_layout_differs,
    a_pull_from_a_stranger_fails, wrong_requests_are_refused_at_once,
    a_wrong_count_of_blocks_is_a_mismatch,
    a_stopped_peer_writes_nothing_after_the_time_out,
    a_cancel_with_a_stopped_peer_ends_after_the_drain,
    a_peer_that_woke_up_is_read_again, a_killed_peer_is_unreachable_over_tcp,
    a_killed_peer_is_unreachable_over_cma,
    a_path_that_failed_twice_gives_way_to_the_next,
    tells_why_a_path_is_not_taken, a_proof_goes_before_the_data_of_other_pulls,
    params_of_a_peers_earlier_life_fail,
    a_card_that_lies_about_its_boot_is_not_trusted,
    removing_a_peer_fails_its_pulls, many_pulls_at_once_all_end,
    closing_an_agent_ends_the_pulls_that_wait,
    waits_for_what_is_not_written_yet_over_tcp,
    waits_for_what_is_not_written_yet_over_cma,
    a_wait_ends_with_the_hold_or_the_pull_over_tcp,
    a_wait_ends_with_the_hold_or_the_pull_over_cma,
    a_wait_is_within_the_deadline, a_forks_child_closes_nothing_of_its_parents)
