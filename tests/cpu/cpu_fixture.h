/* SPDX-License-Identifier: MIT
 *
 * cpu_fixture.h - the cpu plugin opened by a host small enough to see through: parameters given by the
 * test, a team of real threads, counted memory. One at a time (each libcheck test forks). */
#ifndef BS_TESTS_CPU_FIXTURE_H
#define BS_TESTS_CPU_FIXTURE_H

#include <stdlib.h>

#include "blockshock/plugin.h"
#include "core/base/dtype.h"
#include "core/base/error.h"
#include "tests/marks.h"

enum { CX_MAX_THINGS = 48, CX_MAX_WIDTH = 8 };

typedef struct cx {
  bs_host host;
  bs_exec exec;
  const bs_plugin_desc *desc;
  void *state;
  const char *isa; /* parameter values */
  const char *dnnl;
  const char *matmul; /* cx_try_open: set before, NULL is "auto" */
  struct {
    uint32_t kind;
    const void *vtable;
    void *state;
  } things[CX_MAX_THINGS];
  uint32_t count;
  int64_t live;  /* exec blocks not yet freed */
  void *scratch; /* of exec's reserve */
  uint64_t scratch_bytes;
  uint64_t newest;          /* bytes of the newest exec block */
  int64_t fail_alloc_at;    /* > 0: the n-th exec allocation from now fails */
  int64_t fail_register_at; /* > 0: the n-th registration from now fails */
  int32_t activated;
} cx;

/* Activates the plugin with the parameters; fail_register_at and matmul are the caller's to set before, and
 * c must be zeroed otherwise. The status is in activated and returned. */
int32_t cx_try_open(cx *c, const char *isa, const char *dnnl, uint32_t width, bs_error *err);
void cx_open(cx *c, const char *isa, const char *dnnl, uint32_t width);
/* Deactivates and checks that no device memory is left. */
void cx_close(cx *c);
const bs_op_impl *cx_impl(const cx *c, const char *op, const char *name, void **out_state); /* NULL: none */
const bs_backend *cx_backend(const cx *c, void **out_state);
/* Whether this processor has it: the plugin must then take isa=NAME, else refuse it. */
int cx_has_isa(const char *isa);
const char *cx_best_isa(void);

uint64_t cx_next(uint64_t *seed);
int64_t cx_below(uint64_t *seed, int64_t n);

/* A row-major matrix inside a block whose other bytes must stay 0xA5. */
typedef struct cx_matrix {
  bs_tensor t;
  bs_tensor_desc d;
  unsigned char *block;
  uint64_t block_bytes;
} cx_matrix;

/* ld 0: dense. */
void cx_matrix_make(cx_matrix *m, uint32_t dtype, int64_t rows, int64_t cols, int64_t ld);
void cx_vector_make(cx_matrix *m, uint32_t dtype, int64_t count);
void cx_matrix_free(cx_matrix *m);
void cx_guards(const cx_matrix *m, const char *what);
double cx_get(const cx_matrix *m, int64_t row, int64_t col);
void cx_set(cx_matrix *m, int64_t row, int64_t col, double value);

/* Columns k with bit k mod period of bits set, within [begin, begin+span); freed by cx_partition_free. */
bs_partition cx_pattern(int64_t total, uint32_t period, uint32_t bits, int64_t begin, int64_t span);
bs_partition cx_run(int64_t total, int64_t begin, int64_t count);
bs_partition cx_list(int64_t total, int64_t count, uint64_t *seed); /* random, no period */
void cx_partition_free(bs_partition *p);
int64_t cx_column(const bs_partition *p, int64_t i); /* p NULL: i */

/* A source over a matrix, which must live on. */
bs_source cx_source(cx_matrix *m);

#endif
