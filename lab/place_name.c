/* SPDX-License-Identifier: MIT
 * place_name.c - see place_name.h. */
#include "lab/place_name.h"

#include <string.h>

static const char *const names[] = {"replicated", "split", "partial", "tokens"};

const char *bs_place_name(uint32_t placement) {
  return placement < sizeof names / sizeof names[0] ? names[placement] : "?";
}

uint32_t bs_place_of(const char *name) {
  for (uint32_t i = 0; i < sizeof names / sizeof names[0]; ++i)
    if (strcmp(name, names[i]) == 0) return i;
  return BS_REPLICATED;
}
