/*
 * The three machines of an exchange, and what the move of one means for the
 * others: consequence.def.
 *
 *     P leg's events ---> P --.
 *     D leg's events ---> D ---+--> (P, D, client) --> consequence
 *     the client, queue -> C --'
 */
#ifndef PROXY_EXCHANGE_CONSEQUENCE_H
#define PROXY_EXCHANGE_CONSEQUENCE_H

enum prefill_state {
    P_NONE,
    P_ASKED,    /* its leg is open */
    P_ANSWERED, /* the handoff is in hand */
    P_FAILED,
    P_RELEASED, /* the handoff is not ours any more */
    P_STATES
};

enum decode_state {
    D_NONE,
    D_EARLY, /* asked while P computes */
    D_ASKED, /* its leg is open */
    D_FIRST, /* it has begun to answer the client */
    D_DONE,
    D_FAILED,
    D_STATES
};

enum client_state {
    C_READING, /* its body */
    C_QUEUED,  /* in the admission queue */
    C_WAITING,
    C_COMMITTED, /* a head was written */
    C_OVER,      /* it has its verdict, or is gone */
    C_STATES
};

enum consequence {
    DO_NEVER,     /* no exchange can be there */
    DO_KEEP,      /* nothing: it goes on */
    DO_NEXT,      /* the attempt's next plan */
    DO_LET_GO,    /* the handoff is used up */
    DO_BREAK,     /* the client's answer is broken off */
    DO_DROP_D,    /* D's leg is closed, whatever it holds */
    DO_CLOSE_D,   /* D's leg is closed when D knows of the handoff */
    DO_CLOSE_P,   /* P's leg is closed, or read on for its handoff */
    DO_GIVE_BACK, /* the handoff is given back */
    DO_FINISH,    /* when all is told, it is over */
};

enum consequence consequence_of(enum prefill_state p, enum decode_state d,
                                enum client_state client);

#endif
