/* SPDX-License-Identifier: MIT
 * quant.h - the packed weight of matmul_q and take_q on ref: what bs_quant.read gives, a byte a code. */
#ifndef BS_PLUGIN_REF_QUANT_H
#define BS_PLUGIN_REF_QUANT_H
#include "../ref.h"

typedef struct ref_quant {
  const bs_host *host;
  const bs_exec *exec;
  bs_quant form; /* read and ctx are NULL */
  int64_t groups, spans;
  uint8_t *codes;       /* [rows][cols] */
  float *scales, *lows; /* [rows][spans] */
  uint8_t *zeros;       /* [rows][groups], as the next two; NULL where the form lacks them */
  int8_t *steps;
  uint8_t *low_steps;
} ref_quant;

int32_t ref_quant_pack(void *state, const bs_exec *exec, const bs_op_query *query, const bs_source *weights,
                       void **out_packed, uint64_t *out_bytes, bs_error *err);
int32_t ref_quant_packed_read(void *packed, int64_t row, bs_tensor *out, bs_error *err);
void ref_quant_free(void *packed);
/* The zero of group g, the scale and the low of it, of row n; steps are multiplied, each product rounded. */
int32_t ref_quant_zero(const ref_quant *w, int64_t n, int64_t g);
float ref_quant_scale(const ref_quant *w, int64_t n, int64_t g);
float ref_quant_low(const ref_quant *w, int64_t n, int64_t g);
/* out[0..count) = elements first .. of row n in f32: fl(fl(scale (q - zero)) - low). */
void ref_quant_row(const ref_quant *w, int64_t n, int64_t first, int64_t count, float *out);
/* BS_INVALID_ARGUMENT unless the weight has the form of the query. */
int32_t ref_quant_check(const bs_op_query *query, const ref_quant *w, bs_error *err);
#endif
