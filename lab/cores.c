/* SPDX-License-Identifier: MIT
 * cores.c - see cores.h. */
#include "lab/cores.h"

#include <sched.h>

uint32_t bs_machine_cores(void) {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? (uint32_t)CPU_COUNT(&set) : 1;
}
