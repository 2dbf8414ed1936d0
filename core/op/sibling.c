/* SPDX-License-Identifier: MIT
 * sibling.c - see sibling.h. Slow path only. */
#include "core/op/sibling.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"

int32_t bs_sibling_find(const bs_op_host *host, const bs_thing *thing, const char *op,
                        const bs_thing **out_thing, bs_error *err) {
  const bs_op_impl *impl = thing->vtable;
  *out_thing = NULL;
  const uint32_t count = bs_registry_ops(host->context, op, impl->backend, NULL, 0);
  if (count == 0) return BS_OK;
  const bs_thing **things = calloc(count, sizeof *things);
  if (things == NULL)
    return bs_error_set(err, BS_NO_MEMORY, "BS-OP-MEMORY", "no memory for %u candidates of op %s", count, op);
  const uint32_t filled = bs_registry_ops(host->context, op, impl->backend, things, count);
  for (uint32_t i = 0; i < filled && i < count && *out_thing == NULL; i++) {
    const bs_op_impl *other = things[i]->vtable;
    if (strcmp(things[i]->plugin, thing->plugin) == 0 && strcmp(other->name, impl->name) == 0)
      *out_thing = things[i];
  }
  free(things);
  return BS_OK;
}

int32_t bs_sibling_require(const bs_op_host *host, const bs_op_query *query, bs_candidate *candidate,
                           bs_error *err) {
  static const char *const dense[] = {"matmul_dx", "matmul_update"};
  static const char *const sparse[] = {"matmul24_dx", "matmul24_update"};
  const char *const *needed = strcmp(query->op, "matmul") == 0     ? dense
                              : strcmp(query->op, "matmul24") == 0 ? sparse
                                                                   : NULL;
  bs_op_answer *answer = &candidate->answer;
  const bs_op_impl *impl = candidate->impl;
  if ((query->flags & BS_QUERY_TRAIN) == 0 || needed == NULL) return BS_OK;
  for (size_t i = 0; i < sizeof dense / sizeof dense[0] && answer->level != BS_LEVEL_NO; i++) {
    const bs_thing *found = NULL;
    const int32_t rc = bs_sibling_find(host, candidate->thing, needed[i], &found, err);
    if (rc != BS_OK) return rc;
    if (found != NULL) continue;
    answer->level = BS_LEVEL_NO;
    answer->reason = BS_REASON_NOT_BUILT;
    snprintf(answer->text, sizeof answer->text, "cannot serve a backward pass: no %s@%.40s/%.40s", needed[i],
             impl->backend, impl->name);
  }
  return BS_OK;
}
