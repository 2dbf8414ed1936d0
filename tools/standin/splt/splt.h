/* SPDX-License-Identifier: MIT
 * splt.h - inside of the stand-in of cuSPARSELt: the functions that the plugin uses and no others. Arguments
 * are checked by the rules of the library's documentation and messages (check.c). It is strict where the
 * library would be silent. An opaque block that was moved, was ended twice, or ended before an object made
 * from it stops the process. A compressed weight begins with a mark of its kind. Products are plain loops
 * (product.c), run in the order of the stand-in driver's stream, or, with plain=1, on the spot over host
 * memory.
 *
 * BS_CUSPARSELT_STANDIN="version=0.8.1;plain=1;algorithms=4;workspace=4096;cost=3:1:2;plan=FUNCTION:N=STATUS"
 * algorithms: how many there are; workspace: what the second and all later ones need, of the first with
 * `first`; cost: milliseconds of the first, second ...; plan: the N-th call of FUNCTION returns STATUS, or,
 * with "hang", does not return. */
#ifndef BS_STANDIN_SPLT_H
#define BS_STANDIN_SPLT_H
#include "control.h"
#include "plugins/cuda/cusparselt/api.h"

enum { SPLT_COSTS = 8, SPLT_BUFFER = 512 };

typedef struct splt_setup {
  int version[3], plain, algorithms;
  uint64_t workspace, first;
  double cost[SPLT_COSTS];
} splt_setup;
const splt_setup *splt_get_setup(void);
int splt_enter(const char *function); /* counted; as planned */
void splt_die(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));

/* The contents of an opaque block: each begins with its kind and the address where it was made. */
enum splt_kind { SPLT_A_HANDLE = 0x53504c48, SPLT_A_MATRIX, SPLT_A_MATMUL, SPLT_A_SELECTION, SPLT_A_PLAN };
typedef struct splt_head {
  uint64_t kind;
  const void *at;
  uint64_t serial; /* never used twice */
} splt_head;
typedef struct splt_handle {
  splt_head head;
  CUcontext context;
} splt_handle;
typedef struct splt_matrix {
  splt_head head;
  int64_t rows, cols, ld;
  int32_t type, order;
  int32_t structured;
  uint32_t alignment;
} splt_matrix;
typedef struct splt_ref { /* to another block, as it was */
  const cuda_splt_opaque *at;
  uint64_t serial;
} splt_ref;
typedef struct splt_matmul {
  splt_head head;
  splt_ref a, b, c, d;
  int32_t op_a, op_b, compute, relu;
} splt_matmul;
typedef struct splt_selection {
  splt_head head;
  splt_ref matmul;
  int32_t id, split;
} splt_selection;
typedef struct splt_plan {
  splt_head head;
  splt_ref handle, matmul, selection;
  int32_t id;
  uint64_t workspace;
} splt_plan;

/* Reads a block; the process ends if it has another kind or was moved. */
void splt_take(const cuda_splt_opaque *block, uint64_t kind, void *out, size_t bytes, const char *who);

/* The beginning of a compressed weight; then values, two of each four, and a byte for each four: first place
 * + 4 x second. */
typedef struct splt_mark {
  uint64_t magic;
  int64_t rows, cols;
  int32_t type;
  int32_t reserved;
  uint64_t fill[4];
} splt_mark;
#define SPLT_MARK 0x53504c544d41524bu

typedef struct splt_job {
  splt_matrix a, b, c;
  const void *pa, *pb, *pc;
  void *pd, *workspace;
  uint64_t workspace_bytes;
  float alpha, beta;
  int32_t compute, relu;
  double cost;
} splt_job;

/* check.c */
uint32_t splt_bytes(int32_t type);
uint64_t splt_span(const splt_matrix *m); /* bytes from its first to its last element */
uint64_t splt_compressed(const splt_matrix *m);
int splt_matrix_legal(const splt_matrix *m);
int splt_matmul_legal(const splt_matmul *mm, const splt_matrix *a, const splt_matrix *b, const splt_matrix *c,
                      const splt_matrix *d);
/* product.c */
uint64_t splt_compress(const splt_matrix *m, const void *dense, void *out); /* zeros it chose places for */
void splt_compute(const splt_job *job);
#endif
