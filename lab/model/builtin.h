/* SPDX-License-Identifier: MIT
 * builtin.h - models that are made in memory, with random weights: a subject if no file is available. */
#ifndef BS_LAB_MODEL_BUILTIN_H
#define BS_LAB_MODEL_BUILTIN_H
#include "lab/model/model.h"

/* 1: the path names one: "builtin:lm" (a language model: 12 layers of 768, 12 heads, 8,192 words, 1,024
 * places; input_ids [batch, tokens]) or "builtin:vit" (an encoder of 196 patches of 768 numbers: 8 layers of
 * 512, 8 heads, 1,000 classes; patches [batch, 196, 768]). "builtin:lm:2x64" has 2 layers of 64. */
int bs_model_is_builtin(const char *path);
/* Makes its graph; the model owns the weights. BS_USAGE: an unknown name, or impossible sizes. */
int32_t bs_model_builtin(bs_context *context, const char *path, bs_model *out, bs_error *err);
#endif
