/* SPDX-License-Identifier: MIT
 * place.c - see place.h. */
#include "lab/case/place.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/dtype.h"
#include "core/partition/partition.h"
#include "core/plugin/named.h"
#include "lab/error.h"

void bs_place_tokens(const bs_case *c, uint32_t placement, uint32_t rank, int64_t *out_begin,
                     int64_t *out_count) {
  *out_begin = 0;
  *out_count = c->spec.B;
  if (placement == BS_SPLIT_TOKENS) bs_share(c->spec.B, rank, c->world_size, out_begin, out_count);
}

int32_t bs_place_read(const bs_case *c, bs_rank *rank, const bs_source *source, const bs_partition *cols,
                      int64_t first, bs_tensor *x, bs_error *err) {
  const bs_rank_api *api = bs_rank_get_api();
  if (x->dims[0] == 0 || x->dims[1] == 0) return BS_OK;
  if (c->spec.x_placement != BS_PARTIAL || c->world_size == 1)
    return api->tensor_read(rank, source, first, cols, x, err);
  bs_partition own = {.struct_size = sizeof own, .kind = BS_PARTITION_CONTIGUOUS, .total = c->spec.K};
  bs_share(c->spec.K, api->rank(rank), c->world_size, &own.begin, &own.count);
  if (own.count == 0) return BS_OK;
  bs_tensor view = *x;
  const uint64_t skip = (uint64_t)own.begin * BS_DTYPE_BYTES(x->dtype);
  view.dims[1] = own.count;
  view.data = (char *)x->data + skip;
  view.bytes = x->bytes - skip;
  return api->tensor_read(rank, source, first, &own, &view, err);
}

int bs_place_assembles(const bs_case *c) {
  return c->world_size > 1 && c->spec.y_placement >= BS_PARTIAL;
}

static void add_partial(const bs_case *c, void *whole, const bs_case_rank *rank, int add) {
  const int64_t n = c->spec.B * c->spec.N;
  const uint32_t dtype = c->spec.y_dtype;
  for (int64_t i = 0; i < n; ++i)
    bs_store_f64(dtype, whole, i,
                 bs_load_f64(dtype, rank->y, i) + (add ? bs_load_f64(dtype, whole, i) : 0.0));
}

int32_t bs_place_assemble(const bs_case *c, bs_case_result *result, bs_error *err) {
  if (!bs_place_assembles(c)) return BS_OK;
  const size_t row = (size_t)c->spec.N * BS_DTYPE_BYTES(c->spec.y_dtype), bytes = (size_t)c->spec.B * row;
  for (uint32_t r = 0; r < result->world_size; ++r)
    if (!result->ranks[r].y) return BS_OK; /* nothing was kept */
  unsigned char *whole = calloc(1, bytes ? bytes : 1);
  int32_t rc = whole ? BS_OK : bs_no_memory(err, "an output of %zu bytes", bytes);
  for (uint32_t r = 0; rc == BS_OK && r < result->world_size; ++r) {
    const bs_case_rank *rank = &result->ranks[r];
    int64_t begin, count;
    bs_place_tokens(c, c->spec.y_placement, r, &begin, &count);
    if (c->spec.y_placement == BS_PARTIAL)
      add_partial(c, whole, rank, r > 0);
    else
      memcpy(whole + (size_t)begin * row, rank->y, (size_t)count * row);
  }
  for (uint32_t r = 0; rc == BS_OK && r < result->world_size; ++r) {
    bs_case_rank *rank = &result->ranks[r];
    void *y = realloc(rank->y, bytes ? bytes : 1);
    if (!y) {
      rc = bs_no_memory(err, "an output of %zu bytes", bytes);
      break;
    }
    rank->y = y;
    memcpy(rank->y, whole, bytes);
    rank->y_begin = 0;
    rank->y_cols = c->spec.N;
    rank->hash = bs_hash64(rank->y, bytes);
  }
  free(whole);
  return rc;
}

int bs_place_leaves(const bs_case *c) {
  const char *repro = bs_case_option(&c->spec, "repro");
  return strcmp(repro, "R3") == 0 || strcmp(repro, "R4") == 0;
}

int bs_place_unordered(const bs_case *c) {
  const bs_algorithm *algorithm = NULL;
  bs_named named = {0};
  if (c->algorithm == NULL || c->algorithm[0] == '\0' || c->world_size == 1 || bs_place_leaves(c)) return 0;
  if (strcmp(c->algorithm, "native") == 0) return 1;
  int32_t rc = bs_named_read(c->algorithm, &named, NULL);
  if (rc == BS_OK) rc = bs_find_algorithm(c->context, named.name, &algorithm, NULL, NULL);
  bs_named_free(&named);
  return rc != BS_OK || (algorithm->flags & BS_ALGORITHM_SAME_ORDER) == 0;
}
