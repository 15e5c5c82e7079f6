/*
 * Look-ups over getaddrinfo_a: one request each, asked for by polling.
 */
#include "common/lookup.h"

#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct bt_lookup {
    struct gaicb request;
    struct addrinfo hints;
    char host[sizeof(((struct bt_url *)0)->host)];
    char service[8];
};

enum bt_status bt_lookup_open(const struct bt_url *url,
                              struct bt_lookup **lookup_p)
{
    struct bt_lookup *lookup = calloc(1, sizeof(*lookup));
    struct gaicb *list[1];
    int code;

    if (lookup == NULL) {
        return BT_ERR_NOMEM;
    }
    memcpy(lookup->host, url->host, sizeof(lookup->host));
    (void)snprintf(lookup->service, sizeof(lookup->service), "%u",
                   (unsigned)url->port);
    lookup->hints = (struct addrinfo){.ai_socktype = SOCK_STREAM,
                                      .ai_flags = AI_NUMERICSERV};
    lookup->request = (struct gaicb){.ar_name = lookup->host,
                                     .ar_service = lookup->service,
                                     .ar_request = &lookup->hints};
    list[0] = &lookup->request;
    code = getaddrinfo_a(GAI_NOWAIT, list, 1, NULL);
    if (code != 0) {
        free(lookup);
        return code == EAI_MEMORY ? BT_ERR_NOMEM : BT_ERR_SYSTEM;
    }
    *lookup_p = lookup;
    return BT_OK;
}

void bt_lookup_wait(const struct bt_lookup *lookup, uint64_t wait_ms)
{
    const struct gaicb *const list[] = {&lookup->request};
    const struct timespec limit = {.tv_sec = (time_t)(wait_ms / 1000),
                                   .tv_nsec = (long)(wait_ms % 1000) * 1000000};

    (void)gai_suspend(list, 1, &limit);
}

enum bt_status bt_lookup_take(struct bt_lookup *lookup,
                              struct bt_addrs *addrs_p, const char **why_p)
{
    const int code = gai_error(&lookup->request);

    if (code == EAI_INPROGRESS) {
        return BT_AGAIN;
    }
    if (code != 0) {
        *why_p = gai_strerror(code);
        return BT_ERR_NOT_FOUND;
    }
    bt_addrs_take(addrs_p, lookup->request.ar_result);
    return BT_OK;
}

void bt_lookup_close(struct bt_lookup **lookup_p)
{
    struct bt_lookup *const lookup = *lookup_p;

    *lookup_p = NULL;
    if (lookup == NULL) {
        return;
    }
    if (gai_error(&lookup->request) == EAI_INPROGRESS &&
        gai_cancel(&lookup->request) == EAI_NOTCANCELED) {
        return; /* being asked just now: left to the thread that writes here */
    }
    if (lookup->request.ar_result != NULL) {
        freeaddrinfo(lookup->request.ar_result);
    }
    free(lookup);
}
