/* SPDX-License-Identifier: MIT
 * test_split_run.c - the graphs of all ranks of a model, run step by step in one process. The test adds up
 * what products S give. The values are those of the whole graph, prefill and decode, on 2, 3 and 4 ranks:
 * also where a region is refused. */
#include <math.h>

#include "blockshock/expr_value.h"
#include "core/base/dtype.h"
#include "core/op/dispatch.h"
#include "tests/graph/split_case.h"

enum { RANKS = 4, PORTS = 8, PROMPT = 5 };
/* Of a case: a pass that is left out; units of S in another order. */
static const char *off;
static int turned;

/* Ranks with a cache of their own each. Bindings live as long: a core finds states by the names in a graph.
 */
typedef struct ranks {
  uint32_t n, n_kept, split_states;
  gbinding *kept[2 * RANKS];
  gcore *core[RANKS];
  grank *rank[RANKS];
} ranks;

static ranks open_ranks(uint32_t n) {
  const bs_session_options options = {.struct_size = sizeof options, .backend = "ref", .threads = 1};
  ranks r = {.n = n};
  for (uint32_t i = 0; i < n; i++)
    split_ok(gcore_open(split_context, NULL, &options, &r.core[i], &r.rank[i], &split_err), "core");
  return r;
}

static void close_ranks(ranks *r) {
  for (uint32_t i = 0; i < r->n_kept; i++) gbinding_free(r->kept[i]);
  for (uint32_t i = 0; i < r->n; i++) gcore_close(r->core[i], r->rank[i]);
}

/* ---- a rank's weights ------------------------------------------------------------------------ */

/* Rows (F) or columns (S) of this rank, as a method would read them. */
static uint32_t own_weight(graph *g, const gsplit_product *p, const bs_order *order, int64_t parts,
                           int64_t rank) {
  const int is_f = p->role == GSPLIT_F;
  const int64_t n = is_f ? p->n / parts : p->n, k = is_f ? p->k : p->k / parts, dims[2] = {n, k};
  float *all = malloc((size_t)(p->n * p->k) * 4), *own = graph_data(g, (uint64_t)(n * k) * 4);
  bs_source source;
  bs_order_view view;
  uint32_t made;
  split_ok(graph_read_const(g, p->weight, all, &split_err), "weight");
  split_ok(bs_source_from_memory(all, BS_F32, p->n, p->k, p->k, &source, &split_err), "source");
  split_ok(bs_order_view_make(&source, is_f ? order : NULL, is_f ? NULL : order, &view, &split_err), "view");
  const bs_partition cols = {
      .struct_size = sizeof cols, .total = p->k, .begin = is_f ? 0 : rank * k, .count = k};
  split_ok(view.source.read(view.source.ctx, is_f ? rank * n : 0, n, &cols, BS_F32, own, k, &split_err),
           "read");
  bs_source_release(&source);
  free(all);
  split_ok(graph_add_root(g, GV_CONST, BS_F32, 2, dims, own, "own", &made, &split_err), "root");
  return made;
}

static uint32_t own_bias(graph *g, const gsplit_product *p, const bs_order *order, int64_t parts,
                         int64_t rank) {
  if (p->bias == GNONE || p->role == GSPLIT_S) return rank == 0 ? p->bias : GNONE;
  const int64_t n = p->n / parts;
  float *all = malloc((size_t)p->n * 4), *own = graph_data(g, (uint64_t)n * 4);
  uint32_t made;
  split_ok(graph_read_const(g, p->bias, all, &split_err), "bias");
  for (int64_t i = 0; i < n; i++) own[i] = all[bs_order_at(order, rank * n + i)];
  free(all);
  split_ok(graph_add_root(g, GV_CONST, BS_F32, 1, &n, own, "own", &made, &split_err), "root");
  return made;
}

static void own_product(graph *g, const gsplit *s, uint32_t product, const bs_order *order, uint32_t rank) {
  const gsplit_product *p = &s->products[product];
  if (s->ranks == 1 || !gsplit_stands(s, product)) return;
  const uint32_t weight = own_weight(g, p, order, s->ranks, rank),
                 bias = own_bias(g, p, order, s->ranks, rank);
  split_ok(graph_set_input(g, p->node, GNODE_IN, weight, &split_err), "weight");
  split_ok(graph_set_input(g, p->node, 1, bias, &split_err), "bias");
  if (p->role == GSPLIT_S) g->nodes[p->node].activation = BS_ACT_NONE;
}

/* The columns that a method gives to ranks, where these are no runs: units n/2 on come first. */
static uint32_t turned_units(const gsplit *s, const graph *g, uint32_t product, uint32_t *out_units,
                             int64_t *out_width) {
  int64_t n = 0;
  for (uint32_t i = 0; i < s->n_products; i++)
    if (s->products[i].region == s->products[product].region && s->products[i].role == GSPLIT_S)
      gsplit_units(s, g, i, &n, out_width);
  ck_assert_int_le(n, 1024);
  for (int64_t i = 0; i < n; i++) out_units[i] = (uint32_t)((i + n / 2) % n);
  return (uint32_t)n;
}

static void make_order(const gsplit *s, const graph *g, uint32_t product, bs_order *out) {
  uint32_t units[1024], n = 0;
  int64_t width = 0;
  if (turned && s->ranks > 1 && gsplit_stands(s, product)) n = turned_units(s, g, product, units, &width);
  split_ok(gsplit_order(s, g, product, n > 0 ? units : NULL, n, out, &split_err), "order");
  if (n == 0 || s->products[product].role != GSPLIT_S) return;
  bs_order_free(out);
  for (uint32_t i = 0; i < n; i++) split_ok(bs_order_add(out, units[i] * width, width, &split_err), "order");
}

/* The graph of a rank; of one rank that of the model. *out_split: of the whole graph, to be freed. */
static graph *own_graph(bs_graph *model, int64_t tokens, uint32_t n, uint32_t rank, gsplit **out_split) {
  graph *g = split_graph(model, tokens, off);
  bs_order orders[64];
  gsplit *s;
  if (n > 1) split_ok(gsplit_peel(g, &split_err), "peel");
  split_ok(gsplit_find(g, &s, &split_err), "find");
  gsplit_for(s, g, n);
  ck_assert_uint_le(s->n_products, 64);
  for (uint32_t i = 0; i < s->n_products; i++) make_order(s, g, i, &orders[i]);
  split_ok(gsplit_localise(g, s, rank, &split_err), "localise");
  for (uint32_t i = 0; i < s->n_products; i++) {
    own_product(g, s, i, &orders[i], rank);
    bs_order_free(&orders[i]);
  }
  split_ok(graph_validate(g, "as a rank's", &split_err), "valid");
  *out_split = s;
  return g;
}

/* ---- a run ----------------------------------------------------------------------------------- */

typedef struct outputs {
  double *of[PORTS];
  int64_t count[PORTS];
  uint32_t n;
} outputs;

static void free_outputs(outputs *o) {
  for (uint32_t i = 0; i < o->n; i++) free(o->of[i]);
}

/* Words that a vocabulary of 5 has, waves, true. */
static void fill(const gvalue *v, void *data) {
  for (int64_t i = 0; i < graph_count(v); i++) {
    if (v->dtype == BS_I64) ((int64_t *)data)[i] = (7 * i + 3) % 5;
    if (v->dtype == BS_F32) ((float *)data)[i] = (float)sin(0.7 * (double)i);
    if (v->dtype == BS_BOOL) ((unsigned char *)data)[i] = 1;
  }
}

static void set_ports(gbinding *b, int64_t length, void **out_memory) {
  b->own_arena = aligned_alloc(64, (size_t)(b->arena_bytes + 64) & ~(size_t)63);
  gbinding_place(b, b->own_arena);
  b->length = length;
  for (uint32_t i = 0; i < b->g->n_inputs; i++) {
    const gvalue *v = &b->g->values[b->g->inputs[i].value];
    out_memory[i] = NULL;
    if (v->kind != GV_INPUT || v->flags & GV_LENGTH) continue;
    out_memory[i] = aligned_alloc(64, (size_t)(graph_bytes(v) + 64) & ~(size_t)63);
    fill(v, out_memory[i]);
    gbinding_set_root(b, b->g->inputs[i].value, out_memory[i]);
  }
  split_ok(gbinding_check(b, &split_err), "arguments");
}

static double activated(uint32_t activation, double x) {
  if (activation == BS_ACT_RELU) return bs_expr_value(BS_EXPR_MAX, x, 0, 0);
  ck_assert_uint_eq(activation, BS_ACT_NONE);
  return x;
}

/* What the layer of an S does behind its sum. */
static void add_up(gbinding *const *b, uint32_t n, uint32_t value, uint32_t activation) {
  const bs_tensor *y = &b[0]->tensors[value];
  for (int64_t t = 0; t < y->dims[0]; t++)
    for (int64_t k = 0; k < y->dims[1]; k++) {
      const int64_t at = t * y->strides[0] + k * y->strides[1];
      double sum = 0;
      for (uint32_t r = 0; r < n; r++) sum += (double)((float *)b[r]->tensors[value].data)[at];
      sum = activated(activation, sum);
      for (uint32_t r = 0; r < n; r++) ((float *)b[r]->tensors[value].data)[at] = (float)sum;
    }
}

static void run_step(ranks *all, gbinding *const *b, const gsplit *s, const graph *whole, uint32_t i) {
  for (uint32_t r = 0; r < all->n; r++) {
    const gstep *step = &b[r]->steps[i];
    split_ok(grank_enter(all->rank[r], &split_err), "enter");
    const int32_t rc = bs_dispatch_run_unchecked(step->plan, step->args, NULL, &split_err);
    split_ok(grank_leave(all->rank[r], rc, &split_err), "run");
  }
  const uint32_t node = b[0]->steps[i].node, product = s->product_of[node];
  if (product != GNONE && s->products[product].role == GSPLIT_S && all->n > 1 && gsplit_stands(s, product))
    add_up(b, all->n, b[0]->g->nodes[node].out[0], whole->nodes[node].activation);
}

static double *dense(const bs_tensor *t, int64_t *out_count) {
  int64_t index[BS_MAX_DIMS] = {0}, at = 0;
  *out_count = (int64_t)tensor_elements(t);
  double *out = malloc((size_t)(*out_count + 1) * sizeof *out);
  for (int64_t i = 0; i < *out_count; i++) {
    out[i] = bs_load_f64(t->dtype, t->data, at);
    for (uint32_t d = t->rank; d-- > 0;) {
      at += t->strides[d];
      if (++index[d] < t->dims[d]) break;
      at -= t->dims[d] * t->strides[d];
      index[d] = 0;
    }
  }
  return out;
}

/* Each rank has all of each output, with the same bits. */
static void get_outputs(gbinding *const *b, uint32_t n, outputs *out) {
  out->n = b[0]->g->n_outputs;
  ck_assert_uint_le(out->n, PORTS);
  for (uint32_t i = 0; i < out->n; i++) {
    const uint32_t value = b[0]->g->outputs[i].value;
    out->of[i] = dense(&b[0]->tensors[value], &out->count[i]);
    for (uint32_t r = 1; r < n; r++) {
      int64_t count;
      double *other = dense(&b[r]->tensors[value], &count);
      ck_assert_int_eq(count, out->count[i]);
      ck_assert_int_eq(memcmp(other, out->of[i], (size_t)count * sizeof *other), 0);
      free(other);
    }
  }
}

static void run(bs_graph *model, ranks *all, int64_t tokens, int64_t length, outputs *out) {
  gbinding *b[RANKS] = {NULL};
  gsplit *s[RANKS] = {NULL};
  void *memory[RANKS][PORTS] = {{NULL}};
  ck_assert_uint_ge(all->n, 1);
  graph *whole = split_graph(model, tokens, off);
  for (uint32_t r = 0; r < all->n; r++) {
    graph *g = own_graph(model, tokens, all->n, r, &s[r]);
    ck_assert_uint_le(g->n_inputs, PORTS);
    split_ok(gbinding_make(all->core[r], all->rank[r], g, &b[r], &split_err), "binding");
    set_ports(b[r], length, memory[r]);
  }
  for (uint32_t i = 0; i < s[0]->n_regions; i++)
    all->split_states += s[0]->regions[i].refused ? 0 : s[0]->regions[i].n_states;
  for (uint32_t i = 0; i < b[0]->n_steps; i++) run_step(all, b, s[0], whole, i);
  get_outputs(b, all->n, out);
  for (uint32_t r = 0; r < all->n; r++) {
    for (uint32_t i = 0; i < b[r]->g->n_inputs; i++) free(memory[r][i]);
    all->kept[all->n_kept++] = b[r];
    gsplit_free(s[r]);
  }
  graph_free(whole);
}

/* ---- models ---------------------------------------------------------------------------------- */

/* Without a pass other ops are between the products. */
static const struct {
  const char *name, *off;
  int turned;
} cases[] = {{"gpt2/", NULL},
             {"gpt2/", NULL, 1},
             {"qwen3/", NULL, 1},
             {"gpt2/", "epilogue"},
             {"qwen3/", NULL},
             {"qwen3/", "merge"},
             {"builtin:lm:2x192", NULL},
             {"builtin:lm:2x192", "epilogue"},
             {"builtin:vit:1x128", NULL},
             {"gpt2_23", NULL},
             {"gpt2_20", NULL},
             {"qwen3_23", NULL},
             {"qwen3_20", NULL},
             {"qwen3_20", "rope"},
             {"bert_23_dynamic", NULL},
             {"llama_23", NULL},
             {"t5_encoder_23", NULL},
             {"vit_23", NULL},
             {"block_naive_toy_23", NULL},
             {"block_naive_toy_23", "fuse_attention"},
             {"mlp_4x128_23", NULL},
             {"gpt2_23_batch2", NULL},
             {"qwen3_20_batch2", NULL}};

static void compare(const outputs *a, const outputs *b, const char *name, uint32_t n) {
  ck_assert_uint_eq(a->n, b->n);
  for (uint32_t i = 0; i < a->n; i++) {
    double most = 0, error = 0;
    ck_assert_int_eq(a->count[i], b->count[i]);
    for (int64_t k = 0; k < a->count[i]; k++) {
      most = fmax(most, fabs(a->of[i][k]));
      error = fmax(error, fabs(a->of[i][k] - b->of[i][k]));
    }
    ck_assert_msg(most > 0 && error <= 2e-6 * most, "%s on %u ranks: output %u is off by %g of %g", name, n,
                  i, error, most);
  }
}

START_TEST(all_ranks_are_the_whole) {
  const char *name = cases[_i].name;
  off = cases[_i].off;
  turned = cases[_i].turned;
  bs_graph *model = split_open(name);
  const int cached = model->model->n_states > 0;
  gfold_enter(&model->fold);
  outputs whole[2] = {{.n = 0}};
  ranks one = open_ranks(1);
  run(model, &one, PROMPT, 0, &whole[0]);
  if (cached) run(model, &one, 1, PROMPT, &whole[1]);
  for (uint32_t n = 2; n <= RANKS; n++) {
    ranks all = open_ranks(n);
    outputs parts[2] = {{.n = 0}};
    run(model, &all, PROMPT, 0, &parts[0]);
    if (cached) run(model, &all, 1, PROMPT, &parts[1]);
    for (int i = 0; i <= cached; i++) compare(&whole[i], &parts[i], name, n);
    for (int i = 0; i <= cached; i++) free_outputs(&parts[i]);
    for (uint32_t r = 0; all.split_states > 0 && r < n; r++)
      ck_assert_uint_eq(all.core[r]->state_bytes * n, one.core[0]->state_bytes);
    close_ranks(&all);
  }
  for (int i = 0; i <= cached; i++) free_outputs(&whole[i]);
  close_ranks(&one);
  gfold_leave(&model->fold);
}
END_TEST

int main(void) {
  const test_case rows[] = {{all_ranks_are_the_whole, TEST_COUNT(cases)}, {0}};
  return run_tests("split_run", rows, (test_setup){.before = split_begin, .after = split_end, .timeout = 60});
}
