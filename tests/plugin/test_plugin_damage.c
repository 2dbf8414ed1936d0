/* SPDX-License-Identifier: MIT
 * test_plugin_damage.c - a real plugin with one byte overwritten, for each byte of its ELF header, program
 * headers and dynamic table and several values: it loads, or is refused with an error of exit 5; what the
 * note reader lets pass is opened and used in a child, and no child may die of a signal. And relocations and
 * dynamic entries that the loader would follow out of the plugin: refused before it is opened. */
#include <elf.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "blockshock/plugin.h"
#include "core/plugin/note.h"
#include "tests/plugin/plugin_test.h"
#include "tests/run_tests.h"

typedef struct image {
  unsigned char *data;
  size_t size;
  Elf64_Ehdr header;
  Elf64_Phdr dynamic;
} image;

static void read_image(image *m, const char *path) {
  struct stat st;
  FILE *f = fopen(path, "rb");
  ck_assert_ptr_nonnull(f);
  ck_assert_int_eq(fstat(fileno(f), &st), 0);
  m->size = (size_t)st.st_size;
  m->data = malloc(m->size);
  ck_assert_uint_eq(fread(m->data, 1, m->size, f), m->size);
  fclose(f);
  memcpy(&m->header, m->data, sizeof m->header);
  for (int i = 0; i < m->header.e_phnum; i++) {
    Elf64_Phdr p;
    memcpy(&p, m->data + m->header.e_phoff + (size_t)i * sizeof p, sizeof p);
    if (p.p_type == PT_DYNAMIC) m->dynamic = p;
  }
}

static int open_copy(image *m, char *path, size_t size, const char *dir) {
  read_image(m, fixture("good"));
  snprintf(path, size, "%s/bs_good.so", dir);
  const int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  ck_assert_int_ge(fd, 0);
  ck_assert_int_eq(write(fd, m->data, m->size), (ssize_t)m->size);
  return fd;
}

/* As a user's run would: open the context with the plugin, look its method up. Exit 0, 5 or a signal. */
static int open_in_child(const char *path) {
  int status = 0;
  fflush(NULL);
  const pid_t pid = fork();
  if (pid == 0) {
    test_log log = TEST_LOG_INIT;
    bs_error err = BS_ERROR_INIT;
    bs_context *context = NULL;
    const bs_method *method = NULL;
    void *state = NULL;
    bs_context_options o = test_options(&log);
    o.plugins = &path;
    o.n_plugins = 1;
    alarm(20);
    int32_t rc = bs_context_open(&o, &context, &err);
    if (rc == BS_OK) rc = bs_find_method(context, "good_method", &method, &state, &err);
    if (context != NULL) bs_context_close(context);
    _exit(rc == BS_OK ? 0 : (int)bs_status_exit_code(rc));
  }
  ck_assert_int_eq(waitpid(pid, &status, 0), pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static const unsigned char changes[] = {0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0xff};
typedef struct tally {
  int refused, loaded, failed, died, unopened;
} tally;

/* Sanitizers make children slow, and headers have many bytes that nobody reads: there every `every`-th of the
 * files that the reader takes is opened. */
static int is_opened(const tally *t, int every) {
  return (t->loaded + t->failed + t->died + t->unopened) % every == 0;
}

static void damage(const image *m, int fd, const char *path, size_t from, size_t size, const char *what,
                   int every, tally *t) {
  for (size_t at = from; at < from + size; at++)
    for (size_t i = 0; i < sizeof changes; i++) {
      const unsigned char byte = m->data[at] ^ changes[i];
      bs_elf_info info;
      bs_error err = BS_ERROR_INIT;
      ck_assert_int_eq(pwrite(fd, &byte, 1, (off_t)at), 1);
      if (bs_elf_read(fd, &info, &err) != BS_OK) {
        ck_assert_int_eq(bs_status_exit_code(err.code), 5);
        t->refused++;
      } else if (!is_opened(t, every)) {
        t->unopened++;
      } else {
        const int end = open_in_child(path);
        t->loaded += end == 0;
        t->failed += end == 5;
        if (end != 0 && end != 5)
          printf("%s byte %zu (of the file %zu) ^ %02x: %s %d\n", what, at - from, at, changes[i],
                 end < 0 ? "signal" : "exit", abs(end));
        t->died += end != 0 && end != 5;
      }
      ck_assert_int_eq(pwrite(fd, m->data + at, 1, (off_t)at), 1);
    }
}

START_TEST(no_byte_ends_in_a_signal) {
  image m;
  tally t = {0, 0, 0, 0, 0};
  const int every = BS_THIS_SANITIZER == BS_SAN_NONE ? 1 : 6;
  char path[300], dir[200];
  test_dir(dir, sizeof dir);
  const int fd = open_copy(&m, path, sizeof path, dir);
  ck_assert_int_eq(open_in_child(path), 0);
  damage(&m, fd, path, 0, sizeof m.header, "header", every, &t);
  damage(&m, fd, path, m.header.e_phoff, m.header.e_phnum * sizeof(Elf64_Phdr), "segments", every, &t);
  damage(&m, fd, path, m.dynamic.p_offset, m.dynamic.p_filesz, "dynamic", 1, &t);
  printf("%d refused unopened, %d refused, %d loaded, %d died, %d not opened\n", t.refused, t.failed,
         t.loaded, t.died, t.unopened);
  ck_assert_int_ge(t.refused + t.failed + t.loaded + t.unopened, 8000);
  ck_assert_int_ge(t.failed + t.loaded, 1000);
  if (every == 1) ck_assert_int_eq(t.unopened, 0);
  ck_assert_int_ge(t.refused, 4000);
  ck_assert_int_eq(t.died, 0);
  close(fd);
  free(m.data);
  test_remove(dir);
}
END_TEST

/* The nth section of a kind. */
static Elf64_Shdr section(const image *m, uint32_t type, uint32_t nth) {
  Elf64_Shdr s;
  for (uint32_t i = 0; i < m->header.e_shnum; i++) {
    memcpy(&s, m->data + m->header.e_shoff + i * sizeof s, sizeof s);
    if (s.sh_type == type && nth-- == 0) return s;
  }
  ck_abort_msg("no section of type %u", type);
  return s;
}

/* One 8-byte word of the file changed: the error's text, "" when the file is taken. */
static const char *read_with(const image *m, int fd, uint64_t at, uint64_t word, bs_error *err) {
  bs_elf_info info;
  *err = (bs_error)BS_ERROR_INIT;
  ck_assert_int_eq(pwrite(fd, &word, sizeof word, (off_t)at), sizeof word);
  const int32_t rc = bs_elf_read(fd, &info, err);
  ck_assert_int_eq(pwrite(fd, m->data + at, sizeof word, (off_t)at), sizeof word);
  if (rc == BS_OK) return "";
  ck_assert_int_eq(bs_status_exit_code(rc), 5);
  ck_assert_str_eq(err->id, "BS-PLG-ELF");
  return err->message;
}

#define REFUSED(at_, word_, why_) \
  ck_assert_pstr_ne(strstr(read_with(&m, fd, (at_), (word_), &err), (why_)), NULL)

START_TEST(relocations_stay_inside) {
  image m;
  bs_error err;
  char path[300], dir[200];
  test_dir(dir, sizeof dir);
  const int fd = open_copy(&m, path, sizeof path, dir);
  const Elf64_Shdr calls = section(&m, SHT_INIT_ARRAY, 0), text = section(&m, SHT_DYNSYM, 0);
  for (uint32_t nth = 0; nth < 2; nth++) {
    const Elf64_Shdr s = section(&m, SHT_RELA, nth);
    for (uint64_t at = s.sh_offset; at < s.sh_offset + s.sh_size; at += sizeof(Elf64_Rela)) {
      Elf64_Rela r;
      memcpy(&r, m.data + at, sizeof r);
      const uint64_t info = at + offsetof(Elf64_Rela, r_info), addend = at + offsetof(Elf64_Rela, r_addend);
      ck_assert_str_eq(read_with(&m, fd, at, r.r_offset, &err), "");
      REFUSED(at, r.r_offset | UINT64_C(1) << 30, "outside its writable");
      REFUSED(at, text.sh_addr, "outside its writable"); /* mapped, but read-only */
      REFUSED(at, m.dynamic.p_vaddr + 8, "changes its dynamic table");
      REFUSED(info, ELF64_R_INFO(text.sh_size / text.sh_entsize, ELF64_R_TYPE(r.r_info)), "symbol outside");
      if (r.r_offset < calls.sh_addr || r.r_offset >= calls.sh_addr + calls.sh_size) continue;
      REFUSED(at, r.r_offset + 1, "initialiser");
      REFUSED(at, calls.sh_addr + calls.sh_size + 64, "initialiser without");
      REFUSED(addend, calls.sh_addr, "initialiser that is not in its code");
    }
  }
  close(fd);
  free(m.data);
  test_remove(dir);
}
END_TEST

START_TEST(dynamic_entries_are_told_once) {
  image m;
  bs_error err;
  Elf64_Dyn *table;
  char path[300], dir[200];
  test_dir(dir, sizeof dir);
  const int fd = open_copy(&m, path, sizeof path, dir);
  const uint64_t n = m.dynamic.p_filesz / sizeof *table;
  uint64_t end = 0;
  table = malloc(m.dynamic.p_filesz);
  memcpy(table, m.data + m.dynamic.p_offset, m.dynamic.p_filesz);
  while (end < n && table[end].d_tag != DT_NULL) end++;
  ck_assert_uint_lt(end + 1, n); /* the linker leaves room behind the end */
  const uint64_t at = m.dynamic.p_offset + end * sizeof *table;
  for (uint64_t i = 0; i < end; i++)
    if (table[i].d_tag != DT_NEEDED) REFUSED(at, (uint64_t)table[i].d_tag, "once only");
  ck_assert_str_eq(read_with(&m, fd, at, DT_SYMBOLIC, &err), ""); /* what was not there may come */
  free(table);
  close(fd);
  free(m.data);
  test_remove(dir);
}
END_TEST

int main(void) {
  const test_case tests[] = {
      {no_byte_ends_in_a_signal}, {relocations_stay_inside}, {dynamic_entries_are_told_once}, {0}};
  return run_tests("plugin_damage", tests, (test_setup){.timeout = 120});
}
