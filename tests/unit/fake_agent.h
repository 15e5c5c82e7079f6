/*
 * An agent library inside one process, for tests of its host: pulls are
 * memory copies between the agents of this process, done at once or, when
 * they are held back, upon fake_agent_run. Nothing is released by itself.
 */
#ifndef TESTS_UNIT_FAKE_AGENT_H
#define TESTS_UNIT_FAKE_AGENT_H

#include <baton/agent.h>

#include <stdbool.h>

/* Pulls and cancels wait for fake_agent_run from now on, or no longer. */
void fake_agent_hold_back(bool hold_back);
/* Does what was held back. */
void fake_agent_run(void);
/* Ends a ready hold on every rank, as a proxy's release does. */
void fake_agent_release(baton_id id, baton_reason reason);
/* The next opened holds are refused. */
void fake_agent_refuse_holds(unsigned count);
/* Ready holds of all agents of the process. */
size_t fake_agent_holds(void);
/* Tokens that a hold was told to have, on the rank that has the fewest. */
uint64_t fake_agent_told(baton_id id);
/* Forgets switches; agents must be closed. */
void fake_agent_reset(void);

#endif
