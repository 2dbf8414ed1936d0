/* SPDX-License-Identifier: MIT
 * blocklist.c - the rows are of NVIDIA's release notes and of issues of
 * cudnn-frontend; the last ones are what this plugin does not describe to the library. A version that is too
 * old altogether is library.c's. */
#include "blocklist.h"

#include <stddef.h>

#include "../ops/attention.h"

enum { FIRST = 0, LAST = 99999 };
const cuda_dnn_block cuda_dnn_blocklist[] = {
    {91000, 91001, BS_BF16, 0, BS_REASON_LIB_VERSION, "bf16 is wrong in 9.10.0 and 9.10.1"},
    {91000, 91000, BS_F8E4M3, 0, BS_REASON_LIB_VERSION, "fp8 is wrong in 9.10.0"},
    {91000, 91000, BS_F8E5M2, 0, BS_REASON_LIB_VERSION, "fp8 is wrong in 9.10.0"},
    {91400, 91400, 0, DNN_WINDOW, BS_REASON_LIB_VERSION, "windows are wrong in 9.14.0"},
    {FIRST, 91499, 0, DNN_LENGTHS, BS_REASON_LIB_VERSION, "lengths of sequences came with 9.15"},
    {FIRST, 92099, 0, DNN_CAUSAL | DNN_CAUSAL_LOWER | DNN_MASK | DNN_STATS, BS_REASON_LIB_VERSION,
     "causal masks, bias and LSE came with 9.21"},
    {FIRST, LAST, BS_F8E4M3, 0, BS_REASON_NOT_BUILT,
     "fp8: its output would be fp8, and causal_br and bias are none"},
    {FIRST, LAST, BS_F8E5M2, 0, BS_REASON_NOT_BUILT,
     "fp8: its output would be fp8, and causal_br and bias are none"},
    {FIRST, LAST, 0, DNN_SOFTCAP | DNN_WINDOW | DNN_ZEROS, BS_REASON_NOT_BUILT,
     "softcap and windows, and zeros for NaN"},
    {FIRST, LAST, 0, DNN_CAUSAL | DNN_CAUSAL_LOWER | DNN_MASK | DNN_STATS | DNN_LENGTHS, BS_REASON_NOT_BUILT,
     "causal masks, bias, lengths and LSE"},
};
const uint32_t cuda_dnn_blocked = sizeof cuda_dnn_blocklist / sizeof cuda_dnn_blocklist[0];

uint32_t cuda_dnn_features(const bs_op_query *q) {
  const cuda_attend of = cuda_attend_of(q);
  uint32_t f = 0;
  if (of.causal == BS_CAUSAL_UPPER_LEFT) f |= DNN_CAUSAL;
  if (of.causal == BS_CAUSAL_LOWER_RIGHT) f |= DNN_CAUSAL_LOWER;
  if (of.left > 0 || of.right > 0) f |= DNN_WINDOW;
  if (q->args[CUDA_ATTEND_MASK] != NULL) f |= DNN_MASK;
  if (q->args[CUDA_ATTEND_LENGTHS] != NULL) f |= DNN_LENGTHS;
  if (q->args[CUDA_ATTEND_LSE] != NULL) f |= DNN_STATS;
  if (of.softcap > 0.0) f |= DNN_SOFTCAP;
  if (of.nan_gives_0 != 0) f |= DNN_ZEROS;
  return f;
}

const cuda_dnn_block *cuda_dnn_block_of(int64_t version, uint32_t dtype, uint32_t features) {
  for (uint32_t i = 0; i < cuda_dnn_blocked; i++) {
    const cuda_dnn_block *b = &cuda_dnn_blocklist[i];
    if (version < b->from || version > b->to) continue;
    if (b->dtype != 0 && b->dtype != dtype) continue;
    if (b->features == 0 || (b->features & features) != 0) return b;
  }
  return NULL;
}
