/* SPDX-License-Identifier: MIT
 * test_abi_rules.c - the acceptance rules with simulated hosts and plugins: 0.m (exact) and 1.x (older and
 * newer minors, append only). */
#include <limits.h>

#include "core/plugin/accept.h"
#include "core/plugin/note.h"
#include "core/plugin/slots.h"
#include "tests/plugin/plugin_test.h"
#include "tests/run_tests.h"

typedef struct abi_case {
  uint32_t host, plugin, min_host_minor;
  int accepted;
  const char *text;
} abi_case;

static const abi_case abi_cases[] = {
    /* before 1.0: the same minor or nothing */
    {BS_ABI_MAKE(0, 1), BS_ABI_MAKE(0, 1), 1, 1, NULL},
    {BS_ABI_MAKE(0, 1), BS_ABI_MAKE(0, 1), 0, 1, NULL},
    {BS_ABI_MAKE(0, 3), BS_ABI_MAKE(0, 2), 0, 0, "built for plugin ABI 0.2, host has 0.3"},
    {BS_ABI_MAKE(0, 2), BS_ABI_MAKE(0, 3), 0, 0, "built for plugin ABI 0.3, host has 0.2"},
    {BS_ABI_MAKE(0, 1), BS_ABI_MAKE(1, 1), 0, 0, "built for plugin ABI 1, host has 0"},
    {BS_ABI_MAKE(0, 1), 0, 0, 0, "states no plugin ABI version (0), host has 0.1"},
    /* 1.x: older and newer minors */
    {BS_ABI_MAKE(1, 0), BS_ABI_MAKE(1, 0), 0, 1, NULL},
    {BS_ABI_MAKE(1, 5), BS_ABI_MAKE(1, 0), 0, 1, NULL},
    {BS_ABI_MAKE(1, 0), BS_ABI_MAKE(1, 5), 0, 1, NULL},
    {BS_ABI_MAKE(1, 0), BS_ABI_MAKE(1, 65535), 0, 1, NULL},
    {BS_ABI_MAKE(1, 2), BS_ABI_MAKE(1, 5), 2, 1, NULL},
    {BS_ABI_MAKE(1, 2), BS_ABI_MAKE(1, 5), 3, 0, "needs plugin ABI 1.3 or newer, host has 1.2"},
    {BS_ABI_MAKE(1, 0), BS_ABI_MAKE(0, 1), 0, 0, "built for plugin ABI 0, host has 1"},
    {BS_ABI_MAKE(1, 4), BS_ABI_MAKE(2, 0), 0, 0, "built for plugin ABI 2, host has 1"},
    {BS_ABI_MAKE(2, 0), BS_ABI_MAKE(1, 9), 0, 0, "built for plugin ABI 1, host has 2"},
    {BS_ABI_MAKE(1, 0), 0, 0, 0, "states no plugin ABI version (0), host has 1.0"},
};

START_TEST(versions) {
  const abi_case *c = &abi_cases[_i];
  bs_error err = BS_ERROR_INIT;
  int32_t rc = bs_accept_abi(c->host, c->plugin, c->min_host_minor, &err);
  ck_assert_int_eq(rc, c->accepted ? BS_OK : BS_ABI);
  ck_assert_int_eq(bs_accept_abi(c->host, c->plugin, c->min_host_minor, NULL), rc);
  if (c->accepted) return;
  ck_assert_str_eq(err.id, "BS-PLG-ABI");
  ck_assert_has(err.message, c->text);
  ck_assert_has(err.hint, "rebuild");
}
END_TEST

typedef struct size_case {
  uint32_t host;
  uint64_t seen, frozen, current;
  int accepted;
} size_case;

static const size_case size_cases[] = {
    {BS_ABI_MAKE(0, 1), 112, 112, 112, 1},
    {BS_ABI_MAKE(0, 1), 104, 112, 112, 0}, /* short */
    {BS_ABI_MAKE(0, 1), 120, 112, 112, 0}, /* same number, longer struct: other headers */
    {BS_ABI_MAKE(0, 1), 0, 112, 112, 0},
    {BS_ABI_MAKE(1, 3), 112, 112, 136, 1}, /* as 1.0 had it */
    {BS_ABI_MAKE(1, 3), 120, 112, 136, 1}, /* between */
    {BS_ABI_MAKE(1, 3), 136, 112, 136, 1},
    {BS_ABI_MAKE(1, 3), 400, 112, 136, 1}, /* newer: the unknown tail is ignored */
    {BS_ABI_MAKE(1, 3), 111, 112, 136, 0},
    {BS_ABI_MAKE(1, 3), 0, 112, 136, 0},
};

START_TEST(sizes) {
  const size_case *c = &size_cases[_i];
  bs_error err = BS_ERROR_INIT;
  int32_t rc = bs_accept_size(c->host, "bs_method", c->seen, c->frozen, c->current, &err);
  ck_assert_int_eq(rc, c->accepted ? BS_OK : BS_ABI);
  if (c->accepted) return;
  ck_assert_str_eq(err.id, "BS-PLG-SIZE");
  ck_assert_has(err.message, "bs_method");
  ck_assert_has(err.message, "112"); /* both numbers are said */
}
END_TEST

/* Frozen structs of three releases, and what a host of the last makes of each. */
typedef struct thing_10 {
  uint32_t struct_size, flags;
  const char *name;
} thing_10;
typedef struct thing_11 {
  uint32_t struct_size, flags;
  const char *name;
  uint64_t added;
} thing_11;
typedef struct thing_12 {
  uint32_t struct_size, flags;
  const char *name;
  uint64_t added;
  void (*last)(void);
} thing_12;

START_TEST(copies_of_other_releases) {
  const uint32_t host = BS_ABI_MAKE(1, 1);
  thing_10 old = {sizeof(thing_10), 7, "old"};
  thing_12 newer = {sizeof(thing_12), 9, "new", 5, NULL};
  thing_11 mine;
  memset(&mine, 0xff, sizeof mine);
  ck_assert_int_eq(bs_accept_size(host, "thing", old.struct_size, sizeof(thing_10), sizeof mine, NULL),
                   BS_OK);
  bs_copy_in(&mine, sizeof mine, &old, old.struct_size);
  ck_assert_uint_eq(mine.struct_size, sizeof mine);
  ck_assert_uint_eq(mine.flags, 7);
  ck_assert_str_eq(mine.name, "old");
  ck_assert_uint_eq(mine.added, 0); /* an absent slot is zero, whatever lay there */
  memset(&mine, 0xff, sizeof mine);
  ck_assert_int_eq(bs_accept_size(host, "thing", newer.struct_size, sizeof(thing_10), sizeof mine, NULL),
                   BS_OK);
  bs_copy_in(&mine, sizeof mine, &newer, newer.struct_size);
  ck_assert_uint_eq(mine.struct_size, sizeof mine);
  ck_assert_uint_eq(mine.added, 5);
}
END_TEST

/* The real struct: what a method of 1.0 lacked is zero in a later host, what one of 1.9 has more is not
 * looked at; before 1.0 neither is accepted. */
START_TEST(methods_of_other_releases) {
  struct {
    bs_method now;
    uint64_t tail[2];
  } newer;
  const size_t frozen = offsetof(bs_method, mask_kinds); /* as if that field had come in 1.1 */
  static const char *const any = "name";
  bs_method old, mine;
  bs_error err = BS_ERROR_INIT;
  memset(&old, 0, sizeof old);
  for (uint32_t i = 0; i < bs_slot_count; i++)
    if (bs_slots[i].kind == BS_KIND_METHOD) memcpy((char *)&old + bs_slots[i].offset, &any, sizeof any);
  old.mask_kinds = BS_MASK_KINDS_ALL; /* what lies behind an old struct is not its own */
  old.struct_size = (uint32_t)frozen;
  memset(&newer, 0xff, sizeof newer);
  newer.now = old;
  newer.now.struct_size = (uint32_t)sizeof newer;
  const struct {
    const void *vtable;
    uint32_t size;
    uint64_t mask_kinds;
  } cases[] = {{&old, old.struct_size, 0}, {&newer, newer.now.struct_size, BS_MASK_KINDS_ALL}};
  for (size_t i = 0; i < 2; i++) {
    ck_assert_int_eq(bs_accept_size(BS_ABI_MAKE(1, 5), "bs_method", cases[i].size, frozen, sizeof mine, &err),
                     BS_OK);
    memset(&mine, 0xff, sizeof mine);
    bs_copy_in(&mine, sizeof mine, cases[i].vtable, cases[i].size);
    ck_assert_uint_eq(mine.struct_size, sizeof mine);
    ck_assert_uint_eq(mine.mask_kinds, cases[i].mask_kinds);
    ck_assert_str_eq(mine.name, "name");
    ck_assert_ptr_null(mine.aliases); /* a NULL slot stays one: the default */
    ck_assert_int_eq(bs_slots_check(BS_KIND_METHOD, &mine, &err), BS_OK);
    ck_assert_int_eq(bs_accept_size(BS_ABI_VERSION, "bs_method", cases[i].size, frozen, sizeof mine, &err),
                     BS_ABI);
  }
  /* A required slot behind the end of a short struct is a missing slot, whatever lies there. */
  old.struct_size = (uint32_t)offsetof(bs_method, read_weights);
  bs_copy_in(&mine, sizeof mine, &old, old.struct_size);
  ck_assert_int_eq(bs_slots_check(BS_KIND_METHOD, &mine, &err), BS_PLUGIN);
  ck_assert_has(err.message, "slot 'read_weights' is NULL");
}
END_TEST

/* An implementation of 0.8, as if 1.0 had been that: it has no knobs and no echo, whatever lies behind it;
 * one with knobs needs the echo. Of a later release, a knob may be longer. */
START_TEST(implementations_without_knobs) {
  struct {
    bs_knob now;
    uint64_t tail[2];
  } newer = {{sizeof newer, 0, "keys", "16:64*2", "auto", "keys of a block"}, {~0ull, ~0ull}};
  const size_t frozen = offsetof(bs_op_impl, n_knobs);
  static const char *const any = "name";
  bs_op_impl old, mine;
  bs_knob knob;
  bs_error err = BS_ERROR_INIT;
  memset(&old, 0xff, sizeof old);
  memset(&old, 0, frozen);
  for (uint32_t i = 0; i < bs_slot_count; i++)
    if (bs_slots[i].kind == BS_KIND_OP && bs_slots[i].when == BS_SLOT_ALWAYS)
      memcpy((char *)&old + bs_slots[i].offset, &any, sizeof any);
  old.struct_size = (uint32_t)frozen;
  ck_assert_int_eq(bs_accept_copy(BS_ABI_MAKE(1, 1), "bs_op_impl", &old, frozen, &mine, sizeof mine, &err),
                   BS_OK);
  ck_assert_uint_eq(mine.n_knobs, 0);
  ck_assert_ptr_null(mine.knobs);
  ck_assert(mine.echo == NULL);
  ck_assert_int_eq(bs_slots_check(BS_KIND_OP, &mine, &err), BS_OK);
  mine.n_knobs = 1;
  ck_assert_int_eq(bs_slots_check(BS_KIND_OP, &mine, &err), BS_PLUGIN);
  ck_assert_has(err.message, "slot 'echo' is NULL, it is required with knobs");
  ck_assert_int_eq(bs_accept_copy(BS_ABI_VERSION, "bs_op_impl", &old, frozen, &mine, sizeof mine, &err),
                   BS_ABI);
  ck_assert_int_eq(
      bs_accept_copy(BS_ABI_MAKE(1, 1), "bs_knob", &newer, sizeof knob, &knob, sizeof knob, &err), BS_OK);
  ck_assert_uint_eq(knob.struct_size, sizeof knob);
  ck_assert_str_eq(knob.values, "16:64*2");
}
END_TEST

/* Declarations of parameters too: as if `doc` had come in 1.1, and from a plugin that knows more. */
START_TEST(parameters_of_other_releases) {
  struct {
    bs_param_desc now;
    uint64_t tail[2];
  } newer = {{sizeof newer, BS_PARAM_INT, "steps", "3", "1..9", NULL, "how many"}, {~0ull, ~0ull}};
  const size_t frozen = offsetof(bs_param_desc, doc);
  bs_param_desc old = newer.now, mine;
  bs_error err = BS_ERROR_INIT;
  old.struct_size = (uint32_t)frozen;
  const uint32_t host = BS_ABI_MAKE(1, 5);
  ck_assert_int_eq(bs_accept_copy(host, "bs_param_desc", &old, frozen, &mine, sizeof mine, &err), BS_OK);
  ck_assert_uint_eq(mine.struct_size, sizeof mine);
  ck_assert_str_eq(mine.name, "steps");
  ck_assert_ptr_null(mine.doc); /* what lies behind the old struct is not its own */
  ck_assert_int_eq(bs_accept_copy(host, "bs_param_desc", &newer, frozen, &mine, sizeof mine, &err), BS_OK);
  ck_assert_str_eq(mine.doc, "how many");
  old.struct_size = (uint32_t)frozen - 8;
  ck_assert_int_eq(bs_accept_copy(host, "bs_param_desc", &old, frozen, &mine, sizeof mine, &err), BS_ABI);
  ck_assert_int_eq(bs_accept_copy(host, "bs_param_desc", NULL, frozen, &mine, sizeof mine, &err), BS_ABI);
  ck_assert_str_eq(err.id, "BS-PLG-SIZE");
  for (uint32_t size = (uint32_t)frozen; size <= sizeof newer; size += (uint32_t)(sizeof newer - frozen)) {
    newer.now.struct_size = size; /* before 1.0 the very same size or nothing */
    ck_assert_int_eq(bs_accept_copy(BS_ABI_VERSION, "x", &newer, frozen, &mine, sizeof mine, &err), BS_ABI);
  }
}
END_TEST

/* A plugin of 1.0 and one of 1.7 at a host of 1.3, step by step as a file meets it. */
START_TEST(a_host_between_two_plugins) {
  const uint32_t host = BS_ABI_MAKE(1, 3);
  const struct {
    uint32_t abi, needs;
    uint64_t desc_size, ledger;
    int32_t rc;
    const char *id;
  } plugins[] = {{BS_ABI_MAKE(1, 0), 0, 80, 10, BS_OK, NULL},
                 {BS_ABI_MAKE(1, 3), 3, 88, 13, BS_OK, NULL},
                 {BS_ABI_MAKE(1, 7), 2, 120, 17, BS_OK, NULL},
                 {BS_ABI_MAKE(1, 7), 4, 120, 17, BS_ABI, "BS-PLG-ABI"}, /* uses what this host lacks */
                 {BS_ABI_MAKE(1, 3), 0, 88, 14, BS_ABI, "BS-PLG-ABI"},  /* the same number, other headers */
                 {BS_ABI_MAKE(1, 0), 0, 72, 10, BS_ABI, "BS-PLG-SIZE"}, /* less than 1.0 had */
                 {BS_ABI_MAKE(0, 9), 0, 80, 9, BS_ABI, "BS-PLG-ABI"}};
  for (size_t i = 0; i < sizeof plugins / sizeof plugins[0]; i++) {
    bs_error err = BS_ERROR_INIT;
    int32_t rc = bs_accept_abi(host, plugins[i].abi, plugins[i].needs, &err);
    if (rc == BS_OK) rc = bs_accept_ledger(host, plugins[i].abi, 13, plugins[i].ledger, &err);
    if (rc == BS_OK) rc = bs_accept_size(host, "bs_plugin_desc", plugins[i].desc_size, 80, 88, &err);
    ck_assert_msg(rc == plugins[i].rc, "plugin %zu: %s %s", i, err.id, err.message);
    if (rc != BS_OK) ck_assert_str_eq(err.id, plugins[i].id);
  }
}
END_TEST

/* What a file says of the hosts that serve it: the minor of its headers, or the older one that its author
 * names. A host of that one takes it when the rules of 1.x are on, and this one now. */
START_TEST(the_oldest_host) {
  const struct {
    const char *id;
    uint32_t min_host_minor;
  } cases[] = {{"good", BS_ABI_MINOR}, {"older", 1}};
  for (int i = 0; i < 2; i++) {
    bs_elf_info info;
    test_log log = TEST_LOG_INIT;
    const char *path = fixture(cases[i].id);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(bs_elf_read(fd, &info, NULL), BS_OK);
    close(fd);
    ck_assert_uint_eq(info.note.min_host_minor, cases[i].min_host_minor);
    const uint32_t host = BS_ABI_MAKE(1, 1), plugin = BS_ABI_MAKE(1, BS_ABI_MINOR);
    ck_assert_int_eq(bs_accept_abi(host, plugin, info.note.min_host_minor, NULL), i == 0 ? BS_ABI : BS_OK);
    bs_context *c = test_open(&log, &path, 1);
    ck_assert_int_eq(bs_plugin_activate(c, cases[i].id, NULL), BS_OK); /* note and descriptor say the same */
    bs_context_close(c);
  }
}
END_TEST

/* Numbers that one side does not know: a code is INTERNAL, a value of an enum is unsupported or a text that
 * says so, a bit of a set is passed over; none is an index. */
START_TEST(unknown_numbers) {
  static const uint32_t far[] = {31, 77, 0x7fffffffu, 0xffffffffu};
  bs_elf_info info;
  char out[8];
  for (size_t i = 0; i < sizeof far / sizeof far[0]; i++) {
    const uint32_t n = far[i];
    ck_assert_str_eq(bs_status_name((int32_t)n), "INTERNAL");
    ck_assert_int_eq(bs_status_exit_code((int32_t)n), 70);
    ck_assert_str_eq(bs_reason_name(n), "unknown reason");
    ck_assert_str_eq(bs_level_name(n), "?");
    ck_assert_str_eq(bs_dtype_name(n), "?");
    ck_assert_int_eq(bs_convert(n, out, BS_F32, "1234", 1), BS_UNSUPPORTED);
    ck_assert_int_eq(bs_convert(BS_F32, out, n, "1234", 1), BS_UNSUPPORTED);
    ck_assert_uint_eq(bs_kind_size(n), 0);
    ck_assert_int_eq(bs_accept_sanitizer(BS_SAN_NONE, n, NULL), BS_ABI);
  }
  ck_assert_int_eq(bs_status_exit_code(-1), 70);
  int fd = open(fixture("good"), O_RDONLY | O_CLOEXEC);
  ck_assert_int_ge(fd, 0);
  ck_assert_int_eq(bs_elf_read(fd, &info, NULL), BS_OK);
  close(fd);
  info.note.kinds |= 1u << 30; /* a kind of a later minor beside those known */
  ck_assert_int_eq(bs_note_accept(&info, NULL), BS_OK);
}
END_TEST

START_TEST(ledgers) {
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(bs_accept_ledger(BS_ABI_MAKE(0, 1), BS_ABI_MAKE(0, 1), 5, 5, &err), BS_OK);
  ck_assert_int_eq(bs_accept_ledger(BS_ABI_MAKE(0, 1), BS_ABI_MAKE(0, 1), 5, 6, &err), BS_ABI);
  ck_assert_has(err.message, "same ABI number 0.1, other headers");
  /* other minors of 1.x have other ledgers by nature; the same minor must have the same */
  ck_assert_int_eq(bs_accept_ledger(BS_ABI_MAKE(1, 2), BS_ABI_MAKE(1, 1), 5, 6, &err), BS_OK);
  ck_assert_int_eq(bs_accept_ledger(BS_ABI_MAKE(1, 2), BS_ABI_MAKE(1, 2), 5, 6, &err), BS_ABI);
}
END_TEST

START_TEST(sanitizers) {
  bs_error err = BS_ERROR_INIT;
  ck_assert_int_eq(bs_accept_sanitizer(BS_SAN_THREAD, BS_SAN_THREAD, &err), BS_OK);
  ck_assert_int_eq(bs_accept_sanitizer(BS_SAN_NONE, BS_SAN_ADDRESS, &err), BS_ABI);
  ck_assert_str_eq(err.hint, "build the plugin without -fsanitize=address");
  ck_assert_int_eq(bs_accept_sanitizer(BS_SAN_THREAD, BS_SAN_NONE, &err), BS_ABI);
  ck_assert_str_eq(err.hint, "build the plugin with -fsanitize=thread");
  ck_assert_int_eq(bs_accept_sanitizer(BS_SAN_NONE, 99, &err), BS_ABI);
}
END_TEST

/* The hash in the headers is that of the checked-in ledger. */
START_TEST(ledger_hash) {
  char path[1024];
  const char *source = getenv("BS_TEST_SOURCE_DIR");
  ck_assert_ptr_nonnull(source);
  snprintf(path, sizeof path, "%s/abi/ledger.txt", source);
  FILE *f = fopen(path, "r");
  ck_assert_msg(f != NULL, "open %s", path);
  uint64_t hash = UINT64_C(0xcbf29ce484222325);
  int c;
  while ((c = fgetc(f)) != EOF) hash = (hash ^ (uint64_t)(unsigned char)c) * UINT64_C(0x100000001b3);
  fclose(f);
  ck_assert_uint_eq(hash, BS_ABI_LEDGER_HASH);
}
END_TEST

/* The reader keeps the note as the plugin wrote it. */
START_TEST(note_of_a_file) {
  bs_elf_info info;
  bs_error err = BS_ERROR_INIT;
  int fd = open(fixture("good"), O_RDONLY | O_CLOEXEC);
  ck_assert_int_ge(fd, 0);
  ck_assert_int_eq(bs_elf_read(fd, &info, &err), BS_OK);
  close(fd);
  ck_assert_uint_eq(info.has_note, 1);
  ck_assert_uint_eq(info.has_query, 1);
  ck_assert_uint_eq(info.has_other, 0);
  ck_assert_uint_eq(info.note_size, sizeof(bs_note));
  ck_assert_uint_eq(info.note.ledger_hash, BS_ABI_LEDGER_HASH);
  ck_assert_str_eq(info.note.id, "good");
  ck_assert_int_eq(bs_note_accept(&info, &err), BS_OK);
  info.note.summary[0] = '\033'; /* nothing that would disturb a terminal */
  ck_assert_int_eq(bs_note_accept(&info, &err), BS_PLUGIN);
  ck_assert_str_eq(err.id, "BS-PLG-NOTE");
  info.note.summary[0] = 'a';
  memset(info.note.version, '1', sizeof info.note.version); /* not terminated */
  ck_assert_int_eq(bs_note_accept(&info, &err), BS_PLUGIN);
  memset(info.note.version, 0, sizeof info.note.version);
  ck_assert_int_eq(bs_note_accept(&info, &err), BS_OK);
  info.note.magic++;
  ck_assert_int_eq(bs_note_accept(&info, &err), BS_PLUGIN);
  info.note.magic--;
  info.note_size -= 8; /* states more than there is */
  ck_assert_int_eq(bs_note_accept(&info, &err), BS_PLUGIN);
}
END_TEST

int main(void) {
  const test_case tests[] = {{versions, TEST_COUNT(abi_cases)},
                             {sizes, TEST_COUNT(size_cases)},
                             {copies_of_other_releases},
                             {methods_of_other_releases},
                             {implementations_without_knobs},
                             {parameters_of_other_releases},
                             {a_host_between_two_plugins},
                             {the_oldest_host},
                             {unknown_numbers},
                             {ledgers},
                             {sanitizers},
                             {ledger_hash},
                             {note_of_a_file},
                             {0}};
  return run_tests("abi_rules", tests, (test_setup){0});
}
