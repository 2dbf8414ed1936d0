/* SPDX-License-Identifier: MIT */
#include "sim/number.h"

#include "core/base/text.h"

int sim_number(const char *text, double *out_value) {
  return bs_parse_f64(text, out_value);
}
