/* SPDX-License-Identifier: MIT
 * test_bsrun_new.c - `bsrun plugins new`: a folder of each kind in which only the names are changed, that
 * builds with make and is usable under its new name. tests/cases/plugins.case has
 * what is refused. */
#include <dirent.h>

#include "blockshock/plugin.h"
#include "tests/run_tests.h"
#include "tests/spawn.h"

static void setup(void) {
  dir = scratch_dir();
  ck_assert_int_eq(chmod(dir, 0700), 0);
}

/* op: NULL where the kind has none. */
static const struct {
  const char *kind, *op;
} made_of[] = {{"op", "activate"},  {"op", "attention"}, {"op", "map"},    {"op", "matmul"},
               {"op", "normalize"}, {"backend", NULL},   {"method", NULL}, {"communicator", NULL},
               {"workload", NULL},  {"algorithm", NULL}};
enum { KINDS = sizeof made_of / sizeof made_of[0] };

static ran make_plugin(int i, const char *id, const char *folder) {
  return bsrun(dir, "plugins", "new", id, "--to", folder, "--kind", made_of[i].kind,
               made_of[i].op != NULL ? "--op" : NULL, made_of[i].op, NULL);
}

static int entries(const char *path) {
  int n = 0;
  DIR *d = opendir(path);
  ck_assert_msg(d != NULL, "%s", path);
  for (const struct dirent *e = readdir(d); e != NULL; e = readdir(d)) n += e->d_name[0] != '.';
  closedir(d);
  return n;
}

/* Every token of the skeleton in `text` replaced: what the generator must have written. */
static char *expected(const char *text, const char *kind, const char *id, const char *label) {
  char token[32], label_token[32];
  char *out = calloc(1, 1u << 20);
  snprintf(token, sizeof token, "skel_%s", kind);
  snprintf(label_token, sizeof label_token, "SKEL-%s", kind);
  for (char *p = label_token; *p != '\0'; p++) *p = (char)(*p >= 'a' && *p <= 'z' ? *p - 32 : *p);
  for (size_t at = 0; *text != '\0';) {
    const char *put = strncmp(text, token, strlen(token)) == 0               ? id
                      : strncmp(text, label_token, strlen(label_token)) == 0 ? label
                                                                             : NULL;
    if (put == NULL) {
      out[at++] = *text++;
    } else {
      text += put == id ? strlen(token) : strlen(label_token);
      memcpy(out + at, put, strlen(put));
      at += strlen(put);
    }
  }
  return out;
}

/* All files of a skeleton's folder, with nothing but names changed; how many. */
static int check_files(const char *made, const char *folder, const char *kind, const char *id,
                       const char *label) {
  char from[1024], to[1024];
  int files = 0;
  snprintf(from, sizeof from, "%s/plugins/skeleton/%s", getenv("BS_TEST_SOURCE_DIR"), folder);
  snprintf(to, sizeof to, "%s/%s", dir, made);
  DIR *d = opendir(from);
  ck_assert_ptr_nonnull(d);
  for (const struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
    if (e->d_name[0] == '.' || strstr(e->d_name, ".so") != NULL || strcmp(e->d_name, "build") == 0) continue;
    char *name = expected(e->d_name, kind, id, label), *text = read_text(from, e->d_name);
    char *want = expected(text, kind, id, label), *got = read_text(to, name);
    ck_assert_msg(got != NULL, "%s is missing", name);
    ck_assert_msg(strcmp(got, want) == 0, "%s differs from the skeleton by more than names", name);
    free(name);
    free(text);
    free(want);
    free(got);
    files++;
  }
  closedir(d);
  return files;
}

START_TEST(only_names_are_changed) {
  char command[700], found[64], folder[64], to[700];
  ran r = make_plugin(_i, "acme_2", "acme_2");
  must_be(&r, 0);
  int files = check_files("acme_2", made_of[_i].kind, made_of[_i].kind, "acme_2", "ACME-2");
  snprintf(folder, sizeof folder, "op_%s", made_of[_i].op);
  if (made_of[_i].op != NULL) files += check_files("acme_2", folder, "op", "acme_2", "ACME-2");
  snprintf(to, sizeof to, "%s/acme_2", dir);
  ck_assert_int_gt(files, 6);
  ck_assert_int_eq(entries(to), files);
  snprintf(command, sizeof command, "grep -riE 'skel[-_]' '%s/acme_2' > '%s/left'; true", dir, dir);
  ck_assert_int_eq(system(command), 0);
  char *left = read_text(dir, "left");
  ck_assert_msg(left[0] == '\0', "left: %s", left);
  free(left);
  snprintf(found, sizeof found, "make -C acme_2 check");
  ck_assert_msg(strstr(r.out, found) != NULL && strstr(r.out, "./acme_2/bs_acme_2.so") != NULL, "%s", r.out);
  ck_assert_str_eq(r.err, "");
  ran_free(&r);
}
END_TEST

/* With the longest id, which must fit wherever it is put; by make, with this tree's headers. */
START_TEST(what_is_made_builds_and_opens) {
  const char *id = _i < KINDS ? "acme" : "a234567890123456789012345678901";
  const char *source = getenv("BS_TEST_SOURCE_DIR"), *cc = getenv("CC");
  const char *sanitize = BS_THIS_SANITIZER == BS_SAN_ADDRESS  ? "-fsanitize=address"
                         : BS_THIS_SANITIZER == BS_SAN_THREAD ? "-fsanitize=thread"
                                                              : "-Wl,-z,defs";
  char command[3000], so[600];
  ran r = make_plugin(_i % KINDS, id, "made here");
  must_be(&r, 0);
  ran_free(&r);
  snprintf(command, sizeof command,
           "make -s -C '%s/made here' CC='%s' LDFLAGS='%s' SDK_CFLAGS='-I%s/include -fPIC "
           "-fvisibility=hidden' > '%s/log' 2>&1",
           dir, cc != NULL ? cc : "cc", sanitize, source, dir);
  if (system(command) != 0) ck_abort_msg("%s", read_text(dir, "log"));
  snprintf(so, sizeof so, "%s/made here/bs_%s.so", dir, id);
  r = bsrun(dir, "plugins", "inspect", so, "-o", "json", NULL);
  must_be(&r, 0);
  ck_assert_msg(strstr(r.out, id) != NULL && strstr(r.out, "skel") == NULL, "%s", r.out);
  ran_free(&r);
}
END_TEST

int main(void) {
  const test_case tests[] = {
      {only_names_are_changed, KINDS}, {what_is_made_builds_and_opens, 2 * KINDS}, {0}};
  return run_tests("bsrun_new", tests, (test_setup){setup, dir_remove});
}
