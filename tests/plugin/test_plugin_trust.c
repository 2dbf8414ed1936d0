/* SPDX-License-Identifier: MIT
 * test_plugin_trust.c - who may have written a plugin: the table of the rule, the chain of folders, and the
 * answers of a context under owner, group and any. */
#include <grp.h>
#include <limits.h>

#include "core/plugin/trust.h"
#include "tests/plugin/plugin_test.h"
#include "tests/run_tests.h"

typedef struct judge_case {
  uint32_t trust;
  uid_t uid;
  int our_group;
  mode_t mode;
  int trusted;
  const char *why;
} judge_case;

/* euid is 1000 in all of them */
static const judge_case judge_cases[] = {
    {BS_TRUST_OWNER, 0, 0, S_IFREG | 0644, 1, NULL},
    {BS_TRUST_OWNER, 1000, 0, S_IFREG | 0600, 1, NULL},
    {BS_TRUST_OWNER, 1000, 0, S_IFDIR | 0755, 1, NULL},
    {BS_TRUST_OWNER, 1001, 0, S_IFREG | 0644, 0, "owned by uid 1001"},
    {BS_TRUST_OWNER, 1001, 1, S_IFREG | 0644, 0, "owned by uid 1001"},
    {BS_TRUST_OWNER, 1000, 1, S_IFREG | 0664, 0, "group-writable"},
    {BS_TRUST_OWNER, 0, 0, S_IFDIR | 0775, 0, "group-writable"},
    {BS_TRUST_OWNER, 1000, 0, S_IFREG | 0646, 0, "world-writable"},
    {BS_TRUST_OWNER, 0, 0, S_IFDIR | 0777, 0, "world-writable"},
    {BS_TRUST_OWNER, 0, 0, S_IFDIR | S_ISVTX | 0777, 0, "sticky"},
    {BS_TRUST_GROUP, 1000, 1, S_IFREG | 0664, 1, NULL},
    {BS_TRUST_GROUP, 1001, 1, S_IFREG | 0664, 1, NULL},
    {BS_TRUST_GROUP, 1001, 0, S_IFREG | 0644, 0, "owned by uid 1001"},
    {BS_TRUST_GROUP, 0, 0, S_IFDIR | 0775, 0, "group-writable"},
    {BS_TRUST_GROUP, 1000, 1, S_IFREG | 0666, 0, "world-writable"},
    {BS_TRUST_GROUP, 0, 0, S_IFDIR | S_ISVTX | 0777, 0, "sticky"},
    {BS_TRUST_ANY, 1001, 0, S_IFREG | 0666, 1, NULL},
};

static struct stat stat_of(uid_t uid, gid_t gid, mode_t mode) {
  struct stat st;
  memset(&st, 0, sizeof st);
  st.st_uid = uid;
  st.st_gid = gid;
  st.st_mode = mode;
  return st;
}

/* A group this process is not in. */
static gid_t foreign_group(void) {
  gid_t groups[1024];
  int n = getgroups(1024, groups);
  for (gid_t gid = 54321;; gid++) {
    int ours = gid == getegid();
    for (int i = 0; i < n; i++) ours |= groups[i] == gid;
    if (!ours) return gid;
  }
}

START_TEST(rule) {
  const judge_case *c = &judge_cases[_i];
  char why[128] = "";
  struct stat st = stat_of(c->uid, c->our_group ? getegid() : foreign_group(), c->mode);
  ck_assert_int_eq(bs_trust_judge(c->trust, &st, 1000, NULL, why, sizeof why), c->trusted);
  if (!c->trusted) ck_assert_has(why, c->why);
}
END_TEST

/* Beside the library the library itself is the measure, but never for the world. */
START_TEST(rule_beside_the_library) {
  char why[128];
  gid_t gid = foreign_group();
  bs_trust_base base;
  memset(&base, 0, sizeof base);
  base.owners[0] = 1001;
  base.groups[0] = gid;
  base.group_writable = 1u << 0;
  struct stat st = stat_of(1001, gid, S_IFREG | 0664);
  ck_assert_int_eq(bs_trust_judge(BS_TRUST_OWNER, &st, 1000, &base, why, sizeof why), 1);
  base.group_writable = 0; /* the library is not group-writable, the plugin is */
  ck_assert_int_eq(bs_trust_judge(BS_TRUST_OWNER, &st, 1000, &base, why, sizeof why), 0);
  st = stat_of(1002, gid, S_IFREG | 0644);
  ck_assert_int_eq(bs_trust_judge(BS_TRUST_OWNER, &st, 1000, &base, why, sizeof why), 0);
  base.group_writable = 3;
  st = stat_of(1001, gid, S_IFDIR | 0777);
  ck_assert_int_eq(bs_trust_judge(BS_TRUST_OWNER, &st, 1000, &base, why, sizeof why), 0);
}
END_TEST

/* The chain up to a base whose folder is the scratch folder itself. */
START_TEST(chain) {
  char root[512], lib[600], sub[620], plugin[700];
  bs_error err = BS_ERROR_INIT;
  bs_trust_base base;
  test_dir(root, sizeof root);
  snprintf(lib, sizeof lib, "%s/libfake.so", root);
  snprintf(sub, sizeof sub, "%s/sub", root);
  ck_assert_int_eq(mkdir(sub, 0755), 0);
  test_copy(fixture("good"), root, "libfake.so");
  snprintf(plugin, sizeof plugin, "%s", test_copy(fixture("good"), sub, "bs_good.so"));
  ck_assert_int_eq(bs_trust_base_of("/no/such/library.so", &base), 0);
  ck_assert_int_eq(bs_trust_base_of(lib, &base), 1);
  char *real = realpath(plugin, NULL), *real_root = realpath(root, NULL);
  ck_assert_str_eq(base.root, real_root);
  ck_assert_int_eq(bs_trust_chain(BS_TRUST_OWNER, real, &base, &err), BS_OK);
  ck_assert_int_eq(chmod(sub, 0777), 0);
  ck_assert_int_eq(bs_trust_chain(BS_TRUST_OWNER, real, &base, &err), BS_PLUGIN);
  ck_assert_str_eq(err.id, "BS-PLG-TRUST");
  ck_assert_has(err.message, "sub is world-writable (mode 0777)");
  ck_assert_int_eq(chmod(sub, 01777), 0);
  ck_assert_int_eq(bs_trust_chain(BS_TRUST_GROUP, real, &base, &err), BS_PLUGIN);
  ck_assert_has(err.message, "sticky");
  ck_assert_int_eq(chmod(sub, 0755), 0);
  ck_assert_int_eq(chmod(plugin, 0666), 0);
  ck_assert_int_eq(bs_trust_chain(BS_TRUST_OWNER, real, &base, &err), BS_PLUGIN);
  ck_assert_has(err.message, "bs_good.so is world-writable");
  ck_assert_int_eq(bs_trust_chain(BS_TRUST_ANY, real, &base, &err), BS_OK);
  ck_assert_int_eq(chmod(plugin, 0664), 0);
  ck_assert_int_eq(bs_trust_chain(BS_TRUST_OWNER, real, &base, &err), BS_PLUGIN);
  ck_assert_has(err.message, "group-writable");
  ck_assert_int_eq(bs_trust_chain(BS_TRUST_GROUP, real, &base, &err), BS_OK); /* its group is ours */
  ck_assert_int_eq(bs_trust_chain(BS_TRUST_OWNER, "relative/bs_good.so", NULL, &err), BS_PLUGIN);
  free(real);
  free(real_root);
  free(base.root);
  test_remove(root);
}
END_TEST

static int32_t open_dir(const char *dir, uint32_t trust, bs_context **out, test_log *log) {
  const char *dirs[1] = {dir};
  bs_error err = BS_ERROR_INIT;
  bs_context_options o = test_options(log);
  o.trust = trust;
  o.plugin_dirs = dirs;
  o.n_plugin_dirs = 1;
  return bs_context_open(&o, out, &err);
}

/* A world-writable folder: refused with the reason, accepted with any; what it offers says why too. */
START_TEST(world_writable_folder) {
  char dir[512];
  test_log log = TEST_LOG_INIT;
  bs_error err = BS_ERROR_INIT;
  bs_context *c = NULL;
  const bs_method *method = NULL;
  test_dir(dir, sizeof dir);
  test_copy(fixture("good"), dir, "bs_good.so");
  ck_assert_int_eq(chmod(dir, 0777), 0);
  for (uint32_t trust = BS_TRUST_OWNER; trust <= BS_TRUST_GROUP; trust++) {
    ck_assert_int_eq(open_dir(dir, trust, &c, &log), BS_OK);
    bs_plugin_info row = test_row(c, "good", 0);
    ck_assert_uint_eq(row.state, BS_PLUGIN_REFUSED);
    ck_assert_has(row.why, "world-writable");
    ck_assert_str_eq(row.version, "1.2.3"); /* what it says of itself is listed all the same */
    ck_assert_int_eq(bs_find_method(c, "good_method", &method, NULL, &err), BS_PLUGIN);
    ck_assert_str_eq(err.id, "BS-PLG-TRUST");
    ck_assert_has(err.hint, "plugin_trust=");
    ck_assert_int_eq(bs_status_exit_code(BS_PLUGIN), 5);
    bs_context_close(c);
  }
  ck_assert_int_eq(open_dir(dir, BS_TRUST_ANY, &c, &log), BS_OK);
  ck_assert_int_eq(bs_find_method(c, "good_method", &method, NULL, &err), BS_OK);
  bs_context_close(c);
  test_remove(dir);
}
END_TEST

START_TEST(world_writable_file) {
  char dir[512];
  test_log log = TEST_LOG_INIT;
  bs_context *c = NULL;
  test_dir(dir, sizeof dir);
  ck_assert_int_eq(chmod(test_copy(fixture("good"), dir, "bs_good.so"), 0666), 0);
  ck_assert_int_eq(open_dir(dir, BS_TRUST_OWNER, &c, &log), BS_OK);
  ck_assert_uint_eq(test_row(c, "good", 0).state, BS_PLUGIN_REFUSED);
  ck_assert_has(test_row(c, "good", 0).why, "bs_good.so is world-writable");
  bs_context_close(c);
  ck_assert_int_eq(open_dir(dir, BS_TRUST_ANY, &c, &log), BS_OK);
  ck_assert_uint_eq(test_row(c, "good", 0).state, BS_PLUGIN_FOUND);
  bs_context_close(c);
  test_remove(dir);
}
END_TEST

/* By path: a warning, and it works, so that build trees in a scratch folder do. */
START_TEST(by_path_only_warns) {
  char dir[512];
  test_log log = TEST_LOG_INIT;
  bs_error err = BS_ERROR_INIT;
  bs_context *c = NULL;
  const bs_method *method = NULL;
  test_dir(dir, sizeof dir);
  const char *path = test_copy(fixture("good"), dir, "bs_good.so");
  ck_assert_int_eq(chmod(dir, 0777), 0);
  bs_context_options o = test_options(&log);
  o.trust = BS_TRUST_OWNER;
  o.plugins = &path;
  o.n_plugins = 1;
  ck_assert_int_eq(bs_context_open(&o, &c, &err), BS_OK);
  ck_assert_has(log.text, "world-writable");
  ck_assert_has(log.text, "named by path");
  ck_assert_int_eq(bs_find_method(c, "good_method", &method, NULL, &err), BS_OK);
  bs_context_close(c);
  test_remove(dir);
}
END_TEST

/* Under a sticky world-writable folder (a shared scratch folder) nothing that is searched is trusted. */
START_TEST(sticky_parent) {
  char dir[512], inner[600];
  test_log log = TEST_LOG_INIT;
  bs_context *c = NULL;
  test_dir(dir, sizeof dir);
  snprintf(inner, sizeof inner, "%s/inner", dir);
  ck_assert_int_eq(mkdir(inner, 0755), 0);
  ck_assert_int_eq(chmod(dir, 01777), 0);
  test_copy(fixture("good"), inner, "bs_good.so");
  ck_assert_int_eq(open_dir(inner, BS_TRUST_OWNER, &c, &log), BS_OK);
  ck_assert_uint_eq(test_row(c, "good", 0).state, BS_PLUGIN_REFUSED);
  ck_assert_has(test_row(c, "good", 0).why, "sticky");
  bs_context_close(c);
  test_remove(dir);
}
END_TEST

/* A folder whose whole chain is trusted under `owner`: the home folder or the build tree, where they are. */
static int trusted_base(char *out, size_t size) {
  const char *bases[] = {getenv("HOME"), getenv("BS_TEST_BINARY_DIR"), "/root", "/var/lib"};
  for (size_t i = 0; i < sizeof bases / sizeof bases[0]; i++) {
    char *real = bases[i] != NULL ? realpath(bases[i], NULL) : NULL;
    int good = real != NULL && bs_trust_chain(BS_TRUST_OWNER, real, NULL, NULL) == BS_OK;
    if (good) snprintf(out, size, "%s/.bs_trust_test_XXXXXX", real);
    free(real);
    if (good && mkdtemp(out) != NULL) return 1;
  }
  return 0;
}

START_TEST(trusted_folder_works) {
  char dir[512];
  test_log log = TEST_LOG_INIT;
  bs_error err = BS_ERROR_INIT;
  bs_context *c = NULL;
  if (!trusted_base(dir, sizeof dir)) {
    /* No such folder on this machine: `chain` covers the accepting side with a base. */
    fprintf(stderr, "trusted_folder_works: no folder is trusted up to the root here\n");
    return;
  }
  test_copy(fixture("good"), dir, "bs_good.so");
  ck_assert_int_eq(chmod(dir, 0755), 0);
  ck_assert_int_eq(open_dir(dir, BS_TRUST_OWNER, &c, &log), BS_OK);
  bs_plugin_info row = test_row(c, "good", 0);
  ck_assert_msg(row.state == BS_PLUGIN_FOUND, "%s", row.why);
  ck_assert_int_eq(chmod(dir, 0777), 0); /* between search and open */
  ck_assert_int_eq(bs_plugin_activate(c, "good", &err), BS_PLUGIN);
  ck_assert_str_eq(err.id, "BS-PLG-TRUST");
  bs_context_close(c);
  test_remove(dir);
}
END_TEST

int main(void) {
  umask(022);
  const test_case tests[] = {{rule, TEST_COUNT(judge_cases)},
                             {rule_beside_the_library},
                             {chain},
                             {world_writable_folder},
                             {world_writable_file},
                             {by_path_only_warns},
                             {sticky_parent},
                             {trusted_folder_works},
                             {0}};
  return run_tests("plugin_trust", tests, (test_setup){0});
}
