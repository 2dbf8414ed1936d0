/* SPDX-License-Identifier: MIT
 * op_fixture.h - a host, a registry and a thread team small enough to see through, for tests of core/op and
 * of op implementations. Serial unless said; one fixture at a time (each libcheck test forks). */
#ifndef BS_TESTS_OP_FIXTURE_H
#define BS_TESTS_OP_FIXTURE_H
#include <stdlib.h>

#include "blockshock/plugin.h"
#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/op/dispatch.h"
#include "core/op/schema.h"
#include "core/plugin/registry.h"
#include "tests/marks.h"

const bs_plugin_desc *bs_plugin_query_static_ref(uint32_t host_abi, uint32_t reserved);

enum { FX_MAX_THINGS = 48, FX_MAX_NOTES = 4096 };

typedef struct fx {
  bs_host host;
  bs_exec exec;
  bs_op_host ops;
  uint64_t counters[BS_COUNT_COUNT_];
  uint32_t threads; /* 1: members are threads, 0: one after the other */
  int64_t live;     /* blocks of host and exec memory not yet freed */
  void *scratch;    /* of reserve */
  uint64_t scratch_bytes;
  int64_t fail_alloc_at;    /* > 0: the n-th allocation from now fails */
  char notes[FX_MAX_NOTES]; /* note_algorithm's texts, newline-separated */
  void *state;              /* of the ref plugin */
} fx;

/* A fixture with the ref plugin registered as backend "ref", or an empty registry. */
void fx_open(fx *f, uint32_t width, int with_ref);
/* Deactivates ref and checks that nothing is left allocated. */
void fx_close(fx *f);
/* Register an implementation; its vtable must live on. */
void fx_add(const char *plugin, const bs_op_impl *impl, void *state);
const bs_op_impl *fx_impl(const char *op, void **out_state);

/* A tensor inside a larger block whose other bytes must stay 0xA5. */
typedef struct fx_tensor {
  bs_tensor t;
  bs_tensor_desc d;
  unsigned char *block;
  uint64_t block_bytes;
} fx_tensor;

enum { FX_GUARD = 64 };

/* dims[0..rank) with the given strides (NULL: dense). */
void fx_tensor_make(fx_tensor *out, uint32_t dtype, uint32_t rank, const int64_t *dims,
                    const int64_t *strides);
void fx_matrix(fx_tensor *out, uint32_t dtype, int64_t rows, int64_t cols);
void fx_tensor_free(fx_tensor *t);
double fx_get(const fx_tensor *t, int64_t r, int64_t c);
int64_t fx_get_i64(const fx_tensor *t, int64_t r, int64_t c); /* integer dtypes, exactly */
void fx_set(fx_tensor *t, int64_t r, int64_t c, double value);
/* Fails the test when a byte that belongs to no element changed. */
void fx_check_guards(const fx_tensor *t, const char *what);
void fx_fill(fx_tensor *t, uint64_t *seed); /* values in [-2, 2), rounded to the dtype; integers -8..8 */
uint64_t fx_next(uint64_t *seed);
int64_t fx_below(uint64_t *seed, int64_t n);
bs_source fx_source(fx_tensor *t); /* reads t, which must live on */

/* Columns {k : k mod period in bits} of total as a GATHER partition; columns[] belongs to the caller. */
bs_partition fx_gather(int64_t total, uint32_t period, uint32_t bits, uint32_t *columns);
bs_partition fx_contiguous(int64_t total, int64_t begin, int64_t count);

/* Positions of which group g of row r is bits[r * stride + g]; a seeded mask of two of four, or the
 * complement of one, fills such a table. */
typedef struct fx_kept_table {
  const unsigned char *bits;
  int64_t stride;
} fx_kept_table;
bs_kept fx_kept(fx_kept_table *table, int64_t rows, int64_t cols);
void fx_kept_random(unsigned char *bits, int64_t rows, int64_t stride, uint64_t *seed);
void fx_kept_complement(unsigned char *bits, const unsigned char *of, int64_t count);

/* A query over descriptors: args[i] NULL is absent. */
bs_op_query fx_query(const char *op, const bs_tensor_desc *const *args, uint32_t nargs);
#endif
