/*
 * A worker's clients: what their connections have in common.
 */
#ifndef PROXY_FRONT_FRONT_H
#define PROXY_FRONT_FRONT_H

#include "common/http/http_conn.h"
#include "proxy/exchange/local.h"
#include "proxy/front/access_log.h"

#include <sys/queue.h>

struct client;
struct desk;
struct listener;

struct front {
    struct local *local;
    struct access_log *access_log;
    struct listener *listeners;
    LIST_HEAD(, client) clients;
    size_t client_count;
    struct bt_http_idle idle;
    struct bt_http_conn_options conn_options;
    struct desk *models; /* who wait for the list of models; NULL: none did */
};

#endif
