/* SPDX-License-Identifier: MIT
 * control.h - what tests ask the stand-in of cuBLASLt, by dlsym. */
#ifndef BS_STANDIN_LT_CONTROL_H
#define BS_STANDIN_LT_CONTROL_H
#include <stdint.h>

typedef struct lt_told {
  int64_t handles;         /* that live */
  uint64_t products;       /* asked for */
  uint64_t heuristics;     /* asked for */
  uint64_t last_algorithm; /* id of the last product's: 1 is the first */
  uint64_t last_workspace;
  uint64_t ways; /* CUBLASLT_MATMUL_PREF_IMPL_MASK as last asked */
  uint32_t schemes;
  uint32_t last_adds;
  double clock; /* milliseconds of all products */
} lt_told;
typedef const lt_told *(*lt_told_fn)(void);
#define LT_TOLD_SYMBOL "cublaslt_standin_told"
const lt_told *cublaslt_standin_told(void);
/* Read BS_CUBLASLT_STANDIN again, and count plans from 0 again. */
typedef void (*lt_again_fn)(void);
#define LT_AGAIN_SYMBOL "cublaslt_standin_again"
void cublaslt_standin_again(void);
#endif
