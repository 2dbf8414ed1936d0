/* SPDX-License-Identifier: MIT
 * test_abi_rules.c - the acceptance rules with simulated hosts and plugins: 0.m (exact) and 1.x (older and
 * newer minors, append only). */
#include <limits.h>

#include "core/plugin/accept.h"
#include "core/plugin/note.h"
#include "tests/plugin/plugin_test.h"

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
  TCase *t = tcase_create("abi_rules");
  tcase_add_loop_test(t, versions, 0, (int)(sizeof abi_cases / sizeof abi_cases[0]));
  tcase_add_loop_test(t, sizes, 0, (int)(sizeof size_cases / sizeof size_cases[0]));
  tcase_add_test(t, copies_of_other_releases);
  tcase_add_test(t, ledgers);
  tcase_add_test(t, sanitizers);
  tcase_add_test(t, ledger_hash);
  tcase_add_test(t, note_of_a_file);
  return test_main(t, "abi_rules");
}
