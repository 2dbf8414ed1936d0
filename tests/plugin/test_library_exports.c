/* SPDX-License-Identifier: MIT
 * test_library_exports.c - what programs link against: libblockshock's SONAME and its public symbols are
 * those of abi/exports.txt, which are those of blockshock.h; all else that it exports is ours too; one
 * version everywhere. */
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>

#include "tests/plugin/plugin_test.h"
#include "tests/run_tests.h"

static char *read_source(const char *path) {
  const char *source = getenv("BS_TEST_SOURCE_DIR");
  char full[1024];
  ck_assert_ptr_nonnull(source);
  snprintf(full, sizeof full, "%s/%s", source, path);
  FILE *f = fopen(full, "r");
  ck_assert_msg(f != NULL, "open %s", full);
  char *text = calloc(1, 1 << 20);
  ck_assert_ptr_nonnull(text);
  ck_assert_uint_gt(fread(text, 1, (1 << 20) - 1, f), 0);
  fclose(f);
  return text;
}

/* "\nname\n" for each, so that a name can be looked for whole. */
typedef struct names {
  char text[1 << 16];
  size_t used;
  int count;
} names;

static void add(names *n, const char *name, size_t size) {
  ck_assert_uint_lt(n->used + size + 2, sizeof n->text);
  if (n->used == 0) n->text[n->used++] = '\n';
  memcpy(n->text + n->used, name, size);
  n->used += size;
  n->text[n->used++] = '\n';
  n->count++;
}

static int has(const names *n, const char *name, size_t size) {
  char framed[256];
  ck_assert_uint_lt(size + 3, sizeof framed);
  snprintf(framed, sizeof framed, "\n%.*s\n", (int)size, name);
  return strstr(n->text, framed) != NULL;
}

/* Each name of `a` is in `b`; else the first that is not. */
static const char *missing(const names *a, const names *b) {
  static char name[256];
  for (const char *p = a->text + 1; *p != '\0'; p += strcspn(p, "\n") + 1) {
    const size_t size = strcspn(p, "\n");
    if (has(b, p, size)) continue;
    snprintf(name, sizeof name, "%.*s", (int)size, p);
    return name;
  }
  return NULL;
}

static names exported, listed, declared, needed;
static char soname[128], listed_soname[128];

static void read_library(void) {
  Dl_info info;
  struct stat st;
  ck_assert_int_ne(dladdr((void *)(uintptr_t)bs_version, &info), 0);
  int fd = open(info.dli_fname, O_RDONLY | O_CLOEXEC);
  ck_assert_msg(fd >= 0 && fstat(fd, &st) == 0, "open %s", info.dli_fname);
  const char *image = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
  ck_assert_ptr_ne(image, MAP_FAILED);
  const Elf64_Ehdr *h = (const Elf64_Ehdr *)(const void *)image;
  const Elf64_Shdr *sections = (const Elf64_Shdr *)(const void *)(image + h->e_shoff);
  for (int i = 0; i < h->e_shnum; i++) {
    const char *texts = image + sections[sections[i].sh_link].sh_offset;
    if (sections[i].sh_type == SHT_DYNAMIC) {
      const Elf64_Dyn *d = (const Elf64_Dyn *)(const void *)(image + sections[i].sh_offset);
      for (; d->d_tag != DT_NULL; d++) {
        if (d->d_tag == DT_SONAME) snprintf(soname, sizeof soname, "%s", texts + d->d_un.d_val);
        if (d->d_tag == DT_NEEDED) add(&needed, texts + d->d_un.d_val, strlen(texts + d->d_un.d_val));
      }
    }
    if (sections[i].sh_type != SHT_DYNSYM) continue;
    const Elf64_Sym *s = (const Elf64_Sym *)(const void *)(image + sections[i].sh_offset);
    for (size_t k = 1; k < sections[i].sh_size / sizeof *s; k++)
      if (s[k].st_shndx != SHN_UNDEF) add(&exported, texts + s[k].st_name, strlen(texts + s[k].st_name));
  }
  munmap((void *)(uintptr_t)image, (size_t)st.st_size);
  close(fd);
}

static void read_list(void) {
  char *text = read_source("abi/exports.txt");
  for (const char *p = text; *p != '\0'; p += strcspn(p, "\n") + 1) {
    const size_t size = strcspn(p, "\n");
    if (strncmp(p, "soname ", 7) == 0)
      snprintf(listed_soname, sizeof listed_soname, "%.*s", (int)size - 7, p + 7);
    else
      add(&listed, p, size);
  }
  free(text);
}

/* "BS_API type *name(": the name before the first parenthesis. */
static void read_header(void) {
  char *text = read_source("include/blockshock/blockshock.h");
  for (const char *p = text; (p = strstr(p, "\nBS_API ")) != NULL;) {
    p += strlen("\nBS_API ");
    const char *end = p + strcspn(p, "("), *start = end;
    while (start > p && strchr(" *\n", start[-1]) == NULL) start--;
    ck_assert_msg(strncmp(start, "bs_", 3) == 0, "%.60s", p);
    add(&declared, start, (size_t)(end - start));
  }
  free(text);
}

static void setup(void) {
  read_library();
  read_list();
  read_header();
}

START_TEST(the_list_is_the_header_and_the_library) {
  ck_assert_int_gt(listed.count, 50);
  const char *name = missing(&listed, &declared);
  ck_assert_msg(name == NULL, "abi/exports.txt has %s, blockshock.h does not: removing it breaks programs",
                name);
  name = missing(&declared, &listed);
  ck_assert_msg(name == NULL, "blockshock.h has %s: add it to abi/exports.txt", name);
  name = missing(&listed, &exported);
  ck_assert_msg(name == NULL, "the library does not export %s", name);
  ck_assert_int_eq(listed.count, declared.count);
}
END_TEST

/* The lab and the tests use more of the core, under no promise; but nothing of others leaks. */
START_TEST(all_else_is_ours) {
  for (const char *p = exported.text + 1; *p != '\0'; p += strcspn(p, "\n") + 1) {
    const int size = (int)strcspn(p, "\n");
    ck_assert_msg(strncmp(p, "bs_", 3) == 0 || p[0] == '_', "%.*s is exported", size, p);
  }
  ck_assert(!has(&exported, "bs_plugin_query_0", strlen("bs_plugin_query_0"))); /* it is no plugin */
}
END_TEST

/* Programs that embed the library do not load the parser of configurations. */
START_TEST(no_yaml_is_needed) {
  ck_assert_ptr_nonnull(strstr(needed.text, "\nlibc.so"));
  ck_assert_msg(strstr(needed.text, "yaml") == NULL, "libblockshock needs%s", needed.text);
}
END_TEST

START_TEST(one_version) {
  char want[64], line[128] = "", command[1100];
  char *version = read_source("VERSION");
  version[strcspn(version, "\n")] = '\0';
  ck_assert_str_eq(bs_version(), version);
  ck_assert_str_eq(soname, listed_soname);
  snprintf(want, sizeof want, "libblockshock.so.%.*s", (int)strcspn(version, "."), version);
  ck_assert_str_eq(soname, want);
  snprintf(command, sizeof command, "'%s' --version", getenv("BS_TEST_BSRUN"));
  FILE *f = popen(command, "r");
  ck_assert_ptr_nonnull(f);
  ck_assert_ptr_nonnull(fgets(line, sizeof line, f));
  pclose(f);
  snprintf(want, sizeof want, "bsrun %s\n", version);
  ck_assert_str_eq(line, want);
  free(version);
}
END_TEST

/* The comparison itself notices. */
START_TEST(a_difference_is_noticed) {
  static names one, two;
  add(&one, "bs_a", 4);
  add(&one, "bs_ab", 5);
  add(&two, "bs_ab", 5);
  ck_assert_str_eq(missing(&one, &two), "bs_a");
  ck_assert_ptr_null(missing(&two, &one));
}
END_TEST

int main(void) {
  const test_case tests[] = {{the_list_is_the_header_and_the_library},
                             {all_else_is_ours},
                             {no_yaml_is_needed},
                             {one_version},
                             {a_difference_is_noticed},
                             {0}};
  return run_tests("library_exports", tests, (test_setup){setup, NULL});
}
