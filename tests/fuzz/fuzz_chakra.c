/* SPDX-License-Identifier: MIT
 * fuzz_chakra.c - any bytes as a rank's Chakra file: an error that names itself, or nodes whose needs, groups
 * and names lie inside of the trace. */
#include <string.h>

#include "core/base/error.h"
#include "formats/chakra.h"
#include "tests/fuzz/input.h"

static void touch(const bs_et *et) {
  for (uint32_t i = 0; i < et->n_nodes; i++) {
    const bs_et_node *n = &et->nodes[i];
    char text[160];
    fuzz_touch(n->name, strlen(n->name) + 1);
    bs_et_node_text(et, i, text, sizeof text);
    if (n->rank >= et->n_ranks || n->kind >= BS_ET_KINDS || n->group >= et->n_groups || text[0] == '\0')
      abort();
    if (n->kind == BS_ET_COLL && (n->coll >= BS_ET_COLLS || et->groups[n->group].n == 0)) abort();
    if (n->bytes > BS_ET_MAX_SIZE || n->flops > BS_ET_MAX_SIZE || n->peer >= BS_ET_MAX_RANKS) abort();
    if (et->first_need[i] > et->first_need[i + 1]) abort();
  }
  if (et->first_need[et->n_nodes] != et->n_needs) abort();
  for (uint64_t k = 0; k < et->n_needs; k++)
    if (et->needs[k].on >= et->n_nodes) abort();
  for (uint32_t g = 0; g < et->n_groups; g++)
    fuzz_touch(et->groups[g].ranks, et->groups[g].n * sizeof(uint32_t));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  bs_et et;
  bs_error err = BS_ERROR_INIT;
  int32_t rc = bs_et_begin(&et, 4, &err);
  if (rc == BS_OK) rc = bs_chakra_read_rank(&et, fuzz_path(data, size), 1, &err);
  if (rc == BS_OK) rc = bs_et_end(&et, &err);
  if (rc == BS_OK)
    touch(&et);
  else if ((strncmp(err.id, "BS-CHAKRA-", 10) != 0 && strncmp(err.id, "BS-ET-", 6) != 0 &&
            strncmp(err.id, "BS-PB-", 6) != 0) ||
           err.message[0] == '\0')
    abort();
  bs_et_free(&et);
  return 0;
}
