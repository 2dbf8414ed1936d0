/* SPDX-License-Identifier: MIT
 * validate.h - the inside of a device is held to measured times of ops: `bsrun sim validate`. Three constants
 * are fitted to every second product; the errors are those of the other rows, of the device and of a roofline
 * with the same constants. */
#ifndef BS_LAB_SIM_VALIDATE_H
#define BS_LAB_SIM_VALIDATE_H
#include <jansson.h>

#include "lab/config/device_file.h"
#include "sim/program.h"

enum { BS_VALIDATE_LEAST = 8, BS_VALIDATE_MOST = 512, BS_VALIDATE_ROUNDS = 3, BS_VALIDATE_CLASSES = 32 };
/* Limits of the fitted shares of a rate. */
#define BS_VALIDATE_SHARE_LEAST 0.01
#define BS_VALIDATE_SHARE_MOST 1.5

/* A row of a file, and what was found of it. */
typedef struct bs_validate_row {
  const char *path; /* the caller's */
  char op[128];
  uint32_t line;
  double measured_s;
  double launch_s;         /* its own; below 0: that of the device */
  char what[160];          /* the op as `bsrun sim explain` writes it */
  char why_not[160];       /* no program yet, or why the device cannot hold it; empty: it has_program */
  int has_program, in_fit; /* in_fit: a product without a launch of its own */
  double simulated_s, roofline_s; /* of the constants, the launch among them */
  double units_s, memory_s;       /* closed forms of the roofline, at the device's own rates */
  double unit_busy, memory_busy;  /* shares of the time without the launch */
  sim_knobs chosen;               /* of the first round; tm 0: none yet */
  char busiest[24], knobs[160];   /* a class of parts */
  int assumed;                    /* a figure that is assumed counts in its time */
} bs_validate_row;

typedef struct bs_validate_rows {
  uint32_t n, n_in_fit;
  bs_validate_row row[BS_VALIDATE_MOST];
} bs_validate_rows;

/* Relative errors of rows that were not fitted to. */
typedef struct bs_validate_error {
  uint32_t rows;
  double mean, bias, worst;
} bs_validate_error;

/* Constants that a row told something of; the others are those of the device. */
enum { BS_VALIDATE_LAUNCH = 1, BS_VALIDATE_UNITS = 2, BS_VALIDATE_MEMORY = 4, BS_VALIDATE_ALL = 7 };

/* The errors of one op, such as softmax; beyond 32 ops the last one is "others". */
typedef struct bs_validate_class {
  char op[24];
  bs_validate_error inside, roofline;
} bs_validate_class;

typedef struct bs_validation {
  bs_device_constants constants;
  uint32_t fitted;                    /* BS_VALIDATE_LAUNCH | .. */
  bs_validate_error inside, roofline; /* of held-out products; rows 0: there are none */
  uint32_t repeated;                  /* held-out rows whose op is that of a fitted one */
  uint32_t n_classes;
  bs_validate_class classes[BS_VALIDATE_CLASSES];
} bs_validation;

/* Adds the rows of a file: op,seconds or op,seconds,launch_s; # begins a comment. Blanks around a field, CRLF
 * and the mark of UTF-8 at the beginning do not count. BS_INPUT BS-VALIDATE-FILE: what is wrong, with the
 * line, or why the file cannot be read. */
int32_t bs_validate_read(const char *path, bs_validate_rows *inout, bs_error *err);
/* A product whose row has no launch belongs to the fit: the fit takes number 1, 3, .. of these and judges 2,
 * 4, .. . All other rows are judged with the constants. Without such a product the device keeps its
 * constants. A row that has no program, or one that the device cannot hold, says why and does not count.
 * BS_INPUT BS-VALIDATE-FEW: fewer than 8 of them, or no row that counts. The place of an error of one row is
 * its line. */
int32_t bs_validate(const bs_device_file *file, bs_validate_rows *inout_rows, bs_validation *out,
                    bs_error *err);
/* Is row i a product of the fit that was not fitted to? */
int bs_validate_held_out(const bs_validate_rows *rows, uint32_t i);
#endif
