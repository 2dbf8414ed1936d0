/* SPDX-License-Identifier: MIT
 * control.h - what tests ask the stand-in of cuSPARSELt, by dlsym. */
#ifndef BS_STANDIN_SPLT_CONTROL_H
#define BS_STANDIN_SPLT_CONTROL_H
#include <stdint.h>

typedef struct splt_told {
  int64_t handles;     /* that live */
  int64_t living;      /* descriptors, selections and plans that do */
  uint64_t products;   /* asked for */
  uint64_t compressed; /* weights */
  uint64_t plans;      /* made */
  int64_t last_algorithm;
  uint64_t last_workspace; /* bytes that the last product's plan wants */
  uint64_t dropped;        /* zeros of all compressed weights whose places the stand-in chose */
  double clock;            /* milliseconds of all products */
} splt_told;
typedef const splt_told *(*splt_told_fn)(void);
#define SPLT_TOLD_SYMBOL "cusparselt_standin_told"
const splt_told *cusparselt_standin_told(void);
/* Read BS_CUSPARSELT_STANDIN again, and count plans from 0 again. */
typedef void (*splt_again_fn)(void);
#define SPLT_AGAIN_SYMBOL "cusparselt_standin_again"
void cusparselt_standin_again(void);
#endif
