/* SPDX-License-Identifier: MIT
 * test_memory.c - how much memory is free, by made trees of /proc and /sys: of the machine and of each
 * control group from the process's own to the root, in both versions. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/error.h"
#include "core/base/memory.h"
#include "tests/marks.h"
#include "tests/run_tests.h"

enum { FILES = 8 };
#define MACHINE \
  { "proc/meminfo", "MemTotal: 4000 kB\nMemFree: 1 kB\nMemAvailable:    2000 kB\n" }
#define V1 "sys/fs/cgroup/memory"
#define V2 "sys/fs/cgroup"
#define NONE_V1 "9223372036854771712\n"

static const struct {
  const char *name;
  uint64_t free;
  struct {
    const char *path, *text;
  } files[FILES];
} trees[] = {
    {"no group", 2048000, {MACHINE, {"proc/self/cgroup", ""}}},
    {"no cgroup file", 2048000, {MACHINE}},
    {"nothing is known", 0, {{"proc/other", ""}}},
    {"v1, the own group",
     700000,
     {MACHINE,
      {"proc/self/cgroup", "9:cpu,cpuacct:/x\n4:memory:/a/b\n0::/\n"},
      {V1 "/a/b/memory.limit_in_bytes", "1000000\n"},
      {V1 "/a/b/memory.usage_in_bytes", "300000\n"},
      {V1 "/memory.limit_in_bytes", NONE_V1},
      {V1 "/memory.usage_in_bytes", "1900000\n"}}},
    {"v1, a group above",
     600000,
     {MACHINE,
      {"proc/self/cgroup", "4:hugetlb,memory:/a/b\n"},
      {V1 "/a/b/memory.limit_in_bytes", NONE_V1},
      {V1 "/a/b/memory.usage_in_bytes", "1\n"},
      {V1 "/a/memory.limit_in_bytes", "1000000\n"},
      {V1 "/a/memory.usage_in_bytes", "400000\n"}}},
    {"v1, file pages are free",
     900000,
     {MACHINE,
      {"proc/self/cgroup", "4:memory:/a\n"},
      {V1 "/a/memory.limit_in_bytes", "1000000\n"},
      {V1 "/a/memory.usage_in_bytes", "900000\n"},
      {V1 "/a/memory.stat", "inactive_file 1\ntotal_inactive_file 500000\ntotal_active_file 300000\n"}}},
    {"v1, in a container: the mount is the group",
     500000,
     {MACHINE,
      {"proc/self/cgroup", "4:memory:/docker/0123\n"},
      {V1 "/memory.limit_in_bytes", "1000000\n"},
      {V1 "/memory.usage_in_bytes", "500000\n"}}},
    {"v1, another's memory group does not count",
     2048000,
     {MACHINE,
      {"proc/self/cgroup", "4:memory:/a\n5:memory2:/b\n"},
      {V1 "/b/memory.limit_in_bytes", "10\n"},
      {V1 "/b/memory.usage_in_bytes", "5\n"}}},
    {"v2, the own group",
     250000,
     {MACHINE,
      {"proc/self/cgroup", "0::/user.slice/x.scope\n"},
      {V2 "/user.slice/x.scope/memory.max", "300000\n"},
      {V2 "/user.slice/x.scope/memory.current", "50000\n"},
      {V2 "/user.slice/memory.max", "max\n"},
      {V2 "/user.slice/memory.current", "90000\n"}}},
    {"v2, a group above",
     100000,
     {MACHINE,
      {"proc/self/cgroup", "0::/a/b/c\n"},
      {V2 "/a/b/c/memory.max", "max\n"},
      {V2 "/a/b/c/memory.current", "1\n"},
      {V2 "/a/memory.max", "300000\n"},
      {V2 "/a/memory.current", "250000\n"},
      {V2 "/a/memory.stat", "anon 1\nfile 60000\ninactive_file 30000\nactive_file 20000\n"}}},
    {"v2 beside v1",
     123000,
     {MACHINE,
      {"proc/self/cgroup", "1:cpu:/\n0::/a\n"},
      {"sys/fs/cgroup/unified/a/memory.max", "200000\n"},
      {"sys/fs/cgroup/unified/a/memory.current", "77000\n"}}},
    {"v2, outside of what is seen",
     400000,
     {MACHINE,
      {"proc/self/cgroup", "0::/../other\n"},
      {V2 "/memory.max", "500000\n"},
      {V2 "/memory.current", "100000\n"}}},
    {"nothing is left",
     1,
     {MACHINE,
      {"proc/self/cgroup", "0::/a\n"},
      {V2 "/a/memory.max", "500000\n"},
      {V2 "/a/memory.current", "600000\n"}}},
    {"the machine has less",
     2048000,
     {MACHINE,
      {"proc/self/cgroup", "0::/a\n"},
      {V2 "/a/memory.max", "500000000\n"},
      {V2 "/a/memory.current", "0\n"}}},
};

static void make_file(const char *root, const char *path, const char *text) {
  char command[1200], full[900];
  snprintf(full, sizeof full, "%s/%s", root, path);
  const int folder = (int)(strrchr(full, '/') - full);
  snprintf(command, sizeof command, "mkdir -p '%.*s'", folder, full);
  ck_assert_int_eq(system(command), 0);
  FILE *f = fopen(full, "w");
  ck_assert_ptr_nonnull(f);
  ck_assert_int_ge(fputs(text, f), 0);
  ck_assert_int_eq(fclose(f), 0);
}

START_TEST(the_least_counts) {
  char root[300], command[400];
  const char *tmp = getenv("TMPDIR");
  snprintf(root, sizeof root, "%.200s/bs_memory_XXXXXX", tmp != NULL && tmp[0] != '\0' ? tmp : "/tmp");
  ck_assert_ptr_nonnull(mkdtemp(root));
  for (int i = 0; i < FILES && trees[_i].files[i].path != NULL; i++)
    make_file(root, trees[_i].files[i].path, trees[_i].files[i].text);
  const uint64_t got = bs_memory_available(root);
  ck_assert_msg(got == trees[_i].free, "%s: %llu, not %llu", trees[_i].name, (unsigned long long)got,
                (unsigned long long)trees[_i].free);
  snprintf(command, sizeof command, "rm -rf -- '%s'", root);
  ck_assert_int_eq(system(command), 0);
}
END_TEST

START_TEST(what_does_not_fit_is_refused_with_numbers) {
  bs_error err = BS_ERROR_INIT;
  ck_assert_uint_gt(bs_memory_available(""), 0);
  ck_assert_int_eq(bs_memory_fits(1 << 20, "BS-TEST", "x", &err), BS_OK);
  ck_assert_int_eq(bs_memory_fits(UINT64_C(1) << 50, "BS-TEST", "the values", &err), BS_NO_MEMORY);
  ck_assert_str_eq(err.id, "BS-TEST");
  ck_assert_ptr_nonnull(strstr(err.message, "the values need 1073741824.0 MiB, and "));
  ck_assert_ptr_nonnull(strstr(err.message, " MiB are free"));
  ck_assert_str_ne(err.hint, "");
}
END_TEST

int main(void) {
  const test_case tests[] = {
      {the_least_counts, TEST_COUNT(trees)}, {what_does_not_fit_is_refused_with_numbers}, {0}};
  return run_tests("memory", tests, (test_setup){0});
}
