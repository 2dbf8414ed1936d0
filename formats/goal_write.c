/* SPDX-License-Identifier: MIT
 * goal_write.c - writing GOAL (goal.h). A node's label is l and its number in the rank, from 1. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/out_file.h"
#include "core/base/text.h"
#include "formats/goal.h"

static void put_op(bs_text *t, const bs_et_node *n, uint32_t number, uint64_t *rounded) {
  bs_text_printf(t, "l%u: ", number);
  if (n->kind == BS_ET_SEND || n->kind == BS_ET_RECV) {
    bs_text_printf(t, "%s %" PRIu64 "b %s %u tag %u", n->kind == BS_ET_SEND ? "send" : "recv", n->bytes,
                   n->kind == BS_ET_SEND ? "to" : "from", n->peer, n->tag);
  } else {
    bs_text_printf(t, "calc %" PRIu64, n->ps / 1000 + (n->ps % 1000 >= 500));
    *rounded += n->ps % 1000 != 0;
  }
  if (n->cpu > 0) bs_text_printf(t, " cpu %u", n->cpu);
  if (n->nic > 0) bs_text_printf(t, " nic %u", n->nic);
  bs_text_append(t, "\n", 1);
}

static void put_rank(bs_text *t, const bs_et *et, uint32_t rank, uint64_t *rounded) {
  const uint32_t first = et->first_node[rank], end = et->first_node[rank + 1];
  bs_text_printf(t, "\nrank %u {\n", rank);
  for (uint32_t i = first; i < end && !t->failed; i++) put_op(t, &et->nodes[i], i - first + 1, rounded);
  for (uint32_t i = first; i < end && !t->failed; i++) /* LogGOPSim knows labels from their line on */
    for (uint64_t k = et->first_need[i]; k < et->first_need[i + 1]; k++)
      bs_text_printf(t, "l%u %s l%u\n", i - first + 1, et->needs[k].start ? "irequires" : "requires",
                     et->needs[k].on - first + 1);
  bs_text_append(t, "}\n", 2);
}

static int32_t check(const bs_et *et, bs_error *err) {
  char text[160];
  for (uint32_t i = 0; i < et->n_nodes; i++) {
    const bs_et_node *n = &et->nodes[i];
    if (n->kind == BS_ET_SEND || n->kind == BS_ET_RECV || (n->kind != BS_ET_COLL && n->ps != BS_ET_NO_TIME))
      continue;
    bs_et_node_text(et, i, text, sizeof text);
    return bs_error_set(err, BS_UNSUPPORTED, "BS-GOAL-NODE", "%s: GOAL has %s", text,
                        n->kind == BS_ET_COLL ? "no collectives" : "times alone, and none is known");
  }
  return BS_OK;
}

int32_t bs_goal_write(const bs_et *et, const char *path, uint64_t *out_rounded, bs_error *err) {
  bs_text text = {0};
  *out_rounded = 0;
  const int32_t rc = check(et, err);
  if (rc != BS_OK) return rc;
  bs_text_printf(&text, "num_ranks %u\n", et->n_ranks);
  for (uint32_t r = 0; r < et->n_ranks; r++) put_rank(&text, et, r, out_rounded);
  const int why = text.failed ? ENOMEM : bs_out_text(path, text.data, text.size);
  bs_text_free(&text);
  if (why == 0) return BS_OK;
  return bs_error_set(err, BS_IO, "BS-OUT-WRITE", "%.300s cannot be written: %s", path, strerror(why));
}
