/* SPDX-License-Identifier: MIT
 * lt.h - inside of the stand-in of cuBLASLt: the functions that the plugin uses and no others. Arguments are
 * held to what the library's documentation says (check.c); products are plain loops (product.c), run in the
 * order of the stand-in driver's stream, or, with plain=1, on the spot over host memory.
 *
 * BS_CUBLASLT_STANDIN="version=130000;plain=1;algorithms=4;workspace=4096;cost=3:1:2;least=8;plan=FUNCTION:N=STATUS"
 * (STATUS hang: it never returns)
 * version: cublasLtGetVersion; algorithms: how many the heuristics name; workspace: what the second and all
 * later ones need; cost: milliseconds of the first, second ...; least: products of fewer columns are refused.
 */
#ifndef BS_STANDIN_LT_H
#define BS_STANDIN_LT_H
#include <cublasLt.h>
#include <cuda.h>
#include <stdint.h>

#include "control.h"

enum {
  LT_LAYOUT = 0x4c41594f,
  LT_DESC = 0x44455343,
  LT_PREFERENCE = 0x50524546,
  LT_ALGO = 0x414c474f,
  LT_COSTS = 8
};

typedef struct lt_setup {
  int version, plain, algorithms;
  uint64_t workspace;
  int64_t least;
  double cost[LT_COSTS];
} lt_setup;
const lt_setup *lt_get_setup(void);
cublasStatus_t lt_enter(const char *function); /* counted; as planned */
void lt_die(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));

/* The contents of the opaque structs. */
typedef struct lt_layout {
  uint64_t magic, type, rows, cols;
  int64_t ld;
} lt_layout;
typedef struct lt_desc {
  uint32_t magic;
  int32_t compute, scale, turn_a, turn_b, mode, bias_type;
  uint32_t epilogue;
  const void *bias;
} lt_desc;
typedef struct lt_preference {
  uint32_t magic, schemes;
  uint64_t workspace, ways;
  uint32_t align[4];
} lt_preference;
typedef struct lt_algo { /* a configured algorithm is good for its types and turns, whatever the sizes */
  uint64_t magic, id, workspace, of, align, check;
} lt_algo;

struct cublasLtContext {
  uint64_t magic;
  CUcontext context;
  struct cublasLtContext *next;
};

typedef struct lt_product {
  lt_desc desc;
  lt_layout a, b, c, d;
  const void *pa, *pb, *pc, *alpha, *beta;
  void *pd, *workspace;
  uint64_t workspace_bytes;
  double scalars[2]; /* of host pointers */
  double cost;
} lt_product;

uint32_t lt_bytes(uint64_t type);
uint64_t lt_span(const lt_layout *l); /* bytes from its first to its last element */
/* Checks the documentation's rules: sizes, types, epilogue, alignment of leading dimensions. */
cublasStatus_t lt_legal(const lt_desc *desc, const lt_layout *a, const lt_layout *b, const lt_layout *c,
                        const lt_layout *d);
uint64_t lt_signature(const lt_desc *desc, const lt_layout *a, const lt_layout *b, const lt_layout *d);
void lt_compute(lt_product *p);
#endif
