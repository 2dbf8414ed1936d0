/* SPDX-License-Identifier: MIT
 * plugins_check.c - `bsrun plugins check ID|PATH`: grades a plugin by the conformance kit, the command
 * bs-conformance, as a child process. Its report is standard output, its exit status is bsrun's. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bsrun/plugins.h"
#include "core/base/error.h"

enum { MAX_WORDS = 160 };

const args_option plugins_check_options[] = {
    {"kit", 0, "quick|full", 0, "how many generated cases (quick)"},
    {"group", 0, "GROUP", 0, "only one group of checks"},
    {"xfail", 0, "FILE", 0, "lines NAME: REASON of checks that are expected to fail"},
    {"param", 0, "NAME=VALUE", 1, "a parameter of the plugin"},
    {"option", 0, "NAME=VALUE", 1, "an option of its methods and workloads"},
    {"config", 0, "FILE", 1, "plugin_dirs and plugin_trust from a YAML file"},
    {"set", 0, "KEY=VALUE", 1, "set one key"},
    {"output", 'o', "FORMAT", 0, "text, tap or json"},
    {"verbose", 'v', NULL, 1, "say more"},
    {"help", 'h', NULL, 0, "this help"},
};
const size_t plugins_n_check_options = sizeof plugins_check_options / sizeof plugins_check_options[0];

/* The kit beside this program, or among the programs that programs call. */
static int32_t find_kit(char *out, size_t size, bs_error *err) {
  static const char *const places[] = {"bs-conformance", "../libexec/blockshock/bs-conformance"};
  char self[PATH_MAX];
  const ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
  self[n > 0 ? n : 0] = '\0';
  char *slash = strrchr(self, '/');
  if (slash != NULL) slash[1] = '\0';
  for (size_t i = 0; slash != NULL && i < sizeof places / sizeof places[0]; i++) {
    if ((size_t)snprintf(out, size, "%s%s", self, places[i]) < size && access(out, X_OK) == 0) return BS_OK;
  }
  bs_error_set(err, BS_UNAVAILABLE, "BS-CHK-KIT", "the conformance kit is not installed: no bs-conformance");
  bs_error_where(err, "%s", self);
  bs_error_hint(err, "it is built where libcheck is (apt: check), and installed beside bsrun");
  return BS_UNAVAILABLE;
}

/* A value with a slash is a file, anything else the id of a plugin that is found. */
static int32_t find_file(const args *a, const char *what, char *out, size_t size, bs_error *err) {
  bs_plugin_info info = {0};
  bs_context *context = NULL;
  snprintf(out, size, "%s", what);
  if (strchr(what, '/') != NULL) return BS_OK;
  int32_t rc = plugins_open_context(a, NULL, 0, &context, err);
  if (rc == BS_OK) rc = plugins_find(context, what, &info, err);
  if (rc == BS_OK && info.builtin) {
    rc = bs_error_set(err, BS_UNAVAILABLE, "BS-CHK-BUILTIN",
                      "%s is linked into the library: there is no file", info.id);
    bs_error_hint(err, "the library's own tests grade its sources as a file (ctest -R kit_%s)", info.id);
  }
  if (rc == BS_OK) snprintf(out, size, "%s", info.path);
  if (context != NULL) bs_context_close(context);
  return rc;
}

static int32_t add_all(const args *a, const char *name, const char *as, char **words, size_t *n,
                       bs_error *err) {
  const char **values = NULL;
  size_t count = 0;
  const int32_t rc = args_values(a, name, &values, &count, err);
  for (size_t i = 0; rc == BS_OK && i < count && *n + 3 < MAX_WORDS; i++) {
    words[(*n)++] = (char *)(uintptr_t)as;
    words[(*n)++] = (char *)(uintptr_t)values[i];
  }
  free(values);
  return rc;
}

/* The child's exit status; a child that a signal ended is a failure of its own. */
static int32_t run_child(char *const words[], int *out_code, bs_error *err) {
  int status = 0;
  fflush(NULL);
  const pid_t pid = fork();
  if (pid < 0) return bs_error_errno(err, BS_INTERNAL, "BS-CHK-FORK", errno, "cannot start the kit");
  if (pid == 0) {
    execv(words[0], words);
    _exit(127);
  }
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
  if (WIFSIGNALED(status))
    return bs_error_set(err, BS_RANK_FAILED, "BS-CHK-DIED", "the kit died of signal %d (%s)",
                        WTERMSIG(status), strsignal(WTERMSIG(status)));
  if (WEXITSTATUS(status) == 127)
    return bs_error_set(err, BS_UNAVAILABLE, "BS-CHK-KIT", "%s cannot be run", words[0]);
  *out_code = WEXITSTATUS(status);
  return BS_OK;
}

static int32_t check(const args *a, int *out_code, bs_error *err) {
  static const struct {
    const char *name, *as;
  } passed[] = {{"kit", "--kit"},     {"group", "--group"},   {"xfail", "--xfail"},
                {"param", "--param"}, {"option", "--option"}, {"output", "-o"}};
  char program[PATH_MAX], file[PATH_MAX], *words[MAX_WORDS];
  size_t n = 0;
  int32_t rc = find_file(a, a->words[0], file, sizeof file, err);
  if (rc == BS_OK) rc = find_kit(program, sizeof program, err);
  words[n++] = program;
  words[n++] = file;
  for (size_t i = 0; rc == BS_OK && i < sizeof passed / sizeof passed[0]; i++)
    rc = add_all(a, passed[i].name, passed[i].as, words, &n, err);
  words[n] = NULL;
  return rc == BS_OK ? run_child(words, out_code, err) : rc;
}

int plugins_check(int argc, char **argv) {
  bs_error err = BS_ERROR_INIT;
  int code = 0;
  args a;
  int32_t rc = args_parse(argc, argv, plugins_check_options, plugins_n_check_options, &a, &err);
  if (rc == BS_OK && args_has(&a, "help")) {
    help_plugins();
  } else if (rc == BS_OK && a.n_words != 1) {
    rc = bs_error_set(&err, BS_USAGE, "BS-USE-WORD", "plugins check takes one plugin, %zu given", a.n_words);
    bs_error_hint(&err, "for example bsrun plugins check ./bs_acme.so");
  } else if (rc == BS_OK) {
    rc = check(&a, &code, &err);
  }
  args_free(&a);
  return rc == BS_OK ? code : bsrun_fail(&err);
}
