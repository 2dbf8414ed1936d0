/* SPDX-License-Identifier: MIT
 *
 * columns.c - one row of gather_columns and scatter_columns: a run is a copy, a pattern that fits a vector
 * goes to the pattern kernel, anything else follows the list. */
#include "../columns.h"

/* Columns of one step of the pattern kernels: what one permutation can pick from. */
static uint32_t group_of(uint32_t size) {
  return size == 8 ? 4 : size == 4 ? 8 : size == 2 ? 8 : 16;
}

/* The list decides; a period that does not describe it is ignored. */
static int list_repeats(const bs_partition *p) {
  const int64_t end = p->begin + p->span;
  int64_t i = 0;
  if (p->begin < 0 || p->span < 0 || end > p->total || p->period > 32) return 0;
  for (int64_t k = p->begin; k < end; k++) {
    if (!(p->pattern_bits >> (k % p->period) & 1u)) continue;
    if (i >= p->count || (int64_t)p->columns[i] != k) return 0;
    i++;
  }
  return i == p->count;
}

static void put_lane(uint8_t *bytes, uint32_t lane, uint32_t value) {
  memcpy(bytes + 4 * (size_t)lane, &value, sizeof value);
}

static void fill_lanes(cpu_pick *pick, uint32_t words) {
  for (uint32_t j = 0; j < pick->kept; j++)
    for (uint32_t h = 0; h < words; h++) {
      const uint32_t from = pick->index[j] * words + h, to = j * words + h;
      put_lane(pick->shuffle, to, from);
      put_lane(pick->expand, from, to);
      put_lane(pick->mask, from, 0xffffffffu);
    }
}

void cpu_columns_make(const cpu_kernels *kernels, const bs_partition *partition, uint32_t size,
                      cpu_columns *out_columns) {
  cpu_pick *pick = &out_columns->pick;
  const uint32_t group = group_of(size), period = partition->period;
  memset(out_columns, 0, sizeof *out_columns);
  out_columns->kernels = kernels;
  out_columns->partition = partition;
  out_columns->size = size;
  if (partition->kind != BS_PARTITION_GATHER || kernels->gather == NULL) return;
  if (period == 0 || group % period != 0 || !list_repeats(partition)) return;
  for (uint32_t j = 0; j < group; j++)
    if (partition->pattern_bits >> (j % period) & 1u) pick->index[pick->kept++] = (uint8_t)j;
  if (pick->kept == 0) return;
  pick->group = group;
  if (size >= 4) {
    fill_lanes(pick, size / 4);
    return;
  }
  memset(pick->shuffle, 0x80, sizeof pick->shuffle);
  for (uint32_t j = 0; j < pick->kept; j++)
    for (uint32_t b = 0; b < size; b++) pick->shuffle[j * size + b] = (uint8_t)(pick->index[j] * size + b);
}

static void gather_list(uint32_t size, const uint32_t *columns, int64_t count, void *dst, const void *row) {
  if (size == 1)
    for (int64_t i = 0; i < count; i++) ((uint8_t *)dst)[i] = ((const uint8_t *)row)[columns[i]];
  else if (size == 2)
    for (int64_t i = 0; i < count; i++) ((uint16_t *)dst)[i] = ((const uint16_t *)row)[columns[i]];
  else if (size == 4)
    for (int64_t i = 0; i < count; i++) ((uint32_t *)dst)[i] = ((const uint32_t *)row)[columns[i]];
  else
    for (int64_t i = 0; i < count; i++) ((uint64_t *)dst)[i] = ((const uint64_t *)row)[columns[i]];
}

static void scatter_list(uint32_t size, const uint32_t *columns, int64_t count, void *row, const void *src) {
  if (size == 1)
    for (int64_t i = 0; i < count; i++) ((uint8_t *)row)[columns[i]] = ((const uint8_t *)src)[i];
  else if (size == 2)
    for (int64_t i = 0; i < count; i++) ((uint16_t *)row)[columns[i]] = ((const uint16_t *)src)[i];
  else if (size == 4)
    for (int64_t i = 0; i < count; i++) ((uint32_t *)row)[columns[i]] = ((const uint32_t *)src)[i];
  else
    for (int64_t i = 0; i < count; i++) ((uint64_t *)row)[columns[i]] = ((const uint64_t *)src)[i];
}

/* Split first..first+count of the list: `head` columns up to where a group starts, then whole groups
 * inside the partition's span, which may be none. */
static int64_t split(const cpu_columns *c, int64_t first, int64_t count, int64_t *out_head) {
  const bs_partition *p = c->partition;
  const cpu_pick *pick = &c->pick;
  int64_t head = 0;
  if (pick->group == 0) {
    *out_head = count;
    return 0;
  }
  while (head < count && (p->columns[first + head] % pick->group != pick->index[0] ||
                          (int64_t)p->columns[first + head] - pick->index[0] < p->begin))
    head++;
  *out_head = head;
  if (head == count) return 0;
  const int64_t base = (int64_t)p->columns[first + head] - pick->index[0];
  const int64_t by_list = (count - head) / pick->kept, by_span = (p->begin + p->span - base) / pick->group;
  return by_list < by_span ? by_list : by_span;
}

void cpu_columns_gather(const cpu_columns *c, int64_t first, int64_t count, void *dst, const void *row) {
  const bs_partition *p = c->partition;
  const size_t size = c->size;
  int64_t head = 0;
  if (count <= 0) return;
  if (p->kind == BS_PARTITION_CONTIGUOUS) {
    memcpy(dst, (const uint8_t *)row + (size_t)(p->begin + first) * size, (size_t)count * size);
    return;
  }
  const uint32_t *list = p->columns + first;
  const int64_t groups = split(c, first, count, &head);
  gather_list(c->size, list, head, dst, row);
  if (groups > 0) {
    c->kernels->gather(&c->pick, c->size, (uint8_t *)dst + (size_t)head * size,
                       (const uint8_t *)row + (size_t)(list[head] - c->pick.index[0]) * size, groups);
    head += groups * c->pick.kept;
  }
  gather_list(c->size, list + head, count - head, (uint8_t *)dst + (size_t)head * size, row);
}

void cpu_columns_scatter(const cpu_columns *c, int64_t first, int64_t count, void *row, const void *src) {
  const bs_partition *p = c->partition;
  const size_t size = c->size;
  int64_t head = 0;
  if (count <= 0) return;
  if (p->kind == BS_PARTITION_CONTIGUOUS) {
    memcpy((uint8_t *)row + (size_t)(p->begin + first) * size, src, (size_t)count * size);
    return;
  }
  const uint32_t *list = p->columns + first;
  const int64_t groups = split(c, first, count, &head);
  scatter_list(c->size, list, head, row, src);
  if (groups > 0) {
    c->kernels->scatter(&c->pick, c->size, (uint8_t *)row + (size_t)(list[head] - c->pick.index[0]) * size,
                        (const uint8_t *)src + (size_t)head * size, groups);
    head += groups * c->pick.kept;
  }
  scatter_list(c->size, list + head, count - head, row, (const uint8_t *)src + (size_t)head * size);
}
