/* SPDX-License-Identifier: MIT
 * handlers.h - keeps the program's signal handlers. A plugin file, or a library that it needs, may install
 * handlers while it is opened: UCX, under Debian's MPICH, takes SIGHUP, SIGILL, SIGBUS, SIGFPE and SIGSEGV.
 * These are put back. A handler belongs to the process: no other thread may change one in between. */
#ifndef BS_CORE_PLUGIN_HANDLERS_H
#define BS_CORE_PLUGIN_HANDLERS_H
#include <signal.h>
#include <stdint.h>

#include "blockshock/blockshock.h"

enum { BS_SIGNALS = 65 }; /* of Linux: 1..64 */

typedef struct bs_handlers {
  struct sigaction of[BS_SIGNALS];
} bs_handlers;

BS_API void bs_handlers_keep(bs_handlers *out_handlers);
/* Puts back the kept handlers, except where the new handler lies in the file `spared` (a handle of dlopen;
 * NULL: no exception). Returns how many were put back. */
BS_API uint32_t bs_handlers_put_back(const bs_handlers *handlers, void *spared);
#endif
