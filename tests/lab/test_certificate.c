/* SPDX-License-Identifier: MIT
 * test_certificate.c - a certificate is checked again: equal outputs, a flipped digit in each field that is
 * compared, a changed model, a machine that has few tables or none. */
#include <unistd.h>

#include "core/base/error.h"
#include "lab/model/certificate.h"
#include "lab/model/repro.h"
#include "tests/graph/folder_case.h"

static bs_error err;
static const char *lacks; /* a table that this machine lacks; "": all */

static int32_t open_table(void *user, const char *isa, bs_context **out, bs_error *e) {
  char param[32];
  const char *params[] = {param};
  (void)user;
  if (lacks != NULL && (lacks[0] == '\0' || (isa != NULL && strcmp(lacks, isa) == 0)))
    return bs_error_set(e, BS_UNAVAILABLE, "BS-CPU-ISA", "this machine has another processor");
  snprintf(param, sizeof param, "cpu.isa=%s", isa != NULL ? isa : "auto");
  const bs_context_options o = {.struct_size = sizeof o, .params = params, .n_params = 1};
  return bs_context_open(&o, out, e);
}

static const bs_repro_asked asked = {.open = open_table, .bits = BS_BITS_TOKENS};

static void write_gpt2(void) {
  lacks = NULL;
  write_config(gpt2_config, NULL);
  write_weights("model.safetensors", gpt2_weights, 0, 100, NULL);
}

static json_t *make(void) {
  const bs_model_request request = {.path = files_folder, .seed = 3};
  json_t *made = NULL;
  bs_error_clear(&err);
  ck_assert_msg(bs_model_repro(&request, &asked, &made, &err) == BS_OK, "%s %s", err.id, err.message);
  return made;
}

/* The result of a check of the folder's model; NULL: there was an error. */
static json_t *check(const json_t *certificate) {
  const bs_model_request request = {.path = files_folder};
  json_t *read = NULL, *result = NULL;
  ck_assert_int_eq(json_dump_file(certificate, files_path("bits.json"), JSON_INDENT(1)), 0);
  ck_assert(bs_certificate_is(files_path("bits.json")));
  bs_error_clear(&err);
  if (bs_certificate_read(files_path("bits.json"), &read, &err) == BS_OK)
    bs_model_repro_against(&request, &asked, read, &result, &err);
  json_decref(read);
  return result;
}

static long long of(const json_t *row, const char *key) {
  return (long long)json_integer_value(json_object_get(row, key));
}

/* The object that has the last key of a path such as "files.0.sha256". */
static json_t *holder(json_t *root, const char *path, const char **out_key, size_t *out_at) {
  static char text[100];
  char *save = NULL;
  snprintf(text, sizeof text, "%s", path);
  for (char *key = strtok_r(text, ".", &save), *next; key != NULL; key = next) {
    next = strtok_r(NULL, ".", &save);
    *out_key = key;
    *out_at = strtoul(key, NULL, 10);
    if (next != NULL) root = json_is_array(root) ? json_array_get(root, *out_at) : json_object_get(root, key);
  }
  return root;
}

/* Another last digit or letter; another number; false of true. */
static json_t *flipped(const json_t *value) {
  char text[200];
  if (json_is_integer(value)) return json_integer(json_integer_value(value) + 1);
  if (json_is_true(value)) return json_false();
  snprintf(text, sizeof text, "%s", json_string_value(value));
  char *last = text + strlen(text) - 1;
  *last = *last == '0' ? '1' : '0';
  return json_string(text);
}

static json_t *flip(const json_t *certificate, const char *path) {
  const char *key = NULL;
  size_t at = 0;
  json_t *copy = json_deep_copy(certificate), *of_key = holder(copy, path, &key, &at);
  if (json_is_array(of_key))
    json_array_set_new(of_key, at, flipped(json_array_get(of_key, at)));
  else
    json_object_set_new(of_key, key, flipped(json_object_get(of_key, key)));
  return copy;
}

START_TEST(equal_outputs_pass_in_every_cell) {
  write_gpt2();
  json_t *made = make(), *result = check(made);
  const json_t *cells = json_object_get(result, "cells"), *cell;
  size_t i, beside = 0;
  ck_assert_msg(result != NULL, "%s %s", err.id, err.message);
  ck_assert_int_eq(of(result, "failed"), 0);
  ck_assert_int_eq(json_array_size(cells), json_array_size(json_object_get(made, "cells")));
  json_array_foreach(cells, i, cell) {
    ck_assert_int_gt(of(cell, "rows"), 0);
    beside += strstr(json_string_value(json_object_get(cell, "run")), "with 2 others") != NULL;
  }
  ck_assert_int_ge(beside, 1);
  ck_assert_int_eq(json_array_size(json_object_get(json_object_get(made, "output"), "rows")), 8);
  ck_assert_ptr_nonnull(json_object_get(json_object_get(made, "build"), "compiler"));
  ck_assert_ptr_nonnull(json_object_get(json_object_get(made, "machine"), "cpu"));
  json_decref(made);
  json_decref(result);
}
END_TEST

START_TEST(each_flipped_digit_is_named) {
  static const char *const rows[][2] = {{"files.0.sha256", "config.json has other contents"},
                                        {"files.1.sha256", "model.safetensors has other contents"},
                                        {"files.1.bytes", "model.safetensors has"},
                                        {"files.1.name", "the certificate has the file model.safetensor0"},
                                        {"made_constants.sha256", "the constants that lie in no file"},
                                        {"inputs.0.sha256", "input 'input_ids' has other numbers"},
                                        {"asked.seed", "input 'input_ids' has other numbers"},
                                        {"output.sha256", "output.sha256 is"},
                                        {"output.rows.0", "output.rows[0] are not"},
                                        {"output.rows.7", "output.rows[7] are not"},
                                        {"output.numbers", "this model gives 8 and 40"},
                                        {"word", "word is 'token0'"},
                                        {"definition", "definition is 2"},
                                        {"blockshock_bits", "blockshock_bits is 2"},
                                        {"failed", "failed is 1"},
                                        {"cells.2.equal", "cells[2].equal of the certificate is not true"}};
  write_gpt2();
  json_t *made = make();
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    json_t *other = flip(made, rows[i][0]);
    ck_assert_msg(check(other) == NULL && err.code == BS_INPUT && strstr(err.message, rows[i][1]) != NULL,
                  "%s: %d %s", rows[i][0], err.code, err.message);
    json_decref(other);
  }
  json_decref(made);
}
END_TEST

START_TEST(an_input_that_is_left_out_is_named) {
  write_gpt2();
  json_t *made = make();
  json_array_clear(json_object_get(made, "inputs"));
  ck_assert_msg(
      check(made) == NULL && err.code == BS_INPUT &&
          strstr(err.message, "the model has the input 'input_ids', the certificate has not") != NULL,
      "%d %s", err.code, err.message);
  json_decref(made);
}
END_TEST

/* A certificate that tells the truth of the files, but not of what they give. */
START_TEST(other_outputs_name_cell_and_row) {
  static const char *const zeros = "0000000000000000000000000000000000000000000000000000000000000000";
  write_gpt2();
  json_t *made = make(), *output = json_object_get(made, "output");
  json_array_set_new(json_object_get(output, "rows"), 5, json_string("00000000"));
  json_object_set_new(output, "sha256", json_string(zeros));
  json_t *result = check(made);
  ck_assert_msg(result != NULL, "%s %s", err.id, err.message);
  const json_t *cell = json_array_get(json_object_get(result, "cells"), 0);
  const json_t *two = json_array_get(json_object_get(result, "cells"), 1);
  ck_assert_int_eq(of(cell, "first"), 5);
  ck_assert_int_eq(of(cell, "differ"), 1);
  ck_assert_str_eq(json_string_value(json_object_get(two, "run")), "first 2");
  ck_assert(json_is_true(json_object_get(two, "equal")));
  json_decref(made);
  json_decref(result);
}
END_TEST

START_TEST(a_changed_model_is_named) {
  write_gpt2();
  json_t *made = make();
  write_weights("model.safetensors", gpt2_weights, 0, 100, NULL);
  FILE *f = fopen(files_path("model.safetensors"), "rb+");
  ck_assert_ptr_nonnull(f);
  fseek(f, -3, SEEK_END);
  const int byte = fgetc(f);
  fseek(f, -3, SEEK_END);
  fputc(byte ^ 1, f);
  fclose(f);
  ck_assert_ptr_null(check(made));
  ck_assert_int_eq(err.code, BS_INPUT);
  ck_assert_msg(strstr(err.message, "model.safetensors has other contents") != NULL, "%s", err.message);
  json_decref(made);
}
END_TEST

/* As in the cache of a hub, files may lie elsewhere: they have the names of the links. */
START_TEST(linked_files_have_the_names_of_links) {
  write_gpt2();
  json_t *made = make();
  char there[512];
  snprintf(there, sizeof there, "%s.blob", files_folder);
  ck_assert_int_eq(rename(files_path("model.safetensors"), there), 0);
  ck_assert_int_eq(symlink(there, files_path("model.safetensors")), 0);
  json_t *result = check(made);
  unlink(there);
  ck_assert_msg(result != NULL && of(result, "failed") == 0, "%s %s", err.id, err.message);
  json_decref(made);
  json_decref(result);
}
END_TEST

/* Import computes rotary tables with the C library: they lie in no file. */
START_TEST(made_constants_are_named) {
  lacks = NULL;
  write_config(llama_config, NULL);
  write_weights("model.safetensors", llama_weights, 0, 100, NULL);
  json_t *made = make(), *constants = json_object_get(made, "made_constants");
  json_t *named = json_object_get(constants, "named");
  ck_assert_int_eq(of(constants, "count"), 2);
  json_object_set_new(named, "rotary_sin", json_string("0123456789abcdef"));
  json_object_set_new(constants, "sha256",
                      json_string("0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"));
  ck_assert_ptr_null(check(made));
  ck_assert_msg(strstr(err.message, "constant 'rotary_sin' lies in no file") != NULL, "%s", err.message);
  json_decref(made);
}
END_TEST

START_TEST(absent_tables_are_left_out) {
  write_gpt2();
  json_t *made = make();
  lacks = "portable";
  json_t *result = check(made);
  ck_assert_msg(result != NULL, "%s %s", err.id, err.message);
  ck_assert_int_lt(json_array_size(json_object_get(result, "cells")),
                   json_array_size(json_object_get(made, "cells")));
  const json_t *notes = json_object_get(result, "not_compared");
  ck_assert_str_eq(json_string_value(json_array_get(notes, 0)),
                   "table portable, 1 threads: this machine has another processor");
  json_decref(result);
  lacks = "";
  ck_assert_ptr_null(check(made));
  ck_assert_int_eq(err.code, BS_UNAVAILABLE);
  ck_assert_msg(strstr(err.message, "cells of the certificate can run here") != NULL, "%s", err.message);
  json_decref(made);
}
END_TEST

START_TEST(what_is_no_certificate_is_refused) {
  static const char *const rows[][2] = {
      {"{\"blockshock_bits\": 1", "line 1"},
      {"{\"blockshock_bits\": 1, \"blockshock_bits\": 1}", "duplicate"},
      {"{\"blockshock_bits\": 1}", "word of the certificate is not a text"},
      {"{\"blockshock_bits\": -1}", "blockshock_bits of the certificate is not a whole number"}};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    json_t *read = NULL;
    files_write("bits.json", rows[i][0], strlen(rows[i][0]));
    ck_assert(bs_certificate_is(files_path("bits.json")));
    ck_assert_int_eq(bs_certificate_read(files_path("bits.json"), &read, &err), BS_INPUT);
    ck_assert_msg(strstr(err.message, rows[i][1]) != NULL, "%s", err.message);
  }
  files_write("bits", "{\"other\": 1}", 12);
  ck_assert(!bs_certificate_is(files_path("bits")));
  files_write("bits", " {\n \"blockshock_bits\": 2}", 26);
  ck_assert(bs_certificate_is(files_path("bits")));
  ck_assert(!bs_certificate_is(files_path("none")));
}
END_TEST

/* A value at a path is set; NULL: taken out. */
static json_t *with(const json_t *certificate, const char *path, json_t *value) {
  const char *key = NULL;
  size_t at = 0;
  json_t *copy = json_deep_copy(certificate), *of_key = holder(copy, path, &key, &at);
  if (value != NULL && json_is_array(of_key))
    json_array_set_new(of_key, at, value);
  else if (value != NULL)
    json_object_set_new(of_key, key, value);
  else
    json_object_del(of_key, key);
  return copy;
}

/* Of a certificate over ranks that was made by hand. */
START_TEST(fields_of_ranks_are_checked) {
  static const struct {
    const char *path;
    const char *value; /* JSON; NULL: absent */
    const char *says;
  } rows[] = {
      {"asked.method", NULL, "asked.method of the certificate is not a text"},
      {"asked.method", "5", "asked.method of the certificate is not a text"},
      {"asked.mask", "7", "asked.mask of the certificate is not a text"},
      {"asked.mask", "\"no mask\"", "asked.mask of the certificate is no mask"},
      {"asked.method_options", "[1]", "asked.method_options of the certificate is not an object"},
      {"asked.method_options", "{\"fraction\": 1}", "asked.method_options.fraction"},
      {"asked.seed", "8589934592", "asked.seed of the certificate is not a whole number from 0 to 2^32"},
      {"cells.1.ranks", NULL, "cells[1].ranks of the certificate is not 1 to 1024"},
      {"cells.1.ranks", "0", "cells[1].ranks of the certificate is not 1 to 1024"},
      {"cells.1.ranks", "1025", "cells[1].ranks of the certificate is not 1 to 1024"},
      {"cells.2",
       "{\"table\": \"auto\", \"run\": \"all\", \"equal\": true, \"threads\": 17, \"ranks\": 1000}",
       "cells[2].ranks of the certificate is not 1 to 16384 over"}};
  write_gpt2();
  json_t *made = make(), *of_asked = json_object_get(made, "asked"), *cell;
  size_t k;
  json_object_set_new(made, "word", json_string("ranks"));
  json_object_set_new(of_asked, "method", json_string("row_parallel"));
  json_object_set_new(of_asked, "method_options", json_object());
  json_object_set_new(of_asked, "mask", json_null());
  json_array_foreach(json_object_get(made, "cells"), k, cell)
      json_object_set_new(cell, "ranks", json_integer(2));
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    json_t *value = rows[i].value != NULL ? json_loads(rows[i].value, JSON_DECODE_ANY, NULL) : NULL;
    json_t *other = with(made, rows[i].path, value);
    ck_assert_msg(check(other) == NULL && err.code == BS_INPUT && strstr(err.message, rows[i].says) != NULL,
                  "%s %s: %d %s", rows[i].path, rows[i].value, err.code, err.message);
    json_decref(other);
  }
  json_decref(made);
}
END_TEST

/* Cells of the first rows alone say nothing of the others. */
START_TEST(some_cell_has_all_rows) {
  write_gpt2();
  json_t *made = make(), *cells = json_array(), *cell;
  size_t i;
  json_array_foreach(json_object_get(made, "cells"), i, cell) {
    if (strcmp(json_string_value(json_object_get(cell, "run")), "first 2") == 0)
      json_array_append(cells, cell);
  }
  json_object_set_new(made, "cells", cells);
  ck_assert_ptr_null(check(made));
  ck_assert_int_eq(err.code, BS_UNAVAILABLE);
  ck_assert_msg(strstr(err.message, "output.sha256 was compared with nothing") != NULL, "%s", err.message);
  json_decref(made);
}
END_TEST

START_TEST(no_row_is_no_certificate) {
  static const char *const dims[] = {"sequence=0"};
  const bs_model_request request = {.path = files_folder, .dims = {dims, 1}};
  json_t *made = NULL;
  write_gpt2();
  ck_assert_int_eq(bs_model_repro(&request, &asked, &made, &err), BS_UNSUPPORTED);
  ck_assert_msg(strstr(err.message, "nothing was compared") != NULL, "%s", err.message);
  ck_assert_ptr_null(made);
}
END_TEST

int main(void) {
  const test_case tests[] = {{equal_outputs_pass_in_every_cell},
                             {each_flipped_digit_is_named},
                             {an_input_that_is_left_out_is_named},
                             {other_outputs_name_cell_and_row},
                             {a_changed_model_is_named},
                             {linked_files_have_the_names_of_links},
                             {made_constants_are_named},
                             {absent_tables_are_left_out},
                             {what_is_no_certificate_is_refused},
                             {fields_of_ranks_are_checked},
                             {some_cell_has_all_rows},
                             {no_row_is_no_certificate},
                             {0}};
  return run_tests("certificate", tests, (test_setup){.before = files_begin, .after = files_end});
}
