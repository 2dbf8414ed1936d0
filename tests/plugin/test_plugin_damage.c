/* SPDX-License-Identifier: MIT
 * test_plugin_damage.c - a real plugin with one byte overwritten, for each byte of its ELF header, program
 * headers and dynamic table and several values: it loads, or is refused with an error of exit 5; what the
 * note reader lets pass is opened and used in a child, and no child may die of a signal. Skipped (77) under
 * sanitizers: an instrumented plugin begins with an initialiser that the loader calls through a relocation,
 * which no reader of headers can vouch for. */
#include <elf.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "blockshock/plugin.h"
#include "core/plugin/note.h"
#include "tests/plugin/plugin_test.h"

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
  int refused, loaded, failed, died;
} tally;

static void damage(const image *m, int fd, const char *path, size_t from, size_t size, const char *what,
                   tally *t) {
  for (size_t at = from; at < from + size; at++)
    for (size_t i = 0; i < sizeof changes; i++) {
      const unsigned char byte = m->data[at] ^ changes[i];
      bs_elf_info info;
      bs_error err = BS_ERROR_INIT;
      ck_assert_int_eq(pwrite(fd, &byte, 1, (off_t)at), 1);
      if (bs_elf_read(fd, &info, &err) != BS_OK) {
        ck_assert_int_eq(bs_status_exit_code(err.code), 5);
        t->refused++;
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
  tally t = {0, 0, 0, 0};
  char path[300], dir[200];
  test_dir(dir, sizeof dir);
  read_image(&m, fixture("good"));
  snprintf(path, sizeof path, "%s/bs_good.so", dir);
  const int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  ck_assert_int_ge(fd, 0);
  ck_assert_int_eq(write(fd, m.data, m.size), (ssize_t)m.size);
  ck_assert_int_eq(open_in_child(path), 0);
  damage(&m, fd, path, 0, sizeof m.header, "header", &t);
  damage(&m, fd, path, m.header.e_phoff, m.header.e_phnum * sizeof(Elf64_Phdr), "segments", &t);
  damage(&m, fd, path, m.dynamic.p_offset, m.dynamic.p_filesz, "dynamic", &t);
  printf("%d refused unopened, %d refused, %d loaded, %d died\n", t.refused, t.failed, t.loaded, t.died);
  ck_assert_int_ge(t.refused + t.failed + t.loaded, 8000);
  ck_assert_int_ge(t.refused, 4000);
  ck_assert_int_eq(t.died, 0);
  close(fd);
  free(m.data);
  test_remove(dir);
}
END_TEST

int main(void) {
  if (BS_THIS_SANITIZER != BS_SAN_NONE) return 77;
  Suite *suite = suite_create("plugin_damage");
  TCase *tc = tcase_create("damage");
  tcase_set_timeout(tc, 120);
  tcase_add_test(tc, no_byte_ends_in_a_signal);
  suite_add_tcase(suite, tc);
  SRunner *runner = srunner_create(suite);
  srunner_run_all(runner, CK_ENV);
  const int failed = srunner_ntests_failed(runner);
  srunner_free(runner);
  return failed != 0;
}
