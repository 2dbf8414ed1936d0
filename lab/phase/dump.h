/* SPDX-License-Identifier: MIT
 * dump.h - `--to DIR`: X, W, bias, each rank's partial and Y as .npy, so that anyone can check a run with
 * NumPy. 16- and 8-bit floats are widened to f32, which holds them exactly. */
#ifndef BS_LAB_PHASE_DUMP_H
#define BS_LAB_PHASE_DUMP_H
#include "lab/case/case.h"

typedef struct bs_dump bs_dump;
/* Makes DIR if need be; files of an earlier dump are replaced one by one. */
int32_t bs_dump_open(const char *dir, const char *method, int64_t tokens, uint32_t world_size,
                     bs_dump **out_dump, bs_error *err);
/* Captures the input of each rank to the exchange that makes y (site "METHOD.y", in parts if it is divided):
 * its partial sum (K-split) or its own features (N-split). A sum in int8 steps, whose terms are sent as codes
 * and scales, is not captured. */
const bs_collective_hook *bs_dump_hook(bs_dump *dump);
/* Writes x.npy, w.npy, bias.npy, partial_rank<r>.npy (if a collective ran), y_rank<r>.npy and
 * columns_rank<r>.npy. */
int32_t bs_dump_write(bs_dump *dump, const bs_case *c, const bs_case_result *result, bs_error *err);
void bs_dump_close(bs_dump *dump);
#endif
