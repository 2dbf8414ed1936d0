/* SPDX-License-Identifier: MIT
 * died.h - what bsrun says when something in its process ends it: a signal of a plugin's mistake (a fault, an
 * abort), exit(), quick_exit(), _exit() or _Exit(). One error line, BS-RUN-DIED, and exit code 7; an open run
 * is marked as not finished. Processes that bsrun starts are told of by who waits for them: nothing here
 * speaks for them. */
#ifndef BSRUN_DIED_H
#define BSRUN_DIED_H

/* Before anything is opened. A signal that something else handles already (a sanitizer) stays with it. */
void bsrun_died_install(const char *verb);
/* What runs from now on, for the line: "phase0_correctness of acme; plugins in use: acme". NULL: the verb. */
void bsrun_died_watch(const char *what);
/* From now on this process ends in good order, with this code; returns it. */
int bsrun_end(int code);
/* Ends it now, without the handlers of exit(). */
_Noreturn void bsrun_leave(int code);
#endif
