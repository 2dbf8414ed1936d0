/* SPDX-License-Identifier: MIT
 * test_split_pair.c - which products are pairs, over exports of PyTorch, folders and built-in models, and
 * what is refused, with the reason: small models for each op, and numbers of ranks that do not divide units.
 */
#include "tests/graph/split_case.h"

/* The products of a model in the order of the run: F, S or a point. refused: of 2, 3 and 4 ranks. */
static const struct {
  const char *name, *off, *roles, *text; /* text: a part of the report for 2 ranks */
  uint32_t states, cuts, refused[3];
} models[] = {
    {"gpt2/", NULL, "FSFSFSFS.", "c_attn F 0: 12 x 4, 12 x 4, 12 x 4; 2 states", 4, 0, {0, 0, 0}},
    {"gpt2/", "epilogue", "FSFSFSFS.", "gives the output logits of the model", 4, 0, {0, 0, 0}},
    {"qwen3/", NULL, "FSFS.", "F 0: 24 x 8, 12 x 8, 12 x 8; 2 states\n", 2, 0, {0, 0, 0}},
    {"qwen3/", "merge", "....F.S.", "has keys of another product, which are whole", 0, 1, {0, 0, 0}},
    {"builtin:lm:2x192",
     NULL,
     "FSFSFSFS.",
     "3 x 64; refused: matmul of MatMul n11 has 3 units of 64 elements, which 2",
     0,
     0,
     {2, 0, 2}},
    {"builtin:lm:2x192",
     "epilogue",
     "FSFSFSFS.",
     "192 x 1; refused: map of Add n8 has 3 units",
     0,
     8,
     {2, 0, 2}},
    {"builtin:vit:1x128",
     NULL,
     ".FSFS.",
     "normalize of LayerNormalization n3 needs whole rows",
     0,
     0,
     {0, 2, 1}},
    {"gpt2_23", NULL, "FSFSFSFS.", "4 x 8, 4 x 8, 4 x 8\n", 0, 0, {0, 4, 0}},
    {"gpt2_20", NULL, "FSFSFSFS.", "128 x 1\n", 0, 0, {0, 4, 0}},
    {"qwen3_23", NULL, "FSFSFSFS.", "4 x 16, 2 x 16, 2 x 16\n", 0, 0, {0, 4, 2}},
    {"qwen3_20", NULL, "FSFSFSFS.", "64 x 1, 64 x 1\n", 0, 0, {0, 4, 2}},
    {"bert_23_dynamic", NULL, "FSFSFSFS", "4 x 8, 4 x 8, 4 x 8\n", 0, 0, {0, 4, 0}},
    {"bert_20", NULL, "FSFSFSFS", "64 x 1\n", 0, 0, {0, 4, 0}},
    {"llama_23", NULL, "FSFSFSFS.", "4 x 8, 2 x 8, 2 x 8\n", 0, 0, {0, 4, 2}},
    {"t5_encoder_23", NULL, "FSFSFSFS", "4 x 8, 4 x 8, 4 x 8\n", 0, 2, {0, 4, 0}}, /* a bias of each head */
    {"vit_23", NULL, ".FSFSFSFS", "Conv node_conv2d alone", 0, 0, {0, 4, 0}},
    {"block_naive_toy_23", NULL, "FSFS", "4 x 16, 4 x 16, 4 x 16\n", 0, 0, {0, 2, 0}},
    {"block_naive_toy_23", "fuse_attention", "FSFS", "4 x 16, 4 x 16, 4 x 16\n", 0, 0, {0, 2, 0}},
    {"mlp_4x128_23", NULL, "FS.", "128 x 1\n", 0, 0, {0, 1, 0}},
    {"gpt2_last_23", NULL, "FSFSFSFS.", "4 x 8, 4 x 8, 4 x 8\n", 0, 0, {0, 4, 0}},
    {"gpt2_23_batch2", NULL, "FSFSFSFS.", "4 x 8, 4 x 8, 4 x 8\n", 0, 0, {0, 4, 0}},
    {"gpt2_20_batch2", NULL, "FSFSFSFS.", "4 x 8, 4 x 8, 4 x 8\n", 0, 0, {0, 4, 0}},
    {"qwen3_23_batch2", NULL, "FSFSFSFS.", "4 x 16, 2 x 16, 2 x 16\n", 0, 0, {0, 4, 2}},
    {"qwen3_20_batch2", NULL, "FSFSFSFS.", "4 x 16, 2 x 16, 2 x 16\n", 0, 0, {0, 4, 2}},
    {"llama_23_batch2", NULL, "FSFSFSFS.", "4 x 8, 2 x 8, 2 x 8\n", 0, 0, {0, 4, 2}},
    {"llama_20_batch2", NULL, "FSFSFSFS.", "4 x 8, 2 x 8, 2 x 8\n", 0, 0, {0, 4, 2}},
};

static gsplit *find(graph *g) {
  gsplit *s;
  split_ok(gsplit_peel(g, &split_err), "peel");
  split_ok(graph_validate(g, "without residuals", &split_err), "valid");
  split_ok(gsplit_find(g, &s, &split_err), "find");
  gsplit_for(s, g, 2);
  return s;
}

static void expect(const gsplit *s, const graph *g, const char *roles, const char *part) {
  char seen[32] = "";
  bs_text text = {0};
  for (uint32_t i = 0; i < s->n_products && i + 1 < sizeof seen; i++) seen[i] = ".FS"[s->products[i].role];
  gsplit_text(s, g, &text);
  ck_assert_msg(strcmp(seen, roles) == 0 && strstr(text.data, part) != NULL, "%s, expected %s with %s:\n%s",
                seen, roles, part, text.data);
  bs_text_free(&text);
}

static uint32_t refused(gsplit *s, const graph *g, uint32_t ranks) {
  uint32_t n = 0;
  gsplit_for(s, g, ranks);
  for (uint32_t i = 0; i < s->n_regions; i++) {
    n += s->regions[i].refused;
    ck_assert_int_eq(s->regions[i].refused != 0, s->regions[i].why[0] != '\0');
    ck_assert_int_eq(gsplit_stands(s, s->regions[i].f), s->regions[i].refused == 0);
  }
  return n;
}

START_TEST(pairs_of_models) {
  graph *g = split_graph(split_open(models[_i].name), 5, models[_i].off);
  gsplit *s = find(g);
  uint32_t states = 0;
  expect(s, g, models[_i].roles, models[_i].text);
  for (uint32_t i = 0; i < s->n_regions; i++) states += s->regions[i].n_states;
  ck_assert_uint_eq(states, models[_i].states);
  ck_assert_uint_eq(s->n_cuts, models[_i].cuts);
  for (uint32_t i = 0; i < 3; i++) ck_assert_uint_eq(refused(s, g, i + 2), models[_i].refused[i]);
  ck_assert_uint_eq(refused(s, g, 1), 0);
  gsplit_free(s);
  graph_free(g);
}
END_TEST

/* A step of one token has the pairs of a prompt: rows of one element hide no dim. */
START_TEST(pairs_of_one_token) {
  static const char *const names[] = {"gpt2/", "qwen3/", "builtin:lm:2x192", "bert_23_dynamic"};
  bs_graph *model = split_open(names[_i]);
  bs_text texts[2] = {{0}};
  for (int i = 0; i < 2; i++) {
    graph *g = split_graph(model, i == 0 ? 5 : 1, NULL);
    gsplit *s = find(g);
    gsplit_text(s, g, &texts[i]);
    gsplit_free(s);
    graph_free(g);
  }
  ck_assert_str_eq(texts[0].data, texts[1].data);
  for (int i = 0; i < 2; i++) bs_text_free(&texts[i]);
}
END_TEST

/* ---- each op --------------------------------------------------------------------------------- */

/* h = x w is [1,5,12]. */
#define HEAD                                                                                               \
  "<ir_version: 10, opset_import: [\"\" : 23]> g (float[1,5,8] x, float[1,5,12] m, float[1,3,5,4] p) => "  \
  "(float[a,b,c] y%s) <float[8,12] w = {@1 0.5 0}, float[12,8] v = {@2 0.5 0}, float[6,8] u = {@3 0.5 "    \
  "0}, float[5,8] t = {@4 0.5 0}, float[24,8] s = {@5 0.5 0}, float[12] n = {@6 0.5 0}, float[8,6] z = "   \
  "{@7 0.5 0}, int64[3] few = {0, 2, 3}, int64[1] last = {2}, int64 axis = {2}, int64[4] heads = {1, 5, "  \
  "3, 4}, int64[3] rows = {1, 5, 12}, int64[1] two = {2}, int64 one = {1}, float[3,8] k = {@8 0.5 0}, "    \
  "int64[1,1] place = {0}, int64[4] mixed = {1, 5, 2, 6}, int64[3] third = {1, 5, 4}, float[4,8] o = {@9 " \
  "0.5 0}> "                                                                                               \
  "{ h = MatMul (x, w) %s }"

static const struct {
  const char *body, *roles, *text;
} ops[] = {
    {"r = Relu (h) y = MatMul (r, v)", "FS", "F 0: 12 x 1\n"},
    {"q = Add (h, m) r = Exp (q) y = MatMul (r, v)", "FS", "F 0: 12 x 1\n"},
    {"q = Mul (h, n) r = Exp (q) y = MatMul (r, v)", "FS", "F 0: 12 x 1\n"},
    {"a, c = Split <axis: int = 2, num_outputs: int = 2> (h) q = Mul (a, c) y = MatMul (q, u)", "FS",
     "6 x 1, 6 x 1\n"},
    {"a = Reshape (h, mixed) q, c, d = Split <axis: int = 3, num_outputs: int = 3> (a) e = Mul (q, c) f = "
     "Mul (e, d) "
     "j = Reshape (f, third) y = MatMul (j, o)",
     "FS", "F 0: 2 x 6\n"}, /* queries, keys and values of a head lie together */
    {"a = Reshape (h, heads) q = Softmax (a) r = Reshape (q, rows) y = MatMul (r, v)", "FS",
     "3 units of 4 elements, which 2"},
    {"q = Softmax (h) y = MatMul (q, v)", "..",
     "normalize of Softmax needs whole rows of the split dimension"},
    {"q = ReduceSum (h, last) r = Mul (h, q) y = MatMul (r, v)", "..", "folds the split dimension"},
    {"q = CumSum (h, axis) y = MatMul (q, v)", "..", "folds the split dimension"},
    {"q = CumSum (h, one) y = MatMul (q, v)", "FS", "F 0: 12 x 1\n"},
    {"q = Gather <axis: int = 1> (h, few) y = MatMul (q, v)", "FS", "F 0: 12 x 1\n"},
    {"q = Gather <axis: int = 2> (h, few) r = Exp (q) y = MatMul (r, k)", "..",
     "takes rows of the split dimension"},
    {"q, i = TopK <axis: int = 1> (h, two) y = MatMul (q, v)", "..",
     "cannot work on a part of its input (topk)"},
    {"q = Concat <axis: int = 2> (h, m) y = MatMul (q, s)", "..",
     "has an output that is a part of a larger one"},
    {"r = Exp (h) q = Concat <axis: int = 1> (m, r) y = MatMul (q, v)", "..",
     "writes into a value that is split"},
    {"r = Exp (h) q = Concat <axis: int = 1> (r, m) y = MatMul (q, v)", "..",
     "writes into a value that is split"},
    {"r = Exp (h) y = MatMul (r, v)", "..", "gives the output r of the model"},
    {"a = Transpose <perm: ints = [0,2,1]> (h) y = MatMul (a, t)", "..", "has rows of its input split"},
    {"a = Transpose <perm: ints = [0,2,1]> (m) y = MatMul (h, a)", ".", "sums over the split dimension"},
    {"a = Reshape (h, heads) b = Transpose <perm: ints = [0,2,1,3]> (a) c = Transpose <perm: ints = "
     "[0,1,3,2]> (p) "
     "d = MatMul (b, c) e = Exp (d) f = MatMul (e, p) i = Transpose <perm: ints = [0,2,1,3]> (f) j = Reshape "
     "(i, rows) "
     "y = MatMul (j, v)",
     "FS", "3 x 4"},
    {"a = Reshape (h, heads) b = Transpose <perm: ints = [0,2,1,3]> (a) c = Attention (b, p, p) "
     "i = Transpose <perm: ints = [0,2,1,3]> (c) j = Reshape (i, rows) y = MatMul (j, v)",
     "..", "has keys of another product, which are whole"},
    {"q = ScatterND (m, place, h) y = MatMul (q, v)", "..", "puts other things than rows of a split value"},
    {"y = MatMul (h, v) r = MatMul (x, w)", "FS", "F 0"},
    {"q = MatMul (x, z) r = MatMul (h, v) i = MatMul (r, z) j = Mul (q, i) y = MatMul (j, u)", "FS.S",
     "reads values of another region"},
};

static void open_text(const char *body) {
  char *text = NULL;
  size_t size;
  const char *second = strncmp(body, "r = Exp (h) y", 13) == 0 ? ", float[1,5,12] r" : "";
  ck_assert_int_ge(asprintf(&text, HEAD, second, body), 0);
  char *whole = random_expand(text);
  unsigned char *bytes = onnx_bytes(whole, 0, &size);
  split_open_file(files_write("op.onnx", bytes, size));
  free(bytes);
  free(whole);
  free(text);
}

START_TEST(rules_of_ops) {
  open_text(ops[_i].body);
  split_ok(bs_graph_finish(split_opened, &split_err), ops[_i].body);
  graph *g = split_graph(split_opened, 5, NULL);
  gsplit *s = find(g);
  expect(s, g, ops[_i].roles, ops[_i].text);
  gsplit_free(s);
  graph_free(g);
}
END_TEST

/* A part of a value is written before the product: its writer is not looked at before all of it is split. */
START_TEST(a_part_that_was_written_before) {
  open_text("r = Exp (h) q = Concat <axis: int = 1> (m, r) y = MatMul (q, v)");
  split_ok(bs_graph_finish(split_opened, &split_err), "model");
  graph *g = split_graph(split_opened, 5, NULL);
  for (uint32_t id = g->first, next; id != GNONE; id = next) {
    const gnode n = g->nodes[id];
    next = n.next;
    if (n.op != GOP_MAP || g->values[g->values[n.in[0]].base].kind != GV_INPUT) continue;
    graph_remove_node(g, id);
    split_ok(graph_add_node(g, &n, g->first, &id, &split_err), "node");
  }
  gsplit *s = find(g);
  expect(s, g, "..", "map of Concat has a whole value that others split");
  gsplit_free(s);
  graph_free(g);
}
END_TEST

int main(void) {
  const test_case rows[] = {{pairs_of_models, TEST_COUNT(models)},
                            {pairs_of_one_token, 4},
                            {rules_of_ops, TEST_COUNT(ops)},
                            {a_part_that_was_written_before},
                            {0}};
  return run_tests("split_pair", rows,
                   (test_setup){.before = split_begin, .after = split_end, .timeout = 60});
}
