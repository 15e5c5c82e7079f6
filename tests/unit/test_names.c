/*
 * proxy/names: engines whose names have no address yet.
 */
#include "proxy/names.h"
#include "tests/support/config_pair.h"
#include "tests/support/harness.h"

/* No resolver takes a label of more than 63 characters. */
#define NOBODY                                                               \
    "http://"                                                                \
    "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx" \
    ".invalid:1"

START_TEST(a_name_without_an_address_keeps_its_engine_unusable_and_no_other)
{
    static const char *const URLS[] = {NOBODY, "http://127.0.0.1:1"};
    struct config config = {0};
    struct config_pair pair;
    struct registry *registry;
    struct bt_loop *loop;
    struct names *names;

    config_pair_set(&pair, &config, CONNECTOR_NIXL, URLS);
    ck_assert_int_eq(registry_open(&config, &registry), BT_OK);
    ck_assert_int_eq(bt_loop_open(&loop), BT_OK);
    ck_assert_int_eq(names_open(loop, registry, &names), BT_OK);
    ck_assert(!engine_is_usable(&registry->engines[0]));
    ck_assert(engine_is_usable(&registry->engines[1]));
    names_close(&names);
    bt_loop_close(&loop);
    registry_close(&registry);
}
END_TEST

HARNESS_MAIN("names",
             a_name_without_an_address_keeps_its_engine_unusable_and_no_other)
