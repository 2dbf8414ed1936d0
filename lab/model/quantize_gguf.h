/* SPDX-License-Identifier: MIT
 * quantize_gguf.h - a folder of Hugging Face as one GGUF file, its weights in blocks, its tokenizer with it.
 */
#ifndef BS_LAB_MODEL_QUANTIZE_GGUF_H
#define BS_LAB_MODEL_QUANTIZE_GGUF_H
#include "lab/model/quantize.h"

/* request->from is a folder, request->to the file; schemes: w8g32 (Q8_0), w4g32 (Q4_0), w4k (Q4_K), w6k
 * (Q6_K), float. A table of embeddings is rounded where a product reads it too, or where a pattern other than
 * "*" names it, as bs_session_options.weights does. *out as bs_model_quantize gives it. BS_UNSUPPORTED:
 * BS-GGUF-ARCH and BS-GGUF-CONFIG (a model that the format, or its reader here, does not have),
 * BS-GGUF-TOKENIZER. */
int32_t bs_model_quantize_gguf(const bs_quantize_request *request, json_t **out, bs_error *err);
#endif
