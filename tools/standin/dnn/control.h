/* SPDX-License-Identifier: MIT
 * control.h - what tests ask the stand-in of cuDNN, by dlsym. */
#ifndef BS_STANDIN_DNN_CONTROL_H
#define BS_STANDIN_DNN_CONTROL_H
#include <stdint.h>

typedef struct dnn_told {
  int64_t handles, descriptors; /* that live */
  uint64_t executions;
  int64_t engine; /* of the last execution */
} dnn_told;
typedef const dnn_told *(*dnn_told_fn)(void);
#define DNN_TOLD_SYMBOL "cudnn_standin_told"
const dnn_told *cudnn_standin_told(void);
/* Read BS_CUDNN_STANDIN again. */
typedef void (*dnn_again_fn)(void);
#define DNN_AGAIN_SYMBOL "cudnn_standin_again"
void cudnn_standin_again(void);
#endif
