/* SPDX-License-Identifier: MIT
 * stop.c - see stop.h. */
#include "lab/stop.h"

#include <signal.h>
#include <stdatomic.h>

#include "core/base/error.h"

static atomic_int asked; /* lock-free: a signal handler writes it, rank threads read it */

int bs_stop_ask(int signal_number) {
  int before = 0;
  if (signal_number == 0) return atomic_exchange(&asked, 0) == 0;
  return atomic_compare_exchange_strong(&asked, &before, signal_number);
}

int bs_stop_asked(void) {
  return atomic_load_explicit(&asked, memory_order_relaxed);
}

int32_t bs_stop_check(bs_error *err) {
  const int number = bs_stop_asked();
  if (number == 0) return BS_OK;
  return bs_error_set(err, BS_ABORTED, "BS-STOPPED", "interrupted by %s",
                      number == SIGTERM ? "SIGTERM" : "SIGINT");
}
