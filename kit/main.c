/* SPDX-License-Identifier: MIT
 * main.c - the command bs-conformance: grades one plugin file. Standard output belongs to the report: while
 * checks run, plugins write into nothing. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "core/base/text.h"
#include "kit/kit.h"

enum { MAX_SETTINGS = 64 };

static const char usage[] =
    "usage: bs-conformance PLUGIN.so [--preset quick|full] [--only ID,..] [--part K/N] [--xfail FILE]\n"
    "                      [--backend B] [--param NAME=VALUE] [--option NAME=VALUE] [-o text|tap|json]\n"
    "                      [--mpirun WORDS]\n"
    "\n"
    "Grades one plugin: each check runs in a process of its own, and the last line is the grade.\n"
    "\n"
    "  --preset quick|full  how many generated cases (quick)\n"
    "  --only ID,..         only these groups of checks: abi, lifecycle, truth, numerics, method, "
    "communicator,\n"
    "                       workload, algorithm, threads, hygiene; or the beginning of names of checks in "
    "one\n"
    "                       (method.gradient); the last line then says partial: who passes a part may fail\n"
    "                       another\n"
    "  --part K/N           of the chosen checks the K-th, and every N-th behind it, so that N processes\n"
    "                       share the work; the last line then says partial\n"
    "  --backend B          what methods are graded on (ref); looked for as bsrun does, host memory only\n"
    "  --mpirun WORDS       what starts the ranks of a communicator that is an MPI's (the mpirun of PATH); "
    "it\n"
    "                       must take -n P PROGRAM\n"
    "  --xfail FILE         lines NAME: REASON of checks that are expected to fail; one that passes counts "
    "as a failure\n"
    "  --param NAME=VALUE   a parameter of the plugin (repeatable)\n"
    "  --option NAME=VALUE  an option of its methods and workloads (repeatable)\n"
    "  -o, --output FORMAT  text, tap or json\n"
    "  -h, --help           this help\n"
    "      --version        the version\n"
    "\n"
    "examples:\n"
    "  bs-conformance ./bs_acme.so\n"
    "  bs-conformance ./bs_acme.so --preset full --only numerics\n"
    "  bs-conformance ./bs_acme.so --xfail xfail.txt -o tap\n"
    "  bs-conformance ./bs_acme.so --only method --backend cpu\n"
    "  bs-conformance ./bs_acme.so --only abi,method.gradient\n"
    "\n"
    "exit codes: 0 conformant; 2 usage; 4 xfail file; 5 not conformant, or no such plugin; 10 memory or "
    "disk\n";

typedef struct request {
  bs_kit_options kit;
  uint32_t format;
  const char *params[MAX_SETTINGS], *options[MAX_SETTINGS];
  char only[256]; /* all of --only, with commas */
} request;

static int tell(const bs_error *err) {
  char line[1400];
  bs_error_format(err, "bs-conformance", line, sizeof line);
  fprintf(stderr, "%s\n", line);
  return bs_status_exit_code(err->code);
}

static int wrong(const char *what, const char *seen, const char *const *known, size_t n) {
  bs_error err = BS_ERROR_INIT;
  const char *near = bs_nearest(seen, known, n);
  bs_error_set(&err, BS_USAGE, "BS-USE-VALUE", "%s: '%.80s' is not known", what, seen);
  if (near != NULL)
    bs_error_hint(&err, "did you mean '%s'?", near);
  else
    bs_error_hint(&err, "bs-conformance --help");
  return tell(&err);
}

static int index_of(const char *word, const char *const *known, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (strcmp(word, known[i]) == 0) return (int)i;
  return -1;
}

static int take_setting(const char *name, const char *text, const char **list, uint32_t *n) {
  bs_error err = BS_ERROR_INIT;
  if (strchr(text, '=') != NULL && *n < MAX_SETTINGS) {
    list[(*n)++] = text;
    return 0;
  }
  bs_error_set(&err, BS_USAGE, "BS-USE-VALUE", "%s: '%.80s' is not NAME=VALUE, or there are more than %d",
               name, text, MAX_SETTINGS);
  return tell(&err);
}

/* --only may be given more than once. */
static int take_only(request *r, const char *value) {
  const size_t used = strlen(r->only);
  char name[100];
  const char *at = value;
  for (int more = 1; more;) {
    const size_t length = strcspn(at, ",");
    snprintf(name, sizeof name, "%.*s", (int)length, at);
    if (!bs_kit_group_known(at)) return wrong("--only", name, kit_groups, kit_n_groups);
    more = at[length] == ',';
    at += length + 1;
  }
  if (used + 1 + strlen(value) >= sizeof r->only) return wrong("--only", value, NULL, 0);
  snprintf(r->only + used, sizeof r->only - used, "%s%s", used > 0 ? "," : "", value);
  r->kit.group = r->only;
  return -1;
}

/* "I/N"; 0: it is something else. */
static int read_part(const char *value, bs_kit_options *out) {
  char *end = NULL;
  if (value[strspn(value, "0123456789/")] != '\0' || value[0] == '/') return 0;
  out->part = (uint32_t)strtoul(value, &end, 10);
  if (end[0] != '/' || end[1] == '\0') return 0;
  out->parts = (uint32_t)strtoul(end + 1, &end, 10);
  return *end == '\0' && out->parts > 0;
}

/* One option; -1: go on, else the exit code. */
static int take(request *r, int letter, const char *value) {
  static const char *const kits[] = {"quick", "full"}, *const formats[] = {"text", "tap", "json"};
  int at;
  switch (letter) {
    case 'k':
      if ((at = index_of(value, kits, 2)) < 0) return wrong("--preset", value, kits, 2);
      r->kit.full = at;
      return -1;
    case 'g':
      return take_only(r, value);
    case 'n':
      if (read_part(value, &r->kit)) return -1;
      return wrong("--part", value, NULL, 0);
    case 'b':
      r->kit.backend = value;
      return -1;
    case 'm':
      r->kit.mpirun = value;
      return -1;
    case 'x':
      r->kit.xfail = value;
      return -1;
    case 'o':
      if ((at = index_of(value, formats, 3)) < 0) return wrong("-o", value, formats, 3);
      r->format = (uint32_t)at;
      return -1;
    case 'p':
      return take_setting("--param", value, r->params, &r->kit.n_params) ? 2 : -1;
    case 's':
      return take_setting("--option", value, r->options, &r->kit.n_options) ? 2 : -1;
    case 'v':
      printf("bs-conformance %s, plugin ABI %u.%u\n", bs_version(), BS_ABI_MAJOR, BS_ABI_MINOR);
      return 0;
    case 'h':
      fputs(usage, stdout);
      return 0;
    default:
      fputs("bs-conformance: hint: bs-conformance --help\n", stderr); /* getopt said what is wrong */
      return 2;
  }
}

/* Children inherit a standard output that goes nowhere; the report's own is returned. */
static int keep_stdout(void) {
  const int out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3), null = open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (out < 0 || null < 0 || dup2(null, STDOUT_FILENO) < 0) return -1;
  close(null);
  return out;
}

static int grade(const request *r) {
  bs_error err = BS_ERROR_INIT;
  bs_kit_report report;
  const int out = keep_stdout();
  if (out < 0) {
    bs_error_errno(&err, BS_IO, "BS-KIT-OUTPUT", errno, "standard output cannot be kept for the report");
    return tell(&err);
  }
  if (bs_kit_run(&r->kit, &report, &err) != BS_OK) return tell(&err);
  if (bs_kit_print(&report, r->format, out) != 0) {
    bs_error_set(&err, BS_IO, "BS-KIT-OUTPUT", "the report cannot be written");
  } else if (!bs_kit_passed(&report)) {
    bs_error_set(&err, BS_PLUGIN, "BS-KIT-FAILED", "%u of %u checks failed", report.count[BS_KIT_FAIL],
                 report.n_rows);
    bs_error_where(&err, "%s", report.path);
  }
  bs_kit_free(&report);
  return err.code == BS_OK ? 0 : tell(&err);
}

int main(int argc, char **argv) {
  static const struct option longs[] = {
      {"preset", required_argument, NULL, 'k'}, {"only", required_argument, NULL, 'g'},
      {"part", required_argument, NULL, 'n'},   {"backend", required_argument, NULL, 'b'},
      {"xfail", required_argument, NULL, 'x'},  {"output", required_argument, NULL, 'o'},
      {"param", required_argument, NULL, 'p'},  {"option", required_argument, NULL, 's'},
      {"help", no_argument, NULL, 'h'},         {"version", no_argument, NULL, 'v'},
      {"mpirun", required_argument, NULL, 'm'}, {NULL, 0, NULL, 0},
  };
  static request r;
  static char self[4096];
  bs_error err = BS_ERROR_INIT;
  signal(SIGCHLD, SIG_DFL); /* where the caller ignores it, the kernel would take the status of children */
  if (argc == 3 && strcmp(argv[1], "--rank") == 0) return kit_rank_main(argv[2]);
  const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
  r.kit.rank_program = length > 0 ? self : NULL;
  for (int letter; (letter = getopt_long(argc, argv, "o:h", longs, NULL)) >= 0;) {
    const int code = take(&r, letter, optarg);
    if (code >= 0) return code;
  }
  r.kit.params = r.params;
  r.kit.options = r.options;
  if (optind + 1 == argc) {
    r.kit.plugin = argv[optind];
    return grade(&r);
  }
  bs_error_set(&err, BS_USAGE, "BS-USE-WORD", "takes one plugin file, %d given", argc - optind);
  bs_error_hint(&err, "for example bs-conformance ./bs_acme.so");
  return tell(&err);
}
