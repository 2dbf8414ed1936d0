/* SPDX-License-Identifier: MIT
 * comm.h - a plugin's communicator as the one that tests/comm/ranks.h runs worlds of. */
#ifndef BS_TESTS_KIT_COMM_H
#define BS_TESTS_KIT_COMM_H
#include "tests/kit/comm_data.h"

/* NULL after kit_unsupported. */
static inline const bs_comm *kit_comm_open(const kit_case *c, kit_plugin *p) {
  kit_plugin_open(p);
  test_comm = kit_comm_of(&p->host.things[c->thing], &test_state);
  if (test_comm->launch == BS_LAUNCH_THREADS) return test_comm;
  kit_unsupported("launch %u: the kit starts worlds of threads", test_comm->launch);
  return NULL;
}
#endif
