/* SPDX-License-Identifier: MIT
 * gguf_types.c - the types of tensors in a GGUF file, and their numbers in f32. A block of Q8_0, Q4_0 and
 * Q4_1 has 32 numbers and one scale. A block of Q4_K, Q5_K and Q6_K has 256, and parts with steps of 6 or 8
 * bits. Products and sums are rounded one by one, in the order of gguf.quants.dequantize. */
#include <string.h>

#include "core/base/dtype.h"
#include "formats/gguf.h"
#include "formats/gguf_blocks.h"

static const bs_gguf_type types[] = {
    {0, 1, 4, 1, "F32"},         {1, 1, 2, 1, "F16"},         {2, 32, 18, 1, "Q4_0"},
    {3, 32, 20, 1, "Q4_1"},      {6, 32, 22, 0, "Q5_0"},      {7, 32, 24, 0, "Q5_1"},
    {8, 32, 34, 1, "Q8_0"},      {9, 32, 40, 0, "Q8_1"},      {10, 256, 84, 0, "Q2_K"},
    {11, 256, 110, 0, "Q3_K"},   {12, 256, 144, 1, "Q4_K"},   {13, 256, 176, 1, "Q5_K"},
    {14, 256, 210, 1, "Q6_K"},   {15, 256, 292, 0, "Q8_K"},   {16, 256, 66, 0, "IQ2_XXS"},
    {17, 256, 74, 0, "IQ2_XS"},  {18, 256, 98, 0, "IQ3_XXS"}, {19, 256, 50, 0, "IQ1_S"},
    {20, 32, 18, 0, "IQ4_NL"},   {21, 256, 110, 0, "IQ3_S"},  {22, 256, 82, 0, "IQ2_S"},
    {23, 256, 136, 0, "IQ4_XS"}, {24, 1, 1, 0, "I8"},         {25, 1, 2, 0, "I16"},
    {26, 1, 4, 0, "I32"},        {27, 1, 8, 0, "I64"},        {28, 1, 8, 0, "F64"},
    {29, 256, 56, 0, "IQ1_M"},   {30, 1, 2, 1, "BF16"},       {34, 256, 54, 0, "TQ1_0"},
    {35, 256, 66, 0, "TQ2_0"},   {39, 32, 17, 0, "MXFP4"},    {40, 64, 36, 0, "NVFP4"},
    {41, 128, 18, 0, "Q1_0"}};

const bs_gguf_type *bs_gguf_type_of(uint32_t number) {
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    if (types[i].number == number) return &types[i];
  return NULL;
}

void bs_gguf_steps(const unsigned char *packed, uint8_t *steps, uint8_t *low_steps) {
  for (int i = 0; i < 4; i++) {
    steps[i] = packed[i] & 63;
    low_steps[i] = packed[4 + i] & 63;
    steps[4 + i] = (uint8_t)((packed[8 + i] & 15) | (packed[i] >> 2 & 48));
    low_steps[4 + i] = (uint8_t)(packed[8 + i] >> 4 | (packed[4 + i] >> 2 & 48));
  }
}

void bs_gguf_q6_codes(const unsigned char *block, int8_t *codes) {
  for (int i = 0; i < 256; i++) {
    const int half = i / 128, low = block[64 * half + i % 64] >> (4 * (i % 128 / 64)) & 15;
    const int high = block[128 + 32 * half + i % 32] >> (2 * (i % 128 / 32)) & 3;
    codes[i] = (int8_t)((low | high << 4) - 32);
  }
}

static float half_at(const unsigned char *p) {
  return bs_f16_to_f32((uint16_t)(p[0] | p[1] << 8));
}

static void q8_0(const unsigned char *p, float *out) {
  const float d = half_at(p);
  for (int i = 0; i < 32; i++) out[i] = d * (float)(int8_t)p[2 + i];
}

static void q4_0(const unsigned char *p, float *out) {
  const float d = half_at(p);
  for (int i = 0; i < 16; i++) {
    out[i] = d * (float)((p[2 + i] & 15) - 8);
    out[16 + i] = d * (float)((p[2 + i] >> 4) - 8);
  }
}

static void q4_1(const unsigned char *p, float *out) {
  const float d = half_at(p), m = half_at(p + 2);
  for (int i = 0; i < 16; i++) {
    out[i] = d * (float)(p[4 + i] & 15) + m;
    out[16 + i] = d * (float)(p[4 + i] >> 4) + m;
  }
}

/* Q4_K and, with `high` (NULL else), Q5_K. */
static void q45_k(const unsigned char *p, const unsigned char *low, const unsigned char *high, float *out) {
  const float d = half_at(p), least = half_at(p + 2);
  uint8_t steps[8], low_steps[8];
  bs_gguf_steps(p + 4, steps, low_steps);
  for (int g = 0; g < 8; g++) {
    const float scale = d * (float)steps[g], down = least * (float)low_steps[g];
    const unsigned char *codes = low + 32 * (g / 2);
    for (int i = 0; i < 32; i++) {
      const int q = (codes[i] >> 4 * (g % 2) & 15) | (high == NULL ? 0 : (high[i] >> g & 1) << 4);
      out[32 * g + i] = scale * (float)q - down;
    }
  }
}

static void q4_k(const unsigned char *p, float *out) {
  q45_k(p, p + 16, NULL, out);
}

static void q5_k(const unsigned char *p, float *out) {
  q45_k(p, p + 48, p + 16, out);
}

static void q6_k(const unsigned char *p, float *out) {
  const float d = half_at(p + 208);
  int8_t codes[256];
  bs_gguf_q6_codes(p, codes);
  for (int g = 0; g < 16; g++) {
    const float scale = d * (float)(int8_t)p[192 + g];
    for (int i = 0; i < 16; i++) out[16 * g + i] = scale * (float)codes[16 * g + i];
  }
}

static void halves(const unsigned char *p, uint64_t count, int is_f16, float *out) {
  for (uint64_t i = 0; i < count; i++) {
    const uint16_t h = (uint16_t)(p[2 * i] | p[2 * i + 1] << 8);
    out[i] = is_f16 ? bs_f16_to_f32(h) : bs_bf16_to_f32(h);
  }
}

void bs_gguf_dequantize(uint32_t type, const void *blocks, uint64_t count, float *out) {
  void (*one)(const unsigned char *p, float *out) = q8_0;
  const bs_gguf_type *t = bs_gguf_type_of(type);
  const unsigned char *p = blocks;
  switch (type) {
    case BS_GGUF_F32:
      memcpy(out, blocks, (size_t)count * sizeof *out);
      return;
    case BS_GGUF_F16:
    case BS_GGUF_BF16:
      halves(p, count, type == BS_GGUF_F16, out);
      return;
    case BS_GGUF_Q4_0:
      one = q4_0;
      break;
    case BS_GGUF_Q4_1:
      one = q4_1;
      break;
    case BS_GGUF_Q4_K:
      one = q4_k;
      break;
    case BS_GGUF_Q5_K:
      one = q5_k;
      break;
    case BS_GGUF_Q6_K:
      one = q6_k;
      break;
    default:
      break;
  }
  for (uint64_t i = 0; i < count; i += t->block, p += t->bytes) one(p, out + i);
}
