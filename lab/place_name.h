/* SPDX-License-Identifier: MIT
 * place_name.h - the placements of x and y as configurations and records write them. */
#ifndef BS_LAB_PLACE_NAME_H
#define BS_LAB_PLACE_NAME_H
#include "blockshock/blockshock.h"

/* "replicated", "split", "partial", "tokens" of enum bs_placement, and back (BS_REPLICATED for any other). */
const char *bs_place_name(uint32_t placement);
uint32_t bs_place_of(const char *name);
#endif
