/* SPDX-License-Identifier: MIT
 * gguf_quant.c - blocks of GGUF as rows of codes, scales, lows and steps (gguf_quant.h). Codes that the file
 * has with a sign are moved up by the zero of the form. Called by the importer of models. */
#include "formats/gguf_quant.h"

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "formats/gguf_blocks.h"

/* Where one block of a row goes: its first code, scale, low and steps. */
typedef struct place {
  uint8_t *codes;
  float *scale, *low;
  int8_t *steps;
  uint8_t *low_steps;
} place;

static float half_at(const unsigned char *p) {
  return bs_f16_to_f32((uint16_t)(p[0] | p[1] << 8));
}

static void nibbles(const unsigned char *p, int n, uint8_t *low, uint8_t *high) {
  for (int i = 0; i < n; i++) {
    low[i] = p[i] & 15;
    high[i] = p[i] >> 4;
  }
}

static void q8_0(const unsigned char *p, const place *to) {
  *to->scale = half_at(p);
  for (int i = 0; i < 32; i++) to->codes[i] = p[2 + i] ^ 128;
}

static void q4_0(const unsigned char *p, const place *to) {
  *to->scale = half_at(p);
  nibbles(p + 2, 16, to->codes, to->codes + 16);
}

static void q4_1(const unsigned char *p, const place *to) {
  *to->scale = half_at(p);
  *to->low = -half_at(p + 2);
  nibbles(p + 4, 16, to->codes, to->codes + 16);
}

static void head_k(const unsigned char *p, const place *to) {
  uint8_t steps[8];
  *to->scale = half_at(p);
  *to->low = half_at(p + 2);
  bs_gguf_steps(p + 4, steps, to->low_steps);
  for (int g = 0; g < 8; g++) to->steps[g] = (int8_t)steps[g]; /* at most 63 */
}

static void q4_k(const unsigned char *p, const place *to) {
  head_k(p, to);
  for (int g = 0; g < 8; g += 2) nibbles(p + 16 + 16 * g, 32, to->codes + 32 * g, to->codes + 32 * g + 32);
}

static void q5_k(const unsigned char *p, const place *to) {
  head_k(p, to);
  for (int g = 0; g < 8; g += 2) nibbles(p + 48 + 16 * g, 32, to->codes + 32 * g, to->codes + 32 * g + 32);
  for (int i = 0; i < 256; i++) to->codes[i] |= (uint8_t)((p[16 + i % 32] >> (i / 32) & 1) << 4);
}

static void q6_k(const unsigned char *p, const place *to) {
  int8_t codes[256];
  *to->scale = half_at(p + 208);
  for (int g = 0; g < 16; g++) to->steps[g] = (int8_t)p[192 + g];
  bs_gguf_q6_codes(p, codes);
  for (int i = 0; i < 256; i++) to->codes[i] = (uint8_t)(codes[i] + 32);
}

static const struct form {
  uint32_t type, bits, flags;
  int32_t zero;
  int64_t group;
  void (*read)(const unsigned char *block, const place *to);
} forms[] = {{BS_GGUF_Q8_0, 8, 0, 128, 32, q8_0},
             {BS_GGUF_Q4_0, 4, 0, 8, 32, q4_0},
             {BS_GGUF_Q4_1, 4, BS_QUANT_LOWS, 0, 32, q4_1},
             {BS_GGUF_Q4_K, 4, BS_QUANT_LOWS | BS_QUANT_STEPS, 0, 32, q4_k},
             {BS_GGUF_Q5_K, 6, BS_QUANT_LOWS | BS_QUANT_STEPS, 0, 32, q5_k},
             {BS_GGUF_Q6_K, 6, BS_QUANT_STEPS, 32, 16, q6_k}};

static const struct form *form_of(uint32_t type) {
  for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
    if (forms[i].type == type) return &forms[i];
  return NULL;
}

static int32_t read_rows(void *ctx, int64_t row, int64_t nrows, const bs_quant_rows *out, bs_error *err) {
  const bs_gguf_rows *t = ctx;
  const struct form *form = form_of(t->type->number);
  if (row < 0 || nrows < 0 || nrows > t->rows - row)
    return bs_error_set(err, BS_INVALID_ARGUMENT, "BS-GGUF-ROW", "rows %lld.. of a tensor of %lld rows",
                        (long long)row, (long long)t->rows);
  const int64_t block = (int64_t)t->type->block, blocks = t->cols / block, groups = block / form->group;
  const unsigned char *p = t->blocks + row * blocks * (int64_t)t->type->bytes;
  for (int64_t r = 0; r < nrows; r++)
    for (int64_t i = 0; i < blocks; i++, p += t->type->bytes) {
      const int64_t at = r * blocks + i;
      const place to = {.codes = out->codes + r * out->codes_stride + i * block,
                        .scale = out->scales + at,
                        .low = form->flags & BS_QUANT_LOWS ? out->lows + at : NULL,
                        .steps = form->flags & BS_QUANT_STEPS ? out->steps + at * groups : NULL,
                        .low_steps = form->flags & BS_QUANT_STEPS && form->flags & BS_QUANT_LOWS
                                         ? out->low_steps + at * groups
                                         : NULL};
      form->read(p, &to);
    }
  return BS_OK;
}

int bs_gguf_quant(const bs_gguf_tensor *tensor, bs_gguf_rows *out_rows, bs_quant *out_quant) {
  const struct form *form = form_of(tensor->type->number);
  if (form == NULL || tensor->rank != 2) return 0;
  *out_rows = (bs_gguf_rows){tensor->data, tensor->type, tensor->dims[0], tensor->dims[1]};
  *out_quant = (bs_quant){.struct_size = (uint32_t)sizeof *out_quant,
                          .bits = form->bits,
                          .flags = form->flags,
                          .zero = form->zero,
                          .rows = tensor->dims[0],
                          .cols = tensor->dims[1],
                          .group = form->group,
                          .span = form->flags & BS_QUANT_STEPS ? tensor->type->block : form->group,
                          .ctx = out_rows,
                          .read = read_rows};
  return 1;
}
