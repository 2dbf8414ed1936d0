/* SPDX-License-Identifier: MIT
 * device.c - memory of a rank whose backend holds no values (BS_BACKEND_PHANTOM): addresses that nothing
 * reads or writes. They are taken so that the device counts them, and refuses a model that it has no room
 * for. */
#include "core/base/error.h"
#include "core/base/memory.h"
#include "core/world/executor.h"
#include "graph/ir/arena.h"
#include "graph/run/run.h"

int32_t gdevice_take(gcore *core, grank *rank, const void *of, uint64_t bytes, void **out_data,
                     bs_error *err) {
  for (uint32_t i = 0; i < core->n_blocks && of != NULL; i++) {
    const gdevice *known = &core->blocks[i];
    if (known->of != of || known->tensor.dims[0] != (int64_t)bytes) continue;
    *out_data = known->tensor.data;
    return BS_OK;
  }
  const bs_tensor_desc desc = {.struct_size = (uint32_t)sizeof desc,
                               .dtype = BS_U8,
                               .rank = 1,
                               .dims = {(int64_t)bytes},
                               .strides = {1}};
  if (bytes > INT64_MAX || !ARRAY_GROW(core->blocks, core->n_blocks, core->cap_blocks))
    return bs_error_set(err, BS_NO_MEMORY, "BS-GRAPH-MEMORY", "no memory for a session");
  gdevice *block = &core->blocks[core->n_blocks];
  const int32_t rc = rank->api->tensor_alloc(rank->rank, &desc, BS_LIFE_ACTIVATION, &block->tensor, err);
  if (rc != BS_OK) return rc;
  block->of = of;
  core->n_blocks++;
  *out_data = block->tensor.data;
  return BS_OK;
}

void gdevice_free(gcore *core, grank *rank) {
  for (uint32_t i = core->n_blocks; i-- > 0;) rank->api->tensor_free(rank->rank, &core->blocks[i].tensor);
  core->n_blocks = 0;
}

int32_t gdevice_has_values(const grank *rank, const char *what, bs_error *err) {
  if (!rank->phantom) return BS_OK;
  bs_error_set(err, BS_UNSUPPORTED, "BS-GRAPH-VALUES", "%s is asked for, and backend %.64s holds no values",
               what, bs_rank_backend(rank->rank));
  bs_error_hint(err, "bsrun model bench takes its times; --backend virtual:ref has values");
  return BS_UNSUPPORTED;
}

int32_t gdevice_fits(const grank *rank, uint64_t bytes, const char *what, bs_error *err) {
  return rank->phantom ? BS_OK : bs_memory_fits(bytes, "BS-GRAPH-MEMORY", what, err);
}
