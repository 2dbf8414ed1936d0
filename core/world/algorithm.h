/* SPDX-License-Identifier: MIT
 * algorithm.h - what a world is asked to run its collectives by: a name with options (named.h), found among
 * the plugins. Whoever plans a run asks the same before there is a world. */
#ifndef BS_CORE_WORLD_ALGORITHM_H
#define BS_CORE_WORLD_ALGORITHM_H
#include "core/plugin/named.h"

/* Zero-initialise; bs_named_free(&named) frees it. */
typedef struct bs_world_algorithm {
  const bs_algorithm *table; /* NULL: the communicator */
  void *state;
  uint32_t any_order;
  bs_named named;
  bs_value options[BS_ALGORITHM_MAX_OPTIONS];
} bs_world_algorithm;

/* NULL and "" are the communicator's own in order, "native" in any order. BS_NOT_FOUND with the known names
 * and the nearest; BS_CONFIG for options that it has not; BS_UNSUPPORTED (BS-COLL-ALGORITHM) where this many
 * ranks of this communicator cannot run it. Free *out in any case. */
BS_API int32_t bs_algorithm_choose(bs_context *context, const bs_comm *comm, uint32_t world_size,
                                   const char *text, bs_world_algorithm *out, bs_error *err);
#endif
