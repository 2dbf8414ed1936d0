/* SPDX-License-Identifier: MIT
 * test_generate.c - tokens and their probabilities keep their bits for batches, threads, drafts, chunks and
 * prefixes that are taken over; choices are those of a sort of all tokens; what cannot be is refused. */
#include <math.h>

#include "core/base/error.h"
#include "core/base/math.h"
#include "core/base/rng.h"
#include "generate/generator.h"
#include "tests/graph/folder_case.h"

enum { WORDS = 41, LIMIT = 96, PROMPT = 65, NEW = 20, SLOTS = 4 };

static const entry gpt2_rows[] = {
    {"n_positions", "96"}, {"vocab_size", "41"}, {"n_embd", "12"}, {"activation_function", "\"gelu\""}, {0}};
#define GPT2_ROWS(n)                                                                                   \
  {"h." n ".ln_1.weight", "12"}, {"h." n ".ln_1.bias", "12"}, {"h." n ".attn.c_attn.weight", "12,36"}, \
      {"h." n ".attn.c_attn.bias", "36"}, {"h." n ".attn.c_proj.weight", "12,12"},                     \
      {"h." n ".attn.c_proj.bias", "12"}, {"h." n ".ln_2.weight", "12"}, {"h." n ".ln_2.bias", "12"},  \
      {"h." n ".mlp.c_fc.weight", "12,48"}, {"h." n ".mlp.c_fc.bias", "48"},                           \
      {"h." n ".mlp.c_proj.weight", "48,12"}, {                                                        \
    "h." n ".mlp.c_proj.bias", "12"                                                                    \
  }
static const entry gpt2_shapes[] = {{"wte.weight", "41,12"},
                                    {"wpe.weight", "96,12"},
                                    GPT2_ROWS("0"),
                                    GPT2_ROWS("1"),
                                    {"ln_f.weight", "12"},
                                    {"ln_f.bias", "12"},
                                    {0}};
/* Three heads a group: a draft has more rows than 8, and the last block of a prompt of 65 tokens has 3. */
static const entry llama_rows[] = {{"vocab_size", "41"},
                                   {"hidden_size", "20"},
                                   {"intermediate_size", "27"},
                                   {"num_attention_heads", "6"},
                                   {"num_key_value_heads", "2"},
                                   {"head_dim", "10"},
                                   {"max_position_embeddings", "96"},
                                   {"num_hidden_layers", "2"},
                                   {0}};
#define LLAMA_ROWS(n)                                               \
  {"model.layers." n ".input_layernorm.weight", "20"},              \
      {"model.layers." n ".self_attn.q_proj.weight", "60,20"},      \
      {"model.layers." n ".self_attn.k_proj.weight", "20,20"},      \
      {"model.layers." n ".self_attn.v_proj.weight", "20,20"},      \
      {"model.layers." n ".self_attn.o_proj.weight", "20,60"},      \
      {"model.layers." n ".post_attention_layernorm.weight", "20"}, \
      {"model.layers." n ".mlp.gate_proj.weight", "27,20"},         \
      {"model.layers." n ".mlp.up_proj.weight", "27,20"}, {         \
    "model.layers." n ".mlp.down_proj.weight", "20,27"              \
  }
static const entry llama_shapes[] = {{"model.embed_tokens.weight", "41,20"},
                                     LLAMA_ROWS("0"),
                                     LLAMA_ROWS("1"),
                                     {"model.norm.weight", "20"},
                                     {"lm_head.weight", "41,20"},
                                     {0}};

static bs_context *context;
static bs_graph *model;
static bs_error err;

static void ok(int32_t rc, const char *what) {
  ck_assert_msg(rc == BS_OK, "%s: %s %s", what, err.id, err.message);
}

static void before(void) {
  files_begin();
  ok(bs_context_open(NULL, &context, &err), "context");
}

static void after(void) {
  bs_graph_close(model);
  bs_context_close(context);
  files_end();
}

static void open_graph(int llama, int64_t slots) {
  const bs_graph_options options = {.struct_size = sizeof options, .slots = slots};
  write_config(llama ? llama_config : gpt2_config, llama ? llama_rows : gpt2_rows);
  write_weights("model.safetensors", llama ? llama_shapes : gpt2_shapes, 0, 100, NULL);
  ok(bs_graph_open(context, files_folder, &options, &model, &err), "graph");
}

static bs_token_generator *open_generator(uint32_t threads, uint32_t chunk) {
  const bs_session_options session = {.struct_size = sizeof session, .threads = threads, .no_fallback = 1};
  const bs_generator_options options = {.struct_size = sizeof options, .chunk = chunk, .session = &session};
  bs_token_generator *g = NULL;
  ok(bs_generator_open(context, model, &options, &g, &err), "generator");
  return g;
}

/* Of slot i a prompt: a run of tokens that repeats, or begins as that of slot 0 does. */
static void make_prompt(uint32_t slot, int64_t *ids) {
  for (int i = 0; i < PROMPT; i++) ids[i] = (i % 7 * 5 + i % 3) % WORDS;
  for (int i = slot == 1 ? 50 : slot == 2 ? 1 : PROMPT; i < PROMPT; i++)
    ids[i] = (i * i * 3 + (int)slot * i) % WORDS;
}

/* What a slot made. */
typedef struct made {
  bs_token tokens[NEW];
  uint32_t n;
} made;

static void go_on(bs_token_generator *g, made *of, uint32_t most) {
  bs_token out[8 * SLOTS] = {{.struct_size = sizeof *out}};
  uint32_t n = 1;
  while (n > 0) {
    ok(bs_generator_step(g, out, 8 * SLOTS, &n, &err), "step");
    for (uint32_t i = 0; i < n; i++) {
      made *m = &of[out[i].slot];
      if (m->n < most) m->tokens[m->n++] = out[i];
      if (m->n == most) bs_generator_end(g, out[i].slot);
    }
  }
}

static void begin(bs_token_generator *g, uint32_t slot, const bs_sampling *s) {
  int64_t ids[PROMPT];
  make_prompt(slot, ids);
  ok(bs_generator_prompt(g, slot, ids, PROMPT, s, &err), "prompt");
}

static void expect_same(const made *want, const made *seen, const char *what) {
  ck_assert_msg(seen->n == want->n, "%s: %u tokens, not %u", what, seen->n, want->n);
  for (uint32_t i = 0; i < want->n; i++) {
    const void *bits = &seen->tokens[i].logprob, *wanted = &want->tokens[i].logprob;
    ck_assert_msg(seen->tokens[i].id == want->tokens[i].id && memcmp(bits, wanted, sizeof(double)) == 0,
                  "%s: token %u is %lld (%.17g), not %lld (%.17g)", what, i, (long long)seen->tokens[i].id,
                  seen->tokens[i].logprob, (long long)want->tokens[i].id, want->tokens[i].logprob);
  }
}

static const bs_sampling samplings[] = {
    {.struct_size = sizeof(bs_sampling)},
    {.struct_size = sizeof(bs_sampling), .temperature = 0.05, .seed = 7},
    {.struct_size = sizeof(bs_sampling), .temperature = 0.8, .top_p = 0.9, .seed = 11, .repetition = 1.2}};

/* Each prompt alone, in a generator of its own with one thread, is what all others are compared with. */
START_TEST(bits_stay) {
  const bs_sampling plain = samplings[_i % 3];
  made want[SLOTS] = {{.n = 0}};
  open_graph(_i / 3, SLOTS);
  for (uint32_t slot = 0; slot < SLOTS; slot++) {
    bs_token_generator *g = open_generator(1, 0);
    begin(g, slot, &plain);
    go_on(g, want, NEW);
    bs_generator_close(g);
  }
  for (uint32_t variant = 0; variant < 8; variant++) {
    char what[80];
    bs_sampling s = plain;
    bs_generator_stats stats = {.struct_size = sizeof stats};
    made seen[SLOTS] = {{.n = 0}};
    const uint32_t threads = variant & 1 ? 2 : 1, draft = variant & 2 ? 7 : 0, chunk = variant & 4 ? 32 : 0;
    bs_token_generator *g = open_generator(threads, chunk);
    s.draft = draft;
    for (uint32_t slot = 0; slot < SLOTS; slot++) { /* one after the other, while others go on */
      begin(g, slot, &s);
      go_on(g, seen, 3 + slot);
      seen[slot].n = 0;
    }
    for (uint32_t slot = SLOTS; slot-- > 0;) begin(g, slot, &s); /* all of each prompt is kept, but one */
    memset(seen, 0, sizeof seen);
    go_on(g, seen, NEW);
    ok(bs_generator_stats_get(g, &stats, &err), "stats");
    for (uint32_t slot = 0; slot < SLOTS; slot++) {
      snprintf(what, sizeof what, "threads %u, draft %u, chunk %u, slot %u", threads, draft, chunk, slot);
      expect_same(&want[slot], &seen[slot], what);
    }
    ck_assert_uint_eq(stats.prompt_tokens, 2 * SLOTS * PROMPT);
    ck_assert_uint_eq(stats.kept_tokens, 50 + 1 + (PROMPT - 1) * 5);
    ck_assert_uint_eq(stats.fallback_nodes, 0);
    if (draft > 0 && _i % 3 == 0) ck_assert_uint_gt(stats.accepted, 0);
    if (draft > 0 && _i % 3 == 1) ck_assert_uint_gt(stats.drafted, stats.accepted); /* some are refused */
    bs_generator_close(g);
  }
}
END_TEST

/* A slot that is full ends, and with drafts at the same token; the others go on. */
START_TEST(a_cache_is_full) {
  bs_token tokens[LIMIT] = {{.struct_size = sizeof *tokens}};
  int64_t ids[PROMPT], last[2] = {0, 0};
  uint32_t n = 1, count[2] = {0, 0};
  open_graph(0, SLOTS);
  bs_token_generator *g = open_generator(1, 0);
  bs_sampling s = {.struct_size = sizeof s, .draft = _i == 0 ? 0 : 7};
  make_prompt(0, ids);
  ok(bs_generator_prompt(g, 0, ids, PROMPT, &s, &err), "prompt");
  ok(bs_generator_prompt(g, 1, ids, PROMPT - 10, &s, &err), "prompt");
  while (n > 0) {
    ok(bs_generator_step(g, tokens, LIMIT, &n, &err), "step");
    for (uint32_t i = 0; i < n; i++) {
      count[tokens[i].slot]++;
      ck_assert(!last[tokens[i].slot]);
      last[tokens[i].slot] = tokens[i].flags & BS_TOKEN_LAST;
    }
  }
  ck_assert_uint_eq(count[0], LIMIT + 1 - PROMPT);
  ck_assert_uint_eq(count[1], LIMIT + 1 - PROMPT + 10);
  ck_assert(last[0] && last[1]);
  bs_generator_close(g);
}
END_TEST

/* ---- choices ----------------------------------------------------------------------------------- */

/* By the steps of generate.h, with all tokens in their order. */
static int64_t choose_by_hand(const float *logits, const int64_t *before_it, int64_t n, const bs_sampling *s,
                              uint32_t slot) {
  double l[WORDS], p[WORDS], all = 0, most = -INFINITY, sum = 0, kept = 0;
  int order[WORDS], count = WORDS;
  uint32_t words[2];
  for (int i = 0; i < WORDS; i++) {
    int there = 0;
    const int64_t window = s->repetition_tokens != 0 ? s->repetition_tokens : n;
    for (int64_t k = n - window > 0 ? n - window : 0; k < n; k++) there |= before_it[k] == i;
    l[i] = (double)logits[i];
    if (there && s->repetition != 0) l[i] = l[i] > 0 ? l[i] / s->repetition : l[i] * s->repetition;
    if (l[i] > most) most = l[i];
    order[i] = i;
  }
  for (int i = 0; i < WORDS; i++) all += p[i] = bs_exp((l[i] - most) / s->temperature);
  for (int i = 0; i < WORDS; i++)
    for (int k = i + 1; k < WORDS; k++)
      if (p[order[k]] > p[order[i]] || (p[order[k]] == p[order[i]] && order[k] < order[i])) {
        const int swapped = order[i];
        order[i] = order[k];
        order[k] = swapped;
      }
  if (s->top_k > 0 && s->top_k < WORDS) {
    count = (int)s->top_k;
    all = 0;
    for (int i = 0; i < count; i++) all += p[order[i]];
  }
  const int cuts = s->top_k > 0 || s->min_p > 0 || s->top_p < 1;
  int stay = 0;
  for (; stay < count && (s->top_p == 1 || kept < s->top_p * all); stay++) kept += p[order[stay]];
  while (stay > 1 && p[order[stay - 1]] < s->min_p * p[order[0]]) stay--;
  kept = 0;
  for (int i = 0; i < stay; i++) kept += p[order[i]];
  if (!cuts) kept = all;
  bs_rng_bits(s->seed, 16 + slot, 2 * (uint64_t)n, 2, words);
  const double u = (double)(((uint64_t)words[0] << 32 | words[1]) >> 11) / 9007199254740992.0;
  for (int i = 0; i < stay; i++)
    if ((sum += p[order[i]]) > u * kept) return order[i];
  return order[stay - 1];
}

START_TEST(choices_are_those_of_a_sort) {
  static const bs_sampling rows[] = {
      {.temperature = 1, .top_p = 1},
      {.temperature = 2, .top_p = 0.5},
      {.temperature = 0.7, .top_p = 1, .top_k = 5},
      {.temperature = 3, .top_p = 0.6, .top_k = 9},
      {.temperature = 1, .top_p = 1, .min_p = 0.2},
      {.temperature = 1.5, .top_p = 0.8, .min_p = 0.1, .top_k = 20},
      {.temperature = 1, .top_p = 1, .repetition = 1.7, .repetition_tokens = 6},
      {.temperature = 5, .top_p = 1, .top_k = 1}};
  float logits[WORDS];
  int64_t ids[LIMIT], order[WORDS];
  double p[WORDS];
  unsigned char seen[WORDS] = {0};
  uint32_t bits[WORDS], differ = 0;
  gen_slot slots[3] = {{.n = 0}};
  bs_token_generator g = {.slots = slots, .n_slots = 3, .words = WORDS, .room = {p, order, seen}};
  g.logits = (bs_tensor){.struct_size = sizeof g.logits,
                         .dtype = BS_F32,
                         .rank = 2,
                         .dims = {1, WORDS},
                         .strides = {WORDS, 1},
                         .data = logits,
                         .bytes = sizeof logits};
  for (int i = 0; i < LIMIT; i++) ids[i] = i * 17 % WORDS;
  for (uint64_t seed = 0; seed < 300; seed++) {
    gen_slot *s = &slots[seed % 3];
    bs_rng_bits(seed, 1, 0, WORDS, bits);
    for (int i = 0; i < WORDS; i++) logits[i] = (float)(bits[i] % 9) - 4; /* many are equal */
    *s = (gen_slot){.ids = ids, .n = 10 + (int64_t)(seed % 50), .sampling = rows[_i]};
    s->sampling.seed = seed;
    const int64_t n = s->n, was = ids[n];
    const int64_t want = choose_by_hand(logits, ids, n, &s->sampling, (uint32_t)(seed % 3));
    ok(gen_choose(&g, s, 0, &err), "choice");
    ck_assert_int_eq(s->n, n + 1);
    ck_assert_msg(ids[n] == want, "seed %d: token %d, by hand %d", (int)seed, (int)ids[n], (int)want);
    differ += ids[n] != ids[(seed + 1) % 7];
    ids[n] = was;
  }
  ck_assert_uint_gt(differ, 0);
  logits[3] = NAN;
  ck_assert_int_eq(gen_choose(&g, &slots[0], 0, &err), BS_NUMERIC);
}
END_TEST

/* ---- what is refused --------------------------------------------------------------------------- */

START_TEST(what_is_refused) {
  int64_t ids[LIMIT + 1] = {0};
  bs_token tokens[2] = {{.struct_size = sizeof *tokens}};
  bs_token_generator *g = NULL;
  uint32_t n = 9;
  bs_sampling s = {.struct_size = sizeof s, .draft = 8};
  open_graph(0, 0);
  files_expect(&err, bs_generator_open(context, model, NULL, &g, &err), BS_UNSUPPORTED, "BS-GEN-MODEL",
               "slots");
  bs_graph_close(model);
  open_graph(0, 2);
  g = open_generator(1, 0);
  files_expect(&err, bs_generator_prompt(g, 2, ids, 1, NULL, &err), BS_INVALID_ARGUMENT, "BS-GEN-SLOT",
               "slot");
  files_expect(&err, bs_generator_prompt(g, 0, ids, 1, &s, &err), BS_INVALID_ARGUMENT, "BS-GEN-SAMPLING",
               "draft");
  s = (bs_sampling){.struct_size = sizeof s, .temperature = NAN};
  files_expect(&err, bs_generator_prompt(g, 0, ids, 1, &s, &err), BS_INVALID_ARGUMENT, "BS-GEN-SAMPLING",
               "temperature");
  files_expect(&err, bs_generator_prompt(g, 0, ids, LIMIT + 1, NULL, &err), BS_OVERFLOW, "BS-GEN-CACHE",
               "cache");
  ids[5] = WORDS;
  files_expect(&err, bs_generator_prompt(g, 0, ids, 6, NULL, &err), BS_INPUT, "BS-MODEL-IDS", "id");
  files_expect(&err, bs_generator_prompt(g, 0, ids, 0, NULL, &err), BS_INVALID_ARGUMENT, "BS-MODEL-IDS",
               "none");
  ok(bs_generator_step(g, tokens, 2, &n, &err), "nothing lives");
  ck_assert_uint_eq(n, 0);
  ok(bs_generator_prompt(g, 1, ids, 5, NULL, &err), "prompt");
  files_expect(&err, bs_generator_step(g, tokens, 0, &n, &err), BS_INVALID_ARGUMENT, "BS-GEN-ROOM", "room");
  ok(bs_generator_step(g, tokens, 2, &n, &err), "step");
  ck_assert(n == 1 && tokens[0].slot == 1);
  ck_assert_int_eq(bs_generator_limit(g), LIMIT);
  bs_generator_close(g);
}
END_TEST

/* Heads of 258 columns are too wide for attention on cpu: the node is named. */
START_TEST(a_draft_is_refused) {
  static const entry rows[] = {{"hidden_size", "4"},
                               {"num_attention_heads", "1"},
                               {"head_dim", "258"},
                               {"num_key_value_heads", "1"},
                               {0}};
  static const entry shapes[] = {{"model.embed_tokens.weight", "5,4"},
                                 {L "input_layernorm.weight", "4"},
                                 {L "self_attn.q_proj.weight", "258,4"},
                                 {L "self_attn.k_proj.weight", "258,4"},
                                 {L "self_attn.v_proj.weight", "258,4"},
                                 {L "self_attn.o_proj.weight", "4,258"},
                                 {L "post_attention_layernorm.weight", "4"},
                                 {L "mlp.gate_proj.weight", "12,4"},
                                 {L "mlp.up_proj.weight", "12,4"},
                                 {L "mlp.down_proj.weight", "4,12"},
                                 {"model.norm.weight", "4"},
                                 {"lm_head.weight", "5,4"},
                                 {0}};
  const bs_graph_options options = {.struct_size = sizeof options, .slots = 1};
  const bs_sampling s = {.struct_size = sizeof s, .draft = 3};
  const int64_t ids[2] = {1, 2};
  bs_token_generator *g = NULL;
  write_config(llama_config, rows);
  write_weights("model.safetensors", shapes, 0, 100, NULL);
  ok(bs_graph_open(context, files_folder, &options, &model, &err), "graph");
  ok(bs_generator_open(context, model, NULL, &g, &err), "generator");
  files_expect(&err, bs_generator_prompt(g, 0, ids, 2, &s, &err), BS_UNSUPPORTED, "BS-GEN-DRAFT", "draft");
  ck_assert_msg(strstr(err.message, "attention of '") == err.message, "%s", err.message);
  ok(bs_generator_prompt(g, 0, ids, 2, NULL, &err), "without drafts");
  bs_generator_close(g);
}
END_TEST

/* A session of a graph with slots: what lies outside of them is refused before memory is touched. */
START_TEST(slots_are_kept) {
  static const bs_dim dims[3] = {
      {sizeof(bs_dim), 0, "batch", 2}, {sizeof(bs_dim), 0, "sequence", 1}, {sizeof(bs_dim), 0, "rows", 1}};
  const bs_dim *const list[3] = {&dims[0], &dims[1], &dims[2]};
  int64_t ids[2] = {1, 2}, lengths[2] = {0, 0}, rows[1] = {0};
  bs_session *session = NULL;
  open_graph(0, 2);
  const bs_session_options options = {
      .struct_size = sizeof options, .dims = list, .n_dims = 3, .threads = 1, .no_fallback = 1};
  ok(bs_session_open(context, model, &options, &session, &err), "session");
  for (uint32_t i = 0; i < 3; i++) {
    bs_tensor t = {.struct_size = sizeof t,
                   .dtype = BS_I64,
                   .rank = i == 0 ? 2 : 1,
                   .dims = {i == 2 ? 1 : 2, 1},
                   .strides = {1, 1},
                   .data = i == 0   ? ids
                           : i == 1 ? lengths
                                    : rows,
                   .bytes = i == 2 ? 8 : 16};
    ok(bs_session_set(session, i, &t, &err), "set");
  }
  ok(bs_session_run(session, &err), "run");
  ok(bs_session_slot(session, 1, &err), "slot");
  files_expect(&err, bs_session_run(session, &err), BS_INVALID_ARGUMENT, "BS-GRAPH-SLOT", "beyond");
  files_expect(&err, bs_session_slot(session, 2, &err), BS_INVALID_ARGUMENT, "BS-GRAPH-SLOT", "slot 2");
  files_expect(&err, bs_session_slot_copy(session, 0, 2, 1, &err), BS_INVALID_ARGUMENT, "BS-GRAPH-SLOT",
               "copy");
  files_expect(&err, bs_session_slot_copy(session, 0, 1, LIMIT + 1, &err), BS_OVERFLOW, "BS-GRAPH-CACHE",
               "copy");
  ok(bs_session_slot(session, 0, &err), "slot");
  lengths[1] = LIMIT;
  ck_assert_int_ne(bs_session_run(session, &err), BS_OK); /* no place in the cache */
  lengths[1] = 0;
  ids[1] = WORDS;
  ck_assert_int_ne(bs_session_run(session, &err), BS_OK);
  ids[1] = 0;
  rows[0] = 2;
  ck_assert_int_ne(bs_session_run(session, &err), BS_OK);
  rows[0] = 1;
  ok(bs_session_run(session, &err), "run");
  bs_session_close(session);
}
END_TEST

int main(void) {
  const test_case rows[] = {{bits_stay, 6},
                            {a_cache_is_full, 2},
                            {choices_are_those_of_a_sort, 8},
                            {what_is_refused},
                            {a_draft_is_refused},
                            {slots_are_kept},
                            {0}};
  return run_tests("generate", rows, (test_setup){.before = before, .after = after});
}
