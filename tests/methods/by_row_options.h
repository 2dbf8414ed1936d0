/* SPDX-License-Identifier: MIT
 *
 * by_row_options.h - options of a blockshock layer, for the tests of its 2:4 halves.
 */
#ifndef BS_TESTS_BY_ROW_OPTIONS_H
#define BS_TESTS_BY_ROW_OPTIONS_H

#include "kit/method_fixture.h"

/* Options of a layer: kernel, slices and half, NULL where it is left. */
typedef struct options {
  const char *keys[3], *values[3];
  uint32_t n;
} options;

static inline void option(options *o, const char *key, const char *value) {
  if (value == NULL) return;
  o->keys[o->n] = key;
  o->values[o->n++] = value;
}

static inline options choose(bs_layer_spec *spec, const char *kernel, const char *slices, const char *half) {
  options o = {.n = 0};
  option(&o, "kernel", kernel);
  option(&o, "slices", slices);
  option(&o, "half", half);
  spec->n_options = o.n;
  return o;
}

static inline void give(bs_layer_spec *spec, const options *o) {
  spec->option_keys = o->keys;
  spec->option_values = o->values;
}

#endif
