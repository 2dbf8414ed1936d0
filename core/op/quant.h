/* SPDX-License-Identifier: MIT
 * quant.h - the forms of quantised matrices (bs_quant of tensor.h): their rules, their sizes, their names.
 * Pure and thread-safe. */
#ifndef BS_CORE_OP_QUANT_H
#define BS_CORE_OP_QUANT_H
#include "blockshock/blockshock.h"

/* Room for bs_quant_text. */
enum { BS_QUANT_TEXT = 40 };

/* Does the op take the form of a quantised weight (bs_op_query.quant)? */
BS_API int bs_op_takes_quant(const char *op);
/* Groups and spans of a row. */
BS_API int64_t bs_quant_groups(const bs_quant *quant);
BS_API int64_t bs_quant_spans(const bs_quant *quant);
/* Bytes of the codes, scales (as f32), zeros, lows and steps of the whole matrix, without padding; saturates
 * at UINT64_MAX. */
BS_API uint64_t bs_quant_bytes(const bs_quant *quant);
/* 1: both have the same rows, columns, bits, flags, zero, group and span. */
BS_API int bs_quant_same_form(const bs_quant *a, const bs_quant *b);
/* BS_INVALID_ARGUMENT, BS-OP-QUANT: the form breaks a rule of tensor.h. `read` may be NULL. */
BS_API int32_t bs_quant_check(const bs_quant *quant, const char *op, bs_error *err);
/* The form of a scheme for a matrix [rows,cols]; `read` and ctx are NULL. BS_INVALID_ARGUMENT,
 * BS-QUANT-SCHEME: no such scheme; the hint lists them. Schemes: w8 (one scale a row), w8gG, w4gG (a scale
 * for G columns), w4zG (with zeros), w4k (Q4_K of GGUF), w6k (Q6_K); G is 16, 32, 64, 128 or 256. */
BS_API int32_t bs_quant_scheme(const char *name, int64_t rows, int64_t cols, bs_quant *out_form,
                               bs_error *err);
/* "q8.row", "q4.g32", "q4.g32z" (zeros), "q4.g32l" (lows), "q4.g32s256l" (steps, lows): for keys and tables.
 */
BS_API void bs_quant_text(const bs_quant *quant, char out[BS_QUANT_TEXT]);
/* Rounds `nrows` rows of floats, each `stride` elements apart, to the nearest numbers of a form (quant.c's
 * schemes): fills out's arrays, row 0 first, and pays no attention to form->read. Scales and lows are rounded
 * to f16 where that changes them by less than 1/256, and codes are made with the rounded ones: nearest, ties
 * to even. A group with a NaN or an infinity gets the scale NaN. Without ZEROS and LOWS codes lie around the
 * zero of the form; with steps the scales of the groups are fitted once by least squares. */
BS_API void bs_quant_round(const bs_quant *form, const float *rows, int64_t stride, int64_t nrows,
                           const bs_quant_rows *out);
#endif
