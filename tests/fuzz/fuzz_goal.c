/* SPDX-License-Identifier: MIT
 * fuzz_goal.c - any bytes as a GOAL file: an error that names itself, or a trace that is written and comes
 * back with the same nodes and needs. */
#include <string.h>

#include "core/base/error.h"
#include "formats/goal.h"
#include "tests/fuzz/input.h"

/* Both have the same nodes. The lines differ. */
static void compare(const bs_et *a, const bs_et *b) {
  if (a->n_ranks != b->n_ranks || a->n_nodes != b->n_nodes || a->n_needs != b->n_needs) abort();
  for (uint32_t i = 0; i < a->n_nodes; i++) {
    const bs_et_node *x = &a->nodes[i], *y = &b->nodes[i];
    if (x->rank != y->rank || x->kind != y->kind || x->ps != y->ps || x->bytes != y->bytes ||
        x->peer != y->peer || x->tag != y->tag || x->cpu != y->cpu || x->nic != y->nic ||
        a->first_need[i] != b->first_need[i])
      abort();
  }
  for (uint64_t k = 0; k < a->n_needs; k++)
    if (a->needs[k].on != b->needs[k].on || a->needs[k].start != b->needs[k].start) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static char path[64];
  bs_et et, back;
  bs_error err = BS_ERROR_INIT;
  uint64_t rounded = 0;
  int32_t rc = bs_goal_read(fuzz_path(data, size), &et, &err);
  if (rc == BS_OK) rc = bs_et_end(&et, &err);
  if (rc != BS_OK) {
    if ((strncmp(err.id, "BS-GOAL-", 8) != 0 && strncmp(err.id, "BS-ET-", 6) != 0) || err.message[0] == '\0')
      abort();
  } else if (et.n_ranks <= 1024) {
    snprintf(path, sizeof path, "/tmp/bs-fuzz-goal-%d", (int)getpid());
    if (bs_goal_write(&et, path, &rounded, &err) != BS_OK || rounded != 0) abort();
    if (bs_goal_read(path, &back, &err) != BS_OK || bs_et_end(&back, &err) != BS_OK) abort();
    compare(&et, &back);
    bs_et_free(&back);
    remove(path);
  }
  bs_et_free(&et);
  return 0;
}
