/* SPDX-License-Identifier: MIT
 *
 * columns.h - picking and spreading the columns of a partition in one row; used by gather_columns,
 * scatter_columns and by the matmul that picks while it packs X. */
#ifndef BS_PLUGINS_CPU_COLUMNS_H
#define BS_PLUGINS_CPU_COLUMNS_H

#include "cpu.h"

/* Everything that does not depend on the row. `partition` must outlive it. */
typedef struct cpu_columns {
  const cpu_kernels *kernels;
  const bs_partition *partition;
  uint32_t size; /* bytes of an element: 1, 2, 4, 8 */
  cpu_pick pick; /* group 0: no pattern kernel */
} cpu_columns;

void cpu_columns_make(const cpu_kernels *kernels, const bs_partition *partition, uint32_t size,
                      cpu_columns *out_columns);
/* dst[i] = row[column first + i], i < count. */
void cpu_columns_gather(const cpu_columns *columns, int64_t first, int64_t count, void *dst, const void *row);
/* row[column first + i] = src[i]; writes no other column. */
void cpu_columns_scatter(const cpu_columns *columns, int64_t first, int64_t count, void *row,
                         const void *src);

#endif
