/* SPDX-License-Identifier: MIT
 * op_q.h - the weight of a query of matmul_q or take_q (op_q.c), which op_q_judge.c reads. */
#ifndef BS_KIT_OP_Q_H
#define BS_KIT_OP_Q_H
#include "core/op/quant.h"
#include "kit/graph.h"

/* What `form.read` gives; arrays that the form lacks are there too, and not read. */
typedef struct kit_q {
  bs_quant form;
  int64_t groups, spans;
  uint8_t *codes;       /* [rows][cols] */
  float *scales, *lows; /* [rows][spans] */
  uint8_t *zeros;       /* [rows][groups], as the next two */
  int8_t *steps;
  uint8_t *low_steps;
} kit_q;
#endif
