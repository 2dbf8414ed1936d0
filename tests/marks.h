/* SPDX-License-Identifier: MIT
 * libcheck's assertions. Each one that holds is written to a file, as the place to name should the test die;
 * in a loop over elements that takes longer than what is tested. Here a place is written once until a thread
 * passes another. */
#ifndef BS_TESTS_MARKS_H
#define BS_TESTS_MARKS_H

#include <check.h>

static inline void bs_mark_place(const char *file, int line) {
  static _Thread_local const char *last_file;
  static _Thread_local int last_line;
  if (line == last_line && file == last_file) return;
  last_file = file;
  last_line = line;
  _mark_point(file, line);
}

#undef _mark_point
#define _mark_point(file, line) bs_mark_place(file, line)

#endif
