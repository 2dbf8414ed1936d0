/* SPDX-License-Identifier: MIT
 * cores.h - how many cores there are to divide between ranks. */
#ifndef BS_LAB_CORES_H
#define BS_LAB_CORES_H
#include <stdint.h>

/* Cores this process may use. */
uint32_t bs_machine_cores(void);
#endif
