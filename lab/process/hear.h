/* SPDX-License-Identifier: MIT
 * hear.h - a child process that opens plugins and reports what it finds. If it ends or hangs, only its answer
 * is lost. */
#ifndef BS_LAB_PROCESS_HEAR_H
#define BS_LAB_PROCESS_HEAR_H
#include "core/base/text.h"

typedef struct bs_hearing {
  void (*say)(void *user, int fd); /* in the child, which writes its answer to fd, and prints to stderr */
  void *user;
  double silence_s; /* a child that writes nothing for this time is killed */
  int quiet;        /* its prints are dropped */
  /* after it ended */
  int late;   /* it was killed */
  int status; /* as of waitpid */
} bs_hearing;

/* Runs `say` in a child and reads all that it writes until it has ended. 0, or an errno: no child could be
 * started. Free *out in any case. */
int bs_hear(bs_hearing *hearing, bs_text *out);
#endif
