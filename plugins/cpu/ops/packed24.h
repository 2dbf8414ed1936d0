/* SPDX-License-Identifier: MIT
 *
 * packed24.h - the weight of matmul24: panels of CPU_PANEL outputs, in a panel units of 32 columns
 * (kernels.h). Values are in one stream and codes in another, both in the order in which a product reads
 * them: for CPU_CHUNK24 panels the first block of two units each, then the second block. The codes of a mask
 * determine those of its complement: packed weights of one rank share a stream of them. Shared by
 * matmul24_pack.c and the ops over it. */
#ifndef BS_PLUGINS_CPU_OPS_PACKED24_H
#define BS_PLUGINS_CPU_OPS_PACKED24_H

#include "packed.h"

/* The words of some positions, 16 a unit. */
struct cpu_codes {
  cpu_codes *next;
  const bs_exec *exec;
  uint32_t refs;
  int64_t rows, cols;
  int64_t panels, units;
  uint64_t bytes;
  uint32_t *words; /* exec->alloc; NULL when there are none */
};

/* Panels whose sums stay in L2 while their blocks are processed: 128 KiB of 64 tokens. */
#define CPU_CHUNK24 32

static inline int64_t cpu_unit_bytes(const cpu_packed *w) {
  return (int64_t)CPU_UNIT_VALUES * CPU_PANEL * w->size;
}

/* The offset of unit `unit` of a panel, in units, of `panels` panels of `units` each. */
static inline int64_t cpu_unit_index(int64_t panels, int64_t units, int64_t panel, int64_t unit) {
  const int64_t first = panel / CPU_CHUNK24 * CPU_CHUNK24, block = unit / 2 * 2;
  const int64_t beside = panels - first < CPU_CHUNK24 ? panels - first : CPU_CHUNK24;
  const int64_t wide = units - block < 2 ? 1 : 2;
  return first * units + block * beside + (panel - first) * wide + unit - block;
}

/* The values and the codes of a unit of a panel. */
static inline uint8_t *cpu_unit_at(const cpu_packed *w, int64_t panel, int64_t unit) {
  return (uint8_t *)w->data + cpu_unit_index(w->panels, w->units, panel, unit) * cpu_unit_bytes(w);
}

static inline uint32_t *cpu_codes_at(const cpu_codes *codes, int64_t panel, int64_t unit) {
  return codes->words + cpu_unit_index(codes->panels, codes->units, panel, unit) * CPU_PANEL;
}

/* The code of a group, or of its other half. */
static inline uint32_t cpu_code_other(uint32_t code) {
  static const uint8_t others[16] = {0, 0, 0, 0, 14, 0, 0, 0, 13, 12, 0, 0, 9, 8, 4, 0};
  return others[code];
}

/* Column of value j of output n. */
static inline int64_t cpu_kept_column(const cpu_codes *codes, uint32_t other, int64_t n, int64_t j) {
  const uint32_t word = cpu_codes_at(codes, n / CPU_PANEL, j / CPU_UNIT_VALUES)[n % CPU_PANEL];
  uint32_t code = word >> (uint32_t)(j % CPU_UNIT_VALUES / 2 * 4) & 15u;
  if (other) code = cpu_code_other(code);
  return j / 2 * 4 + (int64_t)(code >> (uint32_t)(j % 2 * 2) & 3u);
}

/* Values of a row: two of each group. */
static inline int64_t cpu_kept_length(int64_t cols) {
  return (cols + 3) / 4 * 2;
}

/* Returns the stream of `kept`, which the team reads. A stream that this rank has with the same positions is
 * shared, also one with the complementary positions (*out_other: 1). BS_INVALID_ARGUMENT: a group does not
 * keep two. Release it with cpu_codes_drop (cpu.h). */
int32_t cpu_codes_take(cpu_state *state, const bs_exec *exec, const bs_kept *kept, cpu_codes **out_codes,
                       uint32_t *out_other, bs_error *err);
/* Answers NO and returns 0 if the query has no positions of a weight [rows,cols], or a partition that is not
 * a run. */
int cpu_kept_fits(const bs_op_query *query, int64_t rows, int64_t cols, bs_op_answer *answer);

#endif
