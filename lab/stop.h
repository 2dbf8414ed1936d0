/* SPDX-License-Identifier: MIT
 * stop.h - a request to stop, made by a signal and kept by long work: between two samples it returns the
 * error BS-STOPPED, and everything is closed as after any other error. One a process, as signals are. */
#ifndef BS_LAB_STOP_H
#define BS_LAB_STOP_H
#include "blockshock/blockshock.h"

/* Requests a stop. Returns 1 for the first request and 0 for later ones: of two signals at the same time on
 * two threads, exactly one is first. signal_number 0 takes the request back. Async-signal-safe. */
int bs_stop_ask(int signal_number);
/* The signal's number; 0: no request. Any thread may call it, also in hot loops: it takes one load. */
int bs_stop_asked(void);
/* BS_OK, or BS_ABORTED with BS-STOPPED after a request. */
int32_t bs_stop_check(bs_error *err);
#endif
