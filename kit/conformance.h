/* SPDX-License-Identifier: MIT
 *
 * conformance.h - the conformance kit as a library (libbs-conformance.a; link with libcheck, jansson and
 * libblockshock): grades one plugin file. Each check runs in a separate child process, so a plugin that
 * crashes or hangs fails one check only. share/doc/blockshock/conformance.md has the groups and the rules. */
#ifndef BLOCKSHOCK_CONFORMANCE_H
#define BLOCKSHOCK_CONFORMANCE_H

#include <blockshock/blockshock.h>

#ifdef __cplusplus
extern "C" {
#endif

enum bs_kit_result { BS_KIT_PASS = 0, BS_KIT_FAIL = 1, BS_KIT_UNSUPPORTED = 2, BS_KIT_XFAIL = 3 };
enum bs_kit_format { BS_KIT_TEXT = 0, BS_KIT_TAP = 1, BS_KIT_JSON = 2 };

typedef struct bs_kit_options {
  const char *plugin; /* path of bs_<id>.so */
  int full;           /* 0: quick */
  int edges;          /* 1: a quick kit with all sizes at which kernels of products have edges */
  uint32_t dtype;     /* asks only queries in which every value has this dtype; 0: all */
  /* Only this group, or the checks whose names begin with it ("method.exact"), or several of them with
   * commas; NULL: all that fit. */
  const char *group;
  const char *xfail; /* file of expected failures; NULL: none */
  /* "NAME=VALUE": parameters of the plugin, and options of its methods and workloads. */
  const char *const *params, *const *options;
  uint32_t n_params, n_options;
  const char *backend; /* of the worlds that methods are graded in; NULL: ref. Its memory is the host's */
  /* For communicators whose ranks mpirun starts: a command that takes -n P PROGRAM (NULL: the mpirun of
   * PATH), and the command bs-conformance, which every rank runs (NULL: such communicators are not
   * checked). */
  const char *mpirun, *rank_program;
  uint32_t part, parts; /* runs the part-th of the chosen checks, and every parts-th after it; 0, 0: all */
} bs_kit_options;

typedef struct bs_kit_row {
  char group[16];
  char name[256];  /* group.what[.thing] */
  uint32_t result; /* enum bs_kit_result */
  char text[640];  /* the reason of a failure, of an unsupported check, or of an xfail */
} bs_kit_row;

typedef struct bs_kit_report {
  char id[32], version[32], path[512];
  uint32_t kinds; /* bit set of (1 << enum bs_kind) */
  int full;
  uint32_t n_rows;
  bs_kit_row *rows;
  uint32_t count[4]; /* by enum bs_kit_result */
  char group[256];   /* "": all; else the report covers a part, and its grade says so */
  char grade[512];   /* the last line of every report */
} bs_kit_report;

/* 1: a group of the kit, or a name that begins with a group and a dot. What follows a comma is not read. */
int bs_kit_group_known(const char *group);
/* Runs the checks: BS_OK if there is a report, with any content; BS_INPUT for a wrong xfail file,
 * BS_UNAVAILABLE for a missing file. Forks; prints nothing. */
int32_t bs_kit_run(const bs_kit_options *options, bs_kit_report *out_report, bs_error *err);
/* No failure, and at least one check passed. */
int bs_kit_passed(const bs_kit_report *report);
/* A report on a descriptor, in one of the forms. 0, or -1 when it could not all be written. */
int bs_kit_print(const bs_kit_report *report, uint32_t format, int fd);
void bs_kit_free(bs_kit_report *report);

#ifdef __cplusplus
}
#endif
#endif
