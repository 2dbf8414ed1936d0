/* SPDX-License-Identifier: MIT
 * arm_work.h - the work of one call of an arm other than a forward: a backward, or a whole train step. The
 * gradient of Y is a constant and the learning rate zero, so the sampler may repeat the call any number of
 * times. */
#ifndef BS_LAB_MEASURE_ARM_WORK_H
#define BS_LAB_MEASURE_ARM_WORK_H
#include "lab/case/case.h"

enum bs_arm_work {
  BS_ARM_FORWARD = 0,
  BS_ARM_BACKWARD = 1, /* dX and dW of a forward that was made before */
  BS_ARM_SGD = 2,      /* forward, backward, step; SGD without momentum and decay, which makes no dW */
  BS_ARM_ADAMW = 3,
  BS_ARM_WORKS_
};

/* One rank's. */
typedef struct bs_arm_tensors {
  uint32_t work;      /* enum bs_arm_work */
  uint32_t no_values; /* 1: the backend holds none, so dy gets none */
  bs_tensor dy, dx, dw;
} bs_arm_tensors;

/* Flags of a layer that does it. */
uint32_t bs_arm_work_flags(uint32_t work);
/* Takes the tensors of tensors->work; none for a forward. For a backward it makes one forward: a layer with
 * an activation needs the values that this leaves. */
int32_t bs_arm_work_take(bs_rank *rank, bs_layer *layer, const bs_layer_spec *spec, const bs_tensor *x,
                         bs_tensor *y, bs_arm_tensors *tensors, bs_error *err);
void bs_arm_work_free(bs_rank *rank, bs_arm_tensors *tensors);
int32_t bs_arm_work_once(bs_arm_tensors *tensors, bs_layer *layer, const bs_tensor *x, bs_tensor *y,
                         bs_error *err);
#endif
