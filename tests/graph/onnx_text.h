/* SPDX-License-Identifier: MIT
 * onnx_text.h - ONNX models for tests, written in ONNX's own text syntax (what onnx.printer.to_text prints
 * and onnx.parser reads) and made into the bytes of a .onnx file in memory. Anything may be given: what is
 * not the syntax is an error, never a crash, so that a fuzzer of the reader can go through it. <ir_version:
 * 10, opset_import: ["" : 23]> g (float[N,4] x) => (float[N,4] y) <float[4] w = {1, 2, nan, -inf}> { y = Add
 * <axis: int = 1> (x, w) } */
#ifndef BS_TESTS_GRAPH_ONNX_TEXT_H
#define BS_TESTS_GRAPH_ONNX_TEXT_H
#include <stddef.h>
#include <stdint.h>

enum { ONNX_TEXT_RAW = 1 /* elements of tensors into raw_data instead of the field of their type */ };

/* The bytes of a model, to be freed. 0: `why` says what was seen and at which byte of the text. */
int onnx_text(const char *text, uint32_t flags, unsigned char **out_bytes, size_t *out_size, char *why,
              size_t why_size);
/* The bytes of one tensor ("float[2] x = {1, 2}"), as in a .pb file; *text advances behind it. */
int onnx_text_tensor(const char **text, uint32_t flags, unsigned char **out_bytes, size_t *out_size,
                     char *why, size_t why_size);
#endif
