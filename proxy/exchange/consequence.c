/*
 * consequence: the table.
 */
#include "proxy/exchange/consequence.h"

enum consequence consequence_of(enum prefill_state p, enum decode_state d,
                                enum client_state client)
{
#define ROW(p, d, reading, queued, waiting, committed, over) \
    [P_##p][D_##d] = {[C_READING] = DO_##reading,            \
                      [C_QUEUED] = DO_##queued,              \
                      [C_WAITING] = DO_##waiting,            \
                      [C_COMMITTED] = DO_##committed,        \
                      [C_OVER] = DO_##over},
    static const enum consequence TABLE[P_STATES][D_STATES][C_STATES] = {
#include "proxy/exchange/consequence.def"
    };
#undef ROW

    return TABLE[p][d][client];
}
