/* SPDX-License-Identifier: MIT
 * gguf_blocks.h - parts of quantised blocks that are unpacked in the same way for f32 and for whole numbers.
 * Private to formats/gguf_types.c and formats/gguf_quant.c. */
#ifndef BS_FORMATS_GGUF_BLOCKS_H
#define BS_FORMATS_GGUF_BLOCKS_H
#include <stdint.h>

/* The 12 bytes of Q4_K and Q5_K: 8 steps of the scale and 8 of the low, 6 bits each. */
void bs_gguf_steps(const unsigned char *packed, uint8_t *steps, uint8_t *low_steps);
/* The 256 codes of a block of Q6_K, -32 .. 31. */
void bs_gguf_q6_codes(const unsigned char *block, int8_t *codes);
#endif
