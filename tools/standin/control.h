/* SPDX-License-Identifier: MIT
 * control.h - what tests ask the stand-in, by dlsym. */
#ifndef BS_STANDIN_CONTROL_H
#define BS_STANDIN_CONTROL_H
#include <stdint.h>

enum si_kind {
  SI_CONTEXT = 0,
  SI_STREAM,
  SI_EVENT,
  SI_MODULE,
  SI_MEMORY,
  SI_PINNED,
  SI_POOL,
  SI_GRAPH, /* and what is made of one */
  SI_KIND_COUNT_
};
/* How many of a kind live. */
typedef int64_t (*si_count_fn)(uint32_t kind);
#define SI_COUNT_SYMBOL "standin_count"
int64_t standin_count(uint32_t kind);
/* How often a function was called. */
typedef uint64_t (*si_calls_fn)(const char *function);
#define SI_CALLS_SYMBOL "standin_calls"
uint64_t standin_calls(const char *function);
#endif
