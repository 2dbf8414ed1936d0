/* SPDX-License-Identifier: MIT
 * dtype.h - names, sizes and correctly rounded conversions (nearest even). NaN stays NaN (quiet, sign
 * kept); overflow goes to infinity (f16, bf16, f8e5m2) or saturates to 448 (f8e4m3, OCP saturating
 * mode; infinities too); subnormals are kept; float -> integer rounds to nearest even and saturates, NaN ->
 * 0. Sources: IEEE 754-2019; OCP 8-bit Floating Point Specification 1.0. */
#ifndef BS_CORE_BASE_DTYPE_H
#define BS_CORE_BASE_DTYPE_H
#include "blockshock/blockshock.h"

BS_API float bs_f16_to_f32(uint16_t h);
BS_API uint16_t bs_f32_to_f16(float f);
BS_API float bs_bf16_to_f32(uint16_t h);
BS_API uint16_t bs_f32_to_bf16(float f);
BS_API float bs_f8e4m3_to_f32(uint8_t v);
BS_API uint8_t bs_f32_to_f8e4m3(float f);
BS_API float bs_f8e5m2_to_f32(uint8_t v);
BS_API uint8_t bs_f32_to_f8e5m2(float f);
/* Directly from f64, rounded once. */
BS_API uint16_t bs_f64_to_f16(double d);
BS_API uint16_t bs_f64_to_bf16(double d);
/* Puts the names of dtypes in the place of their codes ("0x0220" becomes "f32"): a plugin has no table of
 * names, and writes codes into its messages. */
BS_API void bs_dtype_name_codes(char *text);
BS_API int bs_dtype_is_float(uint32_t dtype);
BS_API int bs_dtype_known(uint32_t dtype);
/* The elements of a tensor in row-major order, each converted to `dtype`, into dense memory. */
BS_API void bs_read_dense(uint32_t dtype, void *out, const bs_tensor *tensor);
/* Unit round-off u of a float dtype (f32: 2^-24), 0 for integers. */
BS_API double bs_dtype_unit_roundoff(uint32_t dtype);
/* One element as double / from double (rounded once). */
BS_API double bs_load_f64(uint32_t dtype, const void *base, int64_t index);
BS_API void bs_store_f64(uint32_t dtype, void *base, int64_t index, double value);
#endif
