/* SPDX-License-Identifier: MIT
 * died.h - reports when code in bsrun's process ends it: a signal of a plugin's mistake (a fault, an abort),
 * exit(), quick_exit(), _exit() or _Exit(). It prints one error line, BS-RUN-DIED, with exit code 7, and
 * marks an open run as not finished. Processes that bsrun starts are reported by the code that waits for
 * them. */
#ifndef BSRUN_DIED_H
#define BSRUN_DIED_H

/* Before anything is opened. A signal that something else handles already (a sanitizer) stays with it. */
void bsrun_died_install(const char *verb);
/* Sets what runs from now on, for that line: "phase0_correctness of acme; plugins in use: acme". NULL: the
 * verb. */
void bsrun_died_watch(const char *what);
/* From now on this process ends in good order, with this code; returns it. */
int bsrun_end(int code);
/* Ends it now, without the handlers of exit(). */
_Noreturn void bsrun_leave(int code);
#endif
