/* SPDX-License-Identifier: MIT
 * test_abi_docs.c - docs/abi.md lists what the code has: the table of required slots, the error ids;
 * docs/dev/abi.md has the current ABI number; and each required slot, when NULL, is refused by name. */
#include "core/plugin/slots.h"
#include "tests/plugin/plugin_test.h"
#include "tests/run_tests.h"

static char *read_file(const char *path) {
  const char *source = getenv("BS_TEST_SOURCE_DIR");
  char full[1024];
  ck_assert_ptr_nonnull(source);
  snprintf(full, sizeof full, "%s/%s", source, path);
  FILE *f = fopen(full, "r");
  ck_assert_msg(f != NULL, "open %s", full);
  char *text = calloc(1, 1 << 20);
  ck_assert_ptr_nonnull(text);
  size_t n = fread(text, 1, (1 << 20) - 1, f);
  fclose(f);
  ck_assert_uint_gt(n, 0);
  return text;
}

START_TEST(slots_are_documented) {
  static const struct {
    uint32_t kind, when;
    const char *words;
  } rows[] = {
      {BS_KIND_OP, BS_SLOT_ALWAYS, "op"},
      {BS_KIND_OP, BS_SLOT_MATMUL, "op, every matmul"},
      {BS_KIND_OP, BS_SLOT_KNOBS, "op with knobs"},
      {BS_KIND_BACKEND, BS_SLOT_ALWAYS, "backend"},
      {BS_KIND_BACKEND, BS_SLOT_ASYNC, "backend without BS_BACKEND_SYNC"},
      {BS_KIND_BACKEND, BS_SLOT_WRAPPER, "backend that wraps another"},
      {BS_KIND_COMM, BS_SLOT_ALWAYS, "comm"},
      {BS_KIND_COMM, BS_SLOT_DRIVEN, "comm with launch DRIVEN"},
      {BS_KIND_COMM, BS_SLOT_WRAPPER, "comm that wraps another"},
      {BS_KIND_METHOD, BS_SLOT_ALWAYS, "method"},
      {BS_KIND_WORKLOAD, BS_SLOT_ALWAYS, "workload"},
      {BS_KIND_IMPORTER, BS_SLOT_ALWAYS, "importer"},
      {BS_KIND_ALGORITHM, BS_SLOT_ALWAYS, "algorithm"},
      {BS_KIND_ALGORITHM, BS_SLOT_NO_COST, "algorithm without cost"},
      {BS_KIND_TOPOLOGY, BS_SLOT_ALWAYS, "topology"},
  };
  char *docs = read_file("docs/abi.md");
  uint32_t seen = 0;
  for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
    char line[512];
    size_t n = (size_t)snprintf(line, sizeof line, "| %s |", rows[r].words);
    const char *comma = " ";
    for (uint32_t i = 0; i < bs_slot_count; i++) {
      if (bs_slots[i].kind != rows[r].kind || bs_slots[i].when != rows[r].when) continue;
      n += (size_t)snprintf(line + n, sizeof line - n, "%s%s", comma, bs_slots[i].name);
      comma = ", ";
      seen++;
    }
    snprintf(line + n, sizeof line - n, " |\n");
    ck_assert_has(docs, line);
  }
  ck_assert_uint_eq(seen, bs_slot_count); /* no slot outside the table's rows */
  free(docs);
}
END_TEST

/* Of core/plugin, and by their path. */
static const char *const sources[] = {
    "bsrun/inspect.c", "bsrun/probe.c", "core/op/knob.c", "accept.c", "activate.c", "context.c",
    "file.c",          "host.c",        "info.c",         "load.c",   "note.c",     "params.c",
    "registry.c",      "search.c",      "slots.c",        "stage.c",  "trust.c",    "wrap.c"};

/* Every id that the code can give is in the table, and the table has no other. */
START_TEST(error_ids_are_documented) {
  char *docs = read_file("docs/abi.md");
  char *code = calloc(1, 4 << 20);
  ck_assert_ptr_nonnull(code);
  uint32_t found = 0;
  for (size_t s = 0; s < sizeof sources / sizeof sources[0]; s++) {
    char path[128];
    snprintf(path, sizeof path, "%s%s", strchr(sources[s], '/') != NULL ? "" : "core/plugin/", sources[s]);
    char *text = read_file(path);
    strcat(code, text);
    for (const char *p = text; (p = strstr(p, "\"BS-PLG-")) != NULL; p++) {
      char row[64];
      snprintf(row, sizeof row, "| %.*s |", (int)strcspn(p + 1, "\""), p + 1);
      ck_assert_has(docs, row);
      found++;
    }
    free(text);
  }
  ck_assert_uint_gt(found, 40);
  for (const char *p = docs; (p = strstr(p, "| BS-PLG-")) != NULL; p++) {
    char quoted[64];
    snprintf(quoted, sizeof quoted, "\"%.*s\"", (int)strcspn(p + 2, " "), p + 2);
    ck_assert_has(code, quoted);
  }
  free(code);
  free(docs);
}
END_TEST

/* Every kind has a word, a size and a required name. */
START_TEST(kinds_are_whole) {
  char *docs = read_file("docs/abi.md");
  for (uint32_t kind = 0; kind < BS_KIND_COUNT_; kind++) {
    int named = 0;
    ck_assert_uint_gt(bs_kind_size(kind), 0);
    for (uint32_t i = 0; i < bs_slot_count; i++)
      named |= bs_slots[i].kind == kind && strcmp(bs_slots[i].name, "name") == 0;
    ck_assert_msg(named, "kind %u has no required name", kind);
  }
  ck_assert_has(docs, "\nimporter:onnx\nalgorithm:ring\ntopology:torus\n");
  free(docs);
}
END_TEST

START_TEST(current_abi_has_a_line) {
  char row[32];
  char *docs = read_file("docs/dev/abi.md");
  snprintf(row, sizeof row, "| %u.%u |", BS_ABI_MAJOR, BS_ABI_MINOR);
  ck_assert_has(docs, row);
  free(docs);
}
END_TEST

/* Each required slot NULL in turn, all else set: refused, the slot named. */
START_TEST(each_slot_is_checked) {
  for (uint32_t i = 0; i < bs_slot_count; i++) {
    const bs_slot *slot = &bs_slots[i];
    unsigned char vtable[512];
    bs_error err = BS_ERROR_INIT;
    char quoted[80];
    static const char *const matmul = "matmul";
    void *null = NULL;
    size_t size = bs_kind_size(slot->kind);
    ck_assert_uint_le(size, sizeof vtable);
    memset(vtable, 0, sizeof vtable);
    for (uint32_t j = 0; j < bs_slot_count; j++) /* any non-NULL pointer will do: nothing is called */
      if (bs_slots[j].kind == slot->kind) memcpy(vtable + bs_slots[j].offset, &matmul, sizeof matmul);
    if (slot->kind == BS_KIND_COMM) ((bs_comm *)(void *)vtable)->launch = BS_LAUNCH_DRIVEN;
    if (slot->kind == BS_KIND_COMM) memcpy(vtable + offsetof(bs_comm, wrap), &matmul, sizeof matmul);
    if (slot->kind == BS_KIND_BACKEND) memcpy(vtable + offsetof(bs_backend, wrap), &matmul, sizeof matmul);
    if (slot->kind == BS_KIND_ALGORITHM) ((bs_algorithm *)(void *)vtable)->kinds = 1;
    if (slot->kind == BS_KIND_OP) ((bs_op_impl *)(void *)vtable)->n_knobs = 1;
    ck_assert_int_eq(bs_slots_check(slot->kind, vtable, &err), BS_OK);
    memcpy(vtable + slot->offset, &null, sizeof null);
    ck_assert_int_eq(bs_slots_check(slot->kind, vtable, &err), BS_PLUGIN);
    ck_assert_str_eq(err.id, "BS-PLG-SLOT");
    snprintf(quoted, sizeof quoted, "slot '%s' is NULL", slot->name);
    ck_assert_has(err.message, quoted);
  }
}
END_TEST

/* The conditions: what is required only sometimes may be NULL the other times. */
START_TEST(conditions) {
  bs_error err = BS_ERROR_INIT;
  unsigned char vtable[512];
  static const char *const other = "rmsnorm";
  memset(vtable, 0, sizeof vtable);
  for (uint32_t j = 0; j < bs_slot_count; j++)
    if (bs_slots[j].kind == BS_KIND_OP && bs_slots[j].when == BS_SLOT_ALWAYS)
      memcpy(vtable + bs_slots[j].offset, &other, sizeof other);
  ck_assert_int_eq(bs_slots_check(BS_KIND_OP, vtable, &err), BS_OK); /* not a matmul: no pack */
  memset(vtable, 0, sizeof vtable);
  for (uint32_t j = 0; j < bs_slot_count; j++)
    if (bs_slots[j].kind == BS_KIND_BACKEND && bs_slots[j].when == BS_SLOT_ALWAYS)
      memcpy(vtable + bs_slots[j].offset, &other, sizeof other);
  ck_assert_int_eq(bs_slots_check(BS_KIND_BACKEND, vtable, &err), BS_PLUGIN);
  ((bs_backend *)(void *)vtable)->flags = BS_BACKEND_SYNC;
  ck_assert_int_eq(bs_slots_check(BS_KIND_BACKEND, vtable, &err), BS_OK);
  memset(vtable, 0, sizeof vtable);
  for (uint32_t j = 0; j < bs_slot_count; j++)
    if (bs_slots[j].kind == BS_KIND_COMM && bs_slots[j].when == BS_SLOT_ALWAYS)
      memcpy(vtable + bs_slots[j].offset, &other, sizeof other);
  ck_assert_int_eq(bs_slots_check(BS_KIND_COMM, vtable, &err), BS_PLUGIN); /* launch 0 */
  ck_assert_has(err.message, "slot 'launch' is 0");
  ((bs_comm *)(void *)vtable)->launch = BS_LAUNCH_THREADS;
  ck_assert_int_eq(bs_slots_check(BS_KIND_COMM, vtable, &err), BS_OK);
}
END_TEST

int main(void) {
  const test_case tests[] = {{slots_are_documented},
                             {error_ids_are_documented},
                             {kinds_are_whole},
                             {current_abi_has_a_line},
                             {each_slot_is_checked},
                             {conditions},
                             {0}};
  return run_tests("abi_docs", tests, (test_setup){0});
}
