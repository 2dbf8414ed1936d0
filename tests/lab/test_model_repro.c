/* SPDX-License-Identifier: MIT
 * test_model_repro.c - a model has the same bits in every cell of the grid where that is promised, for any
 * threads, tables, lengths and cuts; without the promise the grid finds the cells that differ, and says
 * where. */
#include "core/base/error.h"
#include "lab/model/repro.h"
#include "tests/graph/folder_case.h"

/* A head of 64 and more than 512 tokens: threads share the keys of a token where nothing is promised. */
enum { TOKENS = 530 };
static const entry rows[] = {{"n_positions", "530"}, {"vocab_size", "16"}, {"n_embd", "64"},
                             {"n_layer", "1"},       {"n_head", "1"},      {0}};
static const entry shapes[] = {{"wte.weight", "16,64"},
                               {"wpe.weight", "530,64"},
                               {"h.0.ln_1.weight", "64"},
                               {"h.0.ln_1.bias", "64"},
                               {"h.0.attn.c_attn.weight", "64,192"},
                               {"h.0.attn.c_attn.bias", "192"},
                               {"h.0.attn.c_proj.weight", "64,64"},
                               {"h.0.attn.c_proj.bias", "64"},
                               {"h.0.ln_2.weight", "64"},
                               {"h.0.ln_2.bias", "64"},
                               {"h.0.mlp.c_fc.weight", "64,256"},
                               {"h.0.mlp.c_fc.bias", "256"},
                               {"h.0.mlp.c_proj.weight", "256,64"},
                               {"h.0.mlp.c_proj.bias", "64"},
                               {"ln_f.weight", "64"},
                               {"ln_f.bias", "64"},
                               {0}};

static bs_error err;

static int32_t open_table(void *user, const char *isa, bs_context **out, bs_error *e) {
  char param[32];
  const char *params[] = {param};
  (void)user;
  snprintf(param, sizeof param, "cpu.isa=%s", isa != NULL ? isa : "auto");
  const bs_context_options o = {.struct_size = sizeof o, .params = params, .n_params = 1};
  return bs_context_open(&o, out, e);
}

static json_t *check(uint32_t bits, const char *backend) {
  static const char *const dims[] = {"sequence=530"};
  const bs_model_request request = {.path = files_folder, .backend = backend, .dims = {dims, 1}, .seed = 1};
  const bs_repro_asked asked = {.open = open_table, .bits = bits};
  json_t *result = NULL;
  bs_error_clear(&err);
  ck_assert_int_eq(bs_model_repro(&request, &asked, &result, &err) == BS_OK, result != NULL);
  return result;
}

static const json_t *cell(const json_t *result, const char *table, int threads, const char *run) {
  const json_t *c;
  size_t i;
  json_array_foreach(json_object_get(result, "cells"), i, c) {
    if (json_integer_value(json_object_get(c, "threads")) == threads &&
        strcmp(json_string_value(json_object_get(c, "table")), table) == 0 &&
        strcmp(json_string_value(json_object_get(c, "run")), run) == 0)
      return c;
  }
  ck_abort_msg("no cell of table %s, %d threads, %s", table, threads, run);
}

static long long of(const json_t *row, const char *key) {
  return (long long)json_integer_value(json_object_get(row, key));
}

START_TEST(bits_are_kept_or_the_cell_is_named) {
  write_config(gpt2_config, rows);
  write_weights("model.safetensors", shapes, 0, 100, NULL);
  json_t *kept = check(BS_BITS_TOKENS, NULL), *free_bits = check(BS_BITS_RUNS, NULL);
  ck_assert_msg(kept != NULL && free_bits != NULL, "%s %s", err.id, err.message);
  const json_t *one = cell(kept, "auto", 16, "1 at a time"),
               *split = cell(free_bits, "auto", 16, "1 at a time");
  ck_assert_msg(of(kept, "failed") == 0, "%lld cells", of(kept, "failed"));
  ck_assert_int_eq(of(one, "compared"), TOKENS * 16);
  ck_assert_int_eq(of(cell(kept, "portable", 1, "first 97"), "compared"), 97 * 16);
  ck_assert_int_eq(of(cell(kept, "auto", 2, "1 at a time with 2 others"), "compared"), TOKENS * 16);
  ck_assert(json_array_size(json_object_get(kept, "cells")) >= 35);
  ck_assert_int_eq(json_array_size(json_object_get(json_object_get(kept, "output"), "rows")), TOKENS);
  ck_assert(of(json_object_get(kept, "control"), "compared") == TOKENS * 16);
  /* At least where two members share the keys of a token. */
  ck_assert(of(free_bits, "failed") > 0 && json_is_false(json_object_get(split, "equal")));
  ck_assert(of(split, "first") < TOKENS && of(split, "differ") > 0);
  json_decref(kept);
  json_decref(free_bits);
}
END_TEST

/* `ref` keeps no definition of the bits of its sums: the session is refused, with the reason. */
START_TEST(who_promises_nothing_does_not_serve) {
  write_config(gpt2_config, rows);
  write_weights("model.safetensors", shapes, 0, 100, NULL);
  ck_assert_ptr_null(check(BS_BITS_TOKENS, "ref"));
  ck_assert_int_eq(err.code, BS_UNSUPPORTED);
  ck_assert_msg(strstr(err.message, "keeps no definition of bits") != NULL, "%s", err.message);
}
END_TEST

int main(void) {
  const test_case tests[] = {
      {bits_are_kept_or_the_cell_is_named}, {who_promises_nothing_does_not_serve}, {0}};
  return run_tests("model_repro", tests, (test_setup){.before = files_begin, .after = files_end});
}
