/* SPDX-License-Identifier: MIT
 * grade.h - the grades that `bsrun plugins check` has given, in the user's cache folder: JSON lines, keyed by
 * the SHA-256 of the plugin's file, only ever appended to. The last line of a file wins. Lines of another
 * instruction set or plugin ABI are kept and skipped, broken ones counted and skipped. */
#ifndef BS_LAB_STORE_GRADE_H
#define BS_LAB_STORE_GRADE_H
#include <jansson.h>

#include "lab/store/lines.h"

typedef struct bs_grades {
  json_t *isa;    /* of this machine, as in env.json */
  bs_lines lines; /* that hold here */
} bs_grades;

/* The stored data of one grading, in addition to the sum: the result and the arguments of the kit. */
typedef struct bs_grade {
  const char *plugin; /* id */
  const char *sha256; /* of the file that was graded */
  const char *stamp;  /* bs_file_stamp of it; NULL: the file changed its stamp meanwhile */
  const char *line;   /* the kit's last line */
  const char *kit;    /* quick or full */
  json_t *settings;   /* list of "param NAME=VALUE" and "option NAME=VALUE"; NULL: none */
} bs_grade;

/* path NULL: an empty one. BS_IO when a file is there and cannot be read (out is usable then, and writes
 * nowhere). */
int32_t bs_grades_open(const char *path, bs_grades *out, bs_error *err);
void bs_grades_close(bs_grades *grades);
/* The newest grade of the file with this sum: {line, conformant, counts, kit, settings, abi, blockshock,
 * graded_at, ...}, owned by grades. NULL: it is not graded. */
const json_t *bs_grades_find(const bs_grades *grades, const char *sha256);
/* The newest grade of the plugin's file at `path`, or NULL. A file with the stamp of a graded one is not
 * read. Another one is summed, unless no file of this plugin has a grade. A grade is advice: no code opens or
 * refuses a file because of it. */
const json_t *bs_grades_of_file(const bs_grades *grades, const char *plugin, const char *path);
/* Appends one grade. BS_INPUT: the line is not a grade. BS_IO. BS-GRADE-LOCK: another process held the lock
 * for two seconds. */
int32_t bs_grades_add(const bs_grades *grades, const bs_grade *grade, bs_error *err);
/* Puts `grade` into each row of bs_env_plugins' list: the grade without fields of the row or of env.json, or
 * null for a file that is not graded and for a built-in, which has no grade. Call it only after a run's key
 * is made. */
int32_t bs_grades_mark(const bs_grades *grades, json_t *plugins, bs_error *err);
#endif
