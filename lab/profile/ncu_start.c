/* SPDX-License-Identifier: MIT
 * ncu_start.c - see ncu_start.h. */
#include "lab/profile/ncu_start.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lab/error.h"
#include "lab/process/process.h"
#include "lab/stop.h"

enum { MOST_WORDS = 256, LAST_WORDS = 300 };

/* All sections: which metrics a chip has differs, and ncu refuses one that it lacks. The first launches make
 * handles and warm caches up. */
static const char *const options[] = {"--csv", "--page",          "raw",  "--set",
                                      "full",  "--clock-control", "none", "--launch-skip",
                                      "3",     "--launch-count",  "4"};
enum { N_OPTIONS = sizeof options / sizeof options[0] };

static int in_path(char *out, size_t size) {
  const char *at = getenv("PATH");
  while (at != NULL && *at != '\0') {
    const size_t n = strcspn(at, ":");
    const int fits = snprintf(out, size, "%.*s/ncu", (int)n, at) < (int)size;
    if (n > 0 && fits && access(out, X_OK) == 0) return 1;
    at += n + (at[n] == ':');
  }
  return 0;
}

/* The last of several versions. */
static int in_toolkit(char *out, size_t size) {
  static const char *const places[] = {"/usr/local/cuda*/bin/ncu", "/opt/nvidia/nsight-compute/*/ncu"};
  int found = 0;
  for (size_t i = 0; !found && i < sizeof places / sizeof places[0]; i++) {
    glob_t all;
    if (glob(places[i], 0, NULL, &all) != 0) continue;
    for (size_t k = all.gl_pathc; !found && k-- > 0;)
      found = access(all.gl_pathv[k], X_OK) == 0 && snprintf(out, size, "%s", all.gl_pathv[k]) < (int)size;
    globfree(&all);
  }
  return found;
}

static int32_t find(char *out, size_t size, bs_error *err) {
  if (in_path(out, size) || in_toolkit(out, size)) return BS_OK;
  bs_error_set(err, BS_UNAVAILABLE, "BS-NCU-MISSING",
               "there is no ncu in PATH or in a folder of the CUDA toolkit");
  bs_error_hint(err,
                "ncu is in the package nsight-compute of the CUDA repository; or profile on another "
                "machine, and `bsrun profile ncu FILE.csv` here");
  return BS_UNAVAILABLE;
}

/* The place of the last line that begins with ==, as ncu's do; the text's size: none. */
static size_t last_of_ncu(const bs_text *text) {
  for (size_t i = text->size; i-- > 0;)
    if (text->data[i] == '=' && (i == 0 || text->data[i - 1] == '\n') && i + 1 < text->size &&
        text->data[i + 1] == '=')
      return i;
  return text->size;
}

/* Copies ncu's last line, else the end of what was printed, as one line. The command prints there, too. */
static void last_words(const bs_text *out, const bs_text *say, char *room) {
  const bs_text *from = last_of_ncu(out) < out->size || say->size == 0 ? out : say;
  size_t begin = last_of_ncu(from), n = from->size;
  while (n > 0 && strchr("\r\n ", from->data[n - 1]) != NULL) n--;
  if (begin >= n) begin = n > LAST_WORDS - 1 ? n - (LAST_WORDS - 1) : 0;
  snprintf(room, LAST_WORDS, "%.*s", (int)(n - begin), n > 0 ? from->data + begin : "");
  for (char *c = room; *c != '\0'; c++)
    if (*c == '\n' || *c == '\r') *c = ' ';
}

static int has(const bs_process *p, const char *word) {
  return (p->out.size > 0 && strstr(p->out.data, word) != NULL) ||
         (p->err.size > 0 && strstr(p->err.data, word) != NULL);
}

/* Says why ncu gave no table of kernels. */
static int32_t explain(const bs_process *p, int code, bs_error *err) {
  char words[LAST_WORDS];
  last_words(&p->out, &p->err, words);
  if (has(p, "ERR_NVGPUCTRPERM")) {
    bs_error_set(err, BS_UNAVAILABLE, "BS-NCU-PERMISSION",
                 "ncu may not read the counters of this GPU (ERR_NVGPUCTRPERM)");
    bs_error_hint(err,
                  "the driver's option NVreg_RestrictProfilingToAdminUsers=0, or the capability "
                  "CAP_SYS_ADMIN, permits it");
    return BS_UNAVAILABLE;
  }
  if (code != 0)
    return bs_error_set(err, BS_UNAVAILABLE, "BS-NCU-FAILED", "ncu ended with %d: %s", code, words);
  bs_error_set(err, BS_UNAVAILABLE, "BS-NCU-KERNELS", "ncu has seen too few launches of kernels: %s", words);
  bs_error_hint(err, "is the kernel on a GPU: --plugin cuda --backend cuda?");
  return BS_UNAVAILABLE;
}

static int32_t finish(bs_process *p, double silence_s, bs_ncu_take take, void *user, bs_error *err) {
  const int late = !p->ended && bs_stop_asked() == 0;
  if (!p->ended) bs_process_kill(p);
  const int code = bs_process_finish(p);
  if (bs_stop_asked() != 0) return bs_stop_check(err);
  if (late) {
    bs_error_set(err, BS_DEADLINE, "BS-NCU-SILENT", "ncu has printed nothing for %.0f s, and was killed",
                 silence_s);
    bs_error_hint(err, "the same command without ncu shows whether the kernel itself hangs");
    return BS_DEADLINE;
  }
  if (p->out.failed || p->err.failed) return bs_no_memory(err, "what ncu prints");
  if (code != 0 || p->out.size == 0 || !has(p, "\"Kernel Name\"")) return explain(p, code, err);
  return bs_ncu_read_text(p->out.data, "ncu", take, user, err);
}

int32_t bs_ncu_start(char *const *words, double silence_s, bs_ncu_take take, void *user, bs_error *err) {
  char program[4096];
  char *all[N_OPTIONS + MOST_WORDS + 2];
  size_t n = 0;
  int32_t rc = find(program, sizeof program, err);
  if (rc != BS_OK) return rc;
  all[n++] = program;
  for (size_t i = 0; i < N_OPTIONS; i++) all[n++] = (char *)(uintptr_t)options[i];
  for (size_t i = 0; words[i] != NULL; i++) {
    if (i == MOST_WORDS) return bs_error_set(err, BS_USAGE, "BS-USE-VALUE", "the command has too many words");
    all[n++] = words[i];
  }
  all[n] = NULL;
  const bs_child child = {
      .program = program, .words = all, .stdio = {BS_CHILD_NULL, BS_CHILD_PIPE, BS_CHILD_PIPE}};
  bs_process p;
  const int failed = bs_process_start(&child, &p);
  if (failed != 0)
    return bs_error_errno(err, BS_UNAVAILABLE, "BS-NCU-FAILED", failed, "%s cannot be started", program);
  p.whole = 1;
  (void)bs_process_watch(&p, silence_s);
  rc = finish(&p, silence_s, take, user, err);
  bs_process_free(&p);
  return rc;
}
