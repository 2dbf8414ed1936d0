/* SPDX-License-Identifier: MIT
 * model_plan.c - `bsrun model plan FILE.csv`: offsets for blocks whose lifetimes and sizes are in a file. */
#include <stdio.h>

#include "bsrun/model.h"
#include "core/base/error.h"
#include "lab/model/plan.h"

static const args_option model_plan_options[] = {
    {OPT_WITH, NULL, 0},
    {OPT_WITH_ALIGN, NULL, 0},
    {OPT_WITH_EFFORT, NULL, 0},
    {OPT_OUTPUT, "table, md, csv, json or jsonl; csv is the file with offsets", 0},
    ARGS_HELP,
};

static const bs_field fields[] = {{"id", "id", 0, 0},
                                  {"lower", "lower", BS_FIELD_RIGHT, 0},
                                  {"upper", "upper", BS_FIELD_RIGHT, 0},
                                  {"size", "size", BS_FIELD_RIGHT, 0},
                                  {"offset", "offset", BS_FIELD_RIGHT, 0}};
enum { N_FIELDS = sizeof fields / sizeof fields[0] };

static long long number(const json_t *plan, const char *key) {
  return (long long)json_integer_value(json_object_get(plan, key));
}

static int32_t print_summary(const json_t *plan, bs_error *err) {
  const long long arena = number(plan, "arena"), bound = number(plan, "bound");
  printf("%lld blocks of %lld bytes lie in an arena of %lld bytes.\n", number(plan, "blocks"),
         number(plan, "naive"), arena);
  bs_print(stdout, "The lower bound is %lld bytes: what is in use in step %lld. arena / bound = %.4f: %s.\n",
           bound, number(plan, "peak_step"), json_real_value(json_object_get(plan, "ratio")),
           arena == bound ? "no arena is smaller"
           : json_is_true(json_object_get(plan, "proven"))
               ? "the bound cannot be reached, and no arena is smaller"
               : "a smaller arena may exist");
  bs_print(stdout,
           "Placed by %s, %lld steps of the exact search, %.1f ms. The largest blocks in use in step %lld:\n",
           json_string_value(json_object_get(plan, "by")), number(plan, "steps"),
           1e3 * json_real_value(json_object_get(plan, "seconds")), number(plan, "peak_step"));
  return bs_report_print(stdout, BS_FORMAT_TABLE, fields, N_FIELDS, json_object_get(plan, "largest"), err);
}

static int32_t plan_file(const args *a, bs_error *err) {
  bs_plan_file file = {0};
  json_t *plan = NULL;
  int64_t align = 1, effort = 100;
  int format;
  int32_t rc = bsrun_format(a, &format, err);
  if (rc == BS_OK) rc = args_integer(a, "align", 1, 1 << 30, align, &align, err);
  if (rc == BS_OK) rc = args_integer(a, "effort", 0, 1000000, effort, &effort, err);
  if (rc == BS_OK && (align & (align - 1)) != 0)
    rc = bs_error_set(err, BS_USAGE, "BS-USE-NUMBER", "--with align: %lld is not a power of two",
                      (long long)align);
  if (rc == BS_OK) rc = bs_plan_file_read(a->words[0], &file, err);
  if (rc == BS_OK) rc = bs_plan_solve(&file, (uint64_t)align, (uint64_t)effort * 1000000, &plan, err);
  if (rc == BS_OK && format == BS_FORMAT_TABLE) {
    rc = print_summary(plan, err);
  } else if (rc == BS_OK && format == BS_FORMAT_JSON) {
    rc = model_print_json(plan, err);
  } else if (rc == BS_OK) {
    rc = bs_report_print(stdout, format, fields, N_FIELDS, json_object_get(plan, "placements"), err);
  }
  json_decref(plan);
  bs_plan_file_free(&file);
  return rc;
}

const bsrun_verb model_plan = {
    .name = "plan",
    .words = "FILE.csv [--with align=BYTES] [--with effort=N] [-o FORMAT]",
    .summary = "offsets in one arena for blocks with lifetimes and sizes",
    .about =
        "The file has the columns id, lower, upper, size (the form of minimalloc): a block is in use in the "
        "steps\n"
        "lower to upper - 1. The plan is checked before it is printed. The search is limited by steps and "
        "not "
        "by\n"
        "time: the same file gives the same plan on every machine. Exit 4: the file is wrong, and where.\n",
    .examples =
        "  bsrun model plan blocks.csv\n"
        "  bsrun model plan blocks.csv --with align=64 -o csv > placed.csv\n"
        "  bsrun model plan blocks.csv --with effort=5000 -o json\n",
    .options = model_plan_options,
    .run = plan_file,
    .min_words = 1,
    .max_words = 1,
    .takes = ":file",
};
