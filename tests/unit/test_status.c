/*
 * Every status has a text of its own.
 */
#include "common/base/status.h"
#include "tests/support/harness.h"

#include <string.h>

START_TEST(every_status_has_its_own_text)
{
    for (int a = BT_ERR_PROTOCOL; a <= BT_AGAIN; a++) {
        const char *const text = bt_status_text((enum bt_status)a);

        ck_assert_str_ne(text, "unknown status");
        for (int b = BT_ERR_PROTOCOL; b < a; b++) {
            ck_assert_str_ne(text, bt_status_text((enum bt_status)b));
        }
    }
}
END_TEST

HARNESS_MAIN("status", every_status_has_its_own_text)
