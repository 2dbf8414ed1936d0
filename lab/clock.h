/* SPDX-License-Identifier: MIT
 * clock.h - whether a communicator's time and a backend's memory are the machine's, or those of a model of a
 * machine (plugins/sim). */
#ifndef BS_LAB_CLOCK_H
#define BS_LAB_CLOCK_H
#include "blockshock/blockshock.h"

/* 1: ranks of this communicator use a virtual clock. 0: they use the machine's, or the communicator is
 * unknown. */
int bs_clock_is_virtual(bs_context *context, const char *comm);
/* 1: memory of this backend holds no values. */
int bs_backend_is_phantom(bs_context *context, const char *backend);
#endif
