/* SPDX-License-Identifier: MIT
 * op_grid.c - the generated queries of an op. Corners come first (nothing, one, primes, one next to a power
 * of two, large), then queries drawn by a seed, the same for every plugin; then sizes at which kernels have
 * edges. All follow the schema's rules. */
#include "kit/graph.h"

static const uint32_t floats[] = {BS_F32, BS_BF16, BS_F16, BS_F64, BS_F8E4M3, BS_F8E5M2};
static const uint32_t integers_[] = {BS_I8, BS_U8, BS_I32, BS_I64};
static const uint32_t all[] = {BS_F32, BS_BF16, BS_F16, BS_F64, BS_F8E4M3, BS_F8E5M2,
                               BS_I8,  BS_U8,   BS_I32, BS_I64, BS_BOOL};
static const int64_t sizes[] = {0, 1, 2, 3, 5, 7, 8, 13, 16, 17, 31, 32, 33, 61, 64, 97, 128};
#define PICK(seed, list) (list)[kit_below((seed), (int64_t)(sizeof(list) / sizeof(list)[0]))]

static const int64_t corners[][3] = {{4, 8, 16},   {1, 1, 1},    {0, 5, 7},    {5, 0, 7},   {5, 7, 0},
                                     {0, 0, 0},    {7, 13, 31},  {17, 33, 65}, {1, 97, 61}, {2, 1, 4099},
                                     {3, 67, 257}, {1, 1031, 3}, {67, 5, 127}};
enum { N_CORNERS = sizeof corners / sizeof corners[0] };

/* Products with more than one block of tokens, outputs or columns, each with a rest. The last has too many
 * sums for the oracle of 2:4 weights. */
static const int64_t blocks[][3] = {{97, 70, 513},  {200, 33, 770},  {6, 1030, 256}, {257, 40, 530},
                                    {130, 530, 35}, {1, 1100, 1500}, {2, 530, 1043}, {5, 40, 2600},
                                    {4, 1300, 8},   {100, 530, 300}};
enum { N_BLOCKS = sizeof blocks / sizeof blocks[0], N_LARGE = 1, N_TILES = 26 };
/* The other ops get rows so long that the threads of a team share one. */
static const int64_t long_rows[][3] = {{9, 4099, 40001}, {3, 40001, 4099}, {5, 8191, 16385}};
enum { N_LONG = sizeof long_rows / sizeof long_rows[0] };

uint32_t kit_grid_size(void) {
  return kit_full() ? 1200 : 90;
}

static int is_product(const char *op) {
  return strncmp(op, "matmul", 6) == 0;
}

static int has_long_rows(const char *op) {
  return strstr(op, "_columns") != NULL || strcmp(op, "convert") == 0 || strncmp(op, "activate", 8) == 0 ||
         strcmp(op, "tree_sum") == 0;
}

static uint32_t blocks_of(const char *op) {
  return strncmp(op, "matmul24", 8) == 0 ? N_BLOCKS - N_LARGE : N_BLOCKS;
}

/* The quick kit takes one edge in so many. 7 covers every dtype and every kind of edge of a product, 5 a long
 * row with gaps; of a quantised weight there are many forms. */
static uint32_t edge_step(const char *op) {
  return kit_full() || kit.options->edges ? 1 : kit_is_q(op) ? 3 : is_product(op) ? 7 : 5;
}

/* The edges of an op; products of integers have the blocks alone. */
static uint32_t edges_of(const char *op, int integers) {
  if (is_product(op) && integers) return blocks_of(op);
  return is_product(op) ? 2 * blocks_of(op) + 9 * N_TILES : has_long_rows(op) ? 2 * N_LONG : 0;
}

/* Edge number e: every block, again with some columns of a whole X, then every number of tokens, outputs and
 * columns of a tile, in each of three dtypes, with four, two and one panels of 16. */
static void edge_sizes(kit_shape *s, const char *op, uint32_t e) {
  const int64_t *of = is_product(op) ? blocks[e % blocks_of(op)] : long_rows[e % N_LONG];
  static const int64_t columns[] = {37, 100, 264, 300}; /* of quantised weights: several groups, and a rest */
  int64_t tile[3] = {5, 112, 112};
  s->x_full = is_product(op) && e >= blocks_of(op) && e < 2 * blocks_of(op);
  if (is_product(op) && e >= 2 * blocks_of(op)) {
    e -= 2 * blocks_of(op);
    tile[e / 3 / N_TILES] = 1 + e / 3 % N_TILES;
    if (e / 3 / N_TILES == 0) tile[2] = kit_is_q(op) ? columns[e % 4] : 5 + e % 4;
    of = tile;
  }
  s->B = of[0];
  s->N = of[1];
  s->K = of[2];
  if (s->x_full) s->part = s->K > 1000 ? KIT_LIST : KIT_PATTERN;
}

static void draw_sizes(kit_shape *s, uint32_t i, uint64_t *seed) {
  if (i < 2 * N_CORNERS) { /* once in the first dtype, once in drawn ones */
    s->B = corners[i % N_CORNERS][0];
    s->N = corners[i % N_CORNERS][1];
    s->K = corners[i % N_CORNERS][2];
    return;
  }
  do {
    s->B = PICK(seed, sizes);
    s->N = PICK(seed, sizes);
    s->K = PICK(seed, sizes);
  } while (s->B * s->N * s->K > 300000);
  if (i % 30 == 29) s->K = 1009 + kit_below(seed, 1100); /* large */
}

static void draw_floats(kit_shape *s, uint64_t *seed) {
  s->x = s->w = s->y = PICK(seed, floats);
  if (kit_below(seed, 3) > 0) return;
  s->y = PICK(seed, floats);
  if (kit_below(seed, 2) == 0) s->w = PICK(seed, floats);
}

/* Every third of bytes to i32, for which there are kernels. */
static int of_bytes(uint32_t i) {
  return i % 3 == 2;
}

static void draw_integers(kit_shape *s, uint32_t i, uint64_t *seed) {
  s->x = PICK(seed, integers_);
  s->w = PICK(seed, integers_);
  s->y = kit_below(seed, 2) == 0 ? BS_I32 : BS_I64;
  if (of_bytes(i)) s->x = s->w = BS_I8, s->y = BS_I32;
}

/* The number of activations; for integers none and relu. */
static int64_t activations(int integers) {
  return integers ? 2 : BS_ACT_GELU_TANH + 1;
}

static void draw_epilogue(kit_shape *s, int integers, uint64_t *seed) {
  if (kit_below(seed, 3) == 0) s->bias = integers ? PICK(seed, integers_) : s->x;
  if (kit_below(seed, 4) == 0) s->residual = integers ? PICK(seed, integers_) : s->y;
  if (kit_below(seed, 3) == 0) s->activation = (uint32_t)kit_below(seed, activations(integers));
}

/* Adapts dtypes to the derivative ops; 0: there is no such query. */
static int fit_dtypes(const char *op, kit_shape *s, uint32_t i, int integers, uint64_t *seed) {
  if (kit_graph_find(op) != NULL) {
    if (strcmp(op, "contract") == 0 && i >= N_CORNERS) {
      if (kit_below(seed, 2) == 0) s->bias = integers ? PICK(seed, integers_) : s->x;
      s->activation =
          kit_below(seed, 3) == 0 ? (uint32_t)kit_below(seed, activations(integers)) : BS_ACT_NONE;
    }
    return kit_graph_fit(op, integers);
  }
  if (kit_op_is(op, "matmul_dx") && integers) {
    s->x = kit_below(seed, 2) == 0 ? BS_I32 : BS_I64;
    s->y = PICK(seed, integers_);
    if (of_bytes(i)) s->y = BS_I8, s->x = BS_I32;
  } else if (kit_op_is(op, "matmul_dw")) {
    const int second = kit_below(seed, 4) == 0;
    s->w = integers ? (second ? BS_I64 : BS_I32) : (second ? BS_F64 : BS_F32);
    if (integers) s->y = PICK(seed, integers_);
  } else if (kit_is_quant(op) || kit_is_loss(op) || kit_is_take_q(op)) {
    return !integers; /* which they are of is the op's own */
  } else if (strcmp(op, "activate_dx") == 0) {
    s->activation = 1 + (uint32_t)kit_below(seed, BS_ACT_GELU_TANH);
    return !integers;
  } else if (kit_changes_weight(op)) {
    if (kit_is_step(op)) s->x = s->y = kit_below(seed, 4) == 0 ? BS_F64 : BS_F32;
    return !integers;
  } else if (strcmp(op, "convert") == 0 || strcmp(op, "expand24") == 0 || strstr(op, "_columns") != NULL) {
    if (integers) s->x = PICK(seed, all);
    if (integers) s->y = PICK(seed, all);
  } else if (strcmp(op, "activate") == 0 || strcmp(op, "tree_sum") == 0) {
    s->activation = (uint32_t)kit_below(seed, activations(integers));
    if (integers) s->x = s->y;
  }
  return 1;
}

/* For an optimiser's step every query comes twice: over a weight of matmul, then over one of matmul24. */
int kit_grid(const char *op, uint32_t i, int integers, kit_shape *s) {
  static const uint32_t plain[] = {BS_F32, BS_BF16, BS_F16};
  const uint32_t size = kit_grid_size(), of24 = i >= size && kit_is_step(op);
  const int edge = i >= size && !of24;
  if (of24) i -= size;
  if (edge) i = size + (i - size) * edge_step(op);
  if (i >= (edge ? size + edges_of(op, integers) : size)) return 0;
  uint64_t seed = UINT64_C(0x6b6974) + i * 977u + (integers ? 1u << 20 : 0u);
  memset(s, 0, sizeof *s);
  s->of24 = of24;
  s->seed = kit_next(&seed);
  s->index = i;
  s->edge = (uint32_t)edge;
  if (edge)
    edge_sizes(s, op, i - size);
  else
    draw_sizes(s, i, &seed);
  s->x = s->w = s->y = edge ? plain[(i - size) % 3] : BS_F32;
  if (integers)
    draw_integers(s, i, &seed);
  else if (i >= N_CORNERS && !(edge && is_product(op)))
    draw_floats(s, &seed);
  const int adds = kit_op_is(op, "matmul") || kit_is_q(op) || kit_has_base(op);
  if (adds && i >= N_CORNERS) draw_epilogue(s, integers, &seed);
  if (!fit_dtypes(op, s, i, integers, &seed)) return 0;
  if (i >= N_CORNERS) s->spread = kit_below(&seed, 3) == 0 ? (uint32_t)kit_below(&seed, edge ? 2 : 3) : 0;
  if (edge && !is_product(op) && i - size >= N_LONG) s->spread = 2;
  if (i % 3 == 1) s->spread |= KIT_SHIFTED;
  const int columns = strstr(op, "_columns") != NULL;
  if ((columns || is_product(op)) && !s->x_full && kit_below(&seed, 2) == 0)
    s->part = (uint32_t)kit_below(&seed, 4);
  if (columns && s->part == KIT_ALL) s->part = KIT_PATTERN;
  if (is_product(op) && s->part != KIT_ALL && !s->x_full) s->x_full = (uint32_t)kit_below(&seed, 2);
  if (is_product(op) && i >= N_CORNERS && !edge && kit_below(&seed, 6) == 0)
    s->accumulate = kit_below(&seed, 2) == 0 ? BS_ACC_F32 : BS_ACC_F64;
  if (kit_is_scaled(op) && kit_below(&seed, 4) == 0) s->accumulate = BS_ACC_F32;
  if (is_product(op) && !integers && (i == 8 || i == 12)) s->accumulate = BS_ACC_F64;
  if (kit_below(&seed, 2) == 0) s->flags = BS_QUERY_DETERMINISTIC;
  return 1;
}
