/* SPDX-License-Identifier: MIT
 * hygiene.c - group hygiene: what a plugin may not do to the process it lives in. Each check watches one
 * thing while the plugin is opened, used and closed. */
#include <dirent.h>
#include <fcntl.h>
#include <fenv.h>
#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "kit/op.h"

extern char **environ;

static void use(void) {
  static kit_plugin p;
  kit_plugin_open(&p);
  kit_exercise(&p);
  kit_plugin_deactivate(&p);
}

/* A device's driver keeps descriptors and threads from its first use until the process ends: of a plugin that
 * drives one, the checks of these count what a second use adds. */
static void start_driver(void) {
  for (uint32_t i = 0; i < kit.survey->n_things; i++)
    if (kit.survey->things[i].device) {
      use();
      return;
    }
}

/* ---- standard output and error -------------------------------------------------------------- */

void kit_clean_output(const kit_case *c) {
  char text[300] = "";
  const int keep[2] = {dup(STDOUT_FILENO), dup(STDERR_FILENO)};
  const int memory = memfd_create("kit", MFD_CLOEXEC);
  (void)c;
  kit_assert(memory >= 0 && keep[0] >= 0 && keep[1] >= 0, "no descriptors");
  fflush(NULL);
  dup2(memory, STDOUT_FILENO);
  dup2(memory, STDERR_FILENO);
  use();
  fflush(NULL);
  dup2(keep[0], STDOUT_FILENO);
  dup2(keep[1], STDERR_FILENO);
  const ssize_t n = pread(memory, text, sizeof text - 1, 0);
  kit_assert(n <= 0, "writes to standard output or error: '%.200s'", text);
}

/* ---- environment ---------------------------------------------------------------------------- */

static size_t environment_size(void) {
  size_t n = 0;
  for (char **e = environ; e != NULL && *e != NULL; e++) n++;
  return n;
}

static int holds(char *const *list, const char *entry) {
  for (; list != NULL && *list != NULL; list++) /* clearenv leaves no list */
    if (strcmp(*list, entry) == 0) return 1;
  return 0;
}

void kit_clean_environment(const kit_case *c) {
  const size_t n = environment_size();
  char **before = calloc(n + 1, sizeof *before);
  (void)c;
  kit_assert(before != NULL, "no memory");
  for (size_t i = 0; i < n; i++) before[i] = strdup(environ[i]);
  use();
  for (char **e = environ; e != NULL && *e != NULL; e++)
    kit_assert(holds(before, *e), "changes the environment: %.120s", *e);
  for (size_t i = 0; i < n; i++)
    kit_assert(holds(environ, before[i]), "takes %.120s out of the environment", before[i]);
  for (size_t i = 0; i < n; i++) free(before[i]);
  free(before);
}

/* ---- signals -------------------------------------------------------------------------------- */

void kit_clean_signals(const kit_case *c) {
  struct sigaction before[65], after;
  sigset_t mask, mask_after;
  (void)c;
  memset(before, 0, sizeof before);
  for (int s = 1; s <= 64; s++) sigaction(s, NULL, &before[s]);
  sigprocmask(SIG_SETMASK, NULL, &mask);
  use();
  for (int s = 1; s <= 64; s++) {
    if (sigaction(s, NULL, &after) != 0) continue;
    kit_assert(after.sa_handler == before[s].sa_handler, "installs a handler of signal %d (%s)", s,
               strsignal(s));
  }
  sigprocmask(SIG_SETMASK, NULL, &mask_after);
  for (int s = 1; s <= 64; s++)
    kit_assert(sigismember(&mask, s) == sigismember(&mask_after, s), "changes the mask of signal %d (%s)", s,
               strsignal(s));
}

/* ---- the rest of the process ---------------------------------------------------------------- */

typedef struct process {
  char folder[4096], locale[512];
  int rounding;
  unsigned flush; /* subnormals as zero */
  mode_t umask;
} process;

static void look(process *p) {
  memset(p, 0, sizeof *p);
  if (getcwd(p->folder, sizeof p->folder) == NULL) p->folder[0] = '\0';
  snprintf(p->locale, sizeof p->locale, "%s", setlocale(LC_ALL, NULL));
  p->rounding = fegetround();
#if defined(__x86_64__)
  p->flush = _mm_getcsr() & 0x8040u;
#endif
  p->umask = umask(0);
  umask(p->umask);
}

void kit_clean_process(const kit_case *c) {
  process before, after;
  (void)c;
  look(&before);
  use();
  look(&after);
  kit_assert(strcmp(before.folder, after.folder) == 0, "changes the working folder from %.200s to %.200s",
             before.folder, after.folder);
  kit_assert(strcmp(before.locale, after.locale) == 0, "changes the locale from %.100s to %.100s",
             before.locale, after.locale);
  kit_assert(before.rounding == after.rounding, "changes the rounding mode from %d to %d", before.rounding,
             after.rounding);
  kit_assert(before.flush == after.flush, "changes the treatment of subnormals (MXCSR 0x%x to 0x%x)",
             before.flush, after.flush);
  kit_assert(before.umask == after.umask, "changes the umask from %03o to %03o", (unsigned)before.umask,
             (unsigned)after.umask);
}

/* ---- descriptors ---------------------------------------------------------------------------- */

enum { MAX_FILES = 1024 };

static void open_files(unsigned char seen[MAX_FILES]) {
  memset(seen, 0, MAX_FILES);
  for (int fd = 0; fd < MAX_FILES; fd++) seen[fd] = fcntl(fd, F_GETFD) != -1;
}

void kit_clean_files(const kit_case *c) {
  static unsigned char before[MAX_FILES], after[MAX_FILES];
  (void)c;
  start_driver();
  open_files(before);
  use();
  open_files(after);
  for (int fd = 0; fd < MAX_FILES; fd++) {
    char link[64], name[200] = "?";
    if (before[fd] == after[fd]) continue;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t n = readlink(link, name, sizeof name - 1);
    if (n > 0) name[n] = '\0';
    kit_assert(before[fd], "leaves descriptor %d open (%s)", fd, name);
    kit_fail("closes descriptor %d, which is not its own", fd);
  }
}

/* ---- threads and runtimes ------------------------------------------------------------------- */

static int threads_now(void) {
  int n = 0;
  DIR *d = opendir("/proc/self/task");
  kit_assert(d != NULL, "there is no /proc/self/task");
  for (const struct dirent *e; (e = readdir(d)) != NULL;) n += e->d_name[0] != '.';
  closedir(d);
  return n;
}

static void one_openmp(void) {
  static const char *const runtimes[] = {"libgomp", "libiomp5", "libomp.so"};
  char line[4200], found[100] = "";
  int n = 0;
  for (size_t i = 0; i < 3; i++) {
    FILE *f = fopen("/proc/self/maps", "re");
    int has = 0;
    while (f != NULL && !has && fgets(line, sizeof line, f) != NULL) has = strstr(line, runtimes[i]) != NULL;
    if (f != NULL) fclose(f);
    if (has) snprintf(found + strlen(found), sizeof found - strlen(found), " %s", runtimes[i]);
    n += has;
  }
  kit_assert(n <= 1, "brings a second OpenMP runtime:%s", found);
}

static void *nothing(void *arg) {
  return arg;
}

void kit_clean_threads(const kit_case *c) {
  pthread_t first; /* a sanitizer starts an additional thread with it */
  int after;
  (void)c;
  kit_assert(pthread_create(&first, NULL, nothing, NULL) == 0, "no threads");
  pthread_join(first, NULL);
  usleep(10000); /* a joined thread may still be listed */
  start_driver();
  const int before = threads_now();
  use();
  for (int wait = 0; (after = threads_now()) > before && wait < 100; wait++) usleep(10000);
  kit_assert(after <= before, "leaves %d threads of its own running: a plugin starts none", after - before);
  one_openmp();
}
