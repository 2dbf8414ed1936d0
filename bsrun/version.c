/* SPDX-License-Identifier: MIT
 * version.c - `bsrun version`, also --version: three lines, or with -o one row. */
#include <stdio.h>

#include "bsrun/bsrun.h"
#include "core/base/error.h"

static const args_option options[] = {
    {OPT_OUTPUT, "table, md, csv, json or jsonl", 0},
    ARGS_HELP,
};

static int32_t print_version(const args *a, bs_error *err) {
  static const bs_field fields[] = {
      {"bsrun", "bsrun", 0, 0}, {"plugin_abi", "plugin ABI", 0, 0}, {"build", "libblockshock build", 0, 0}};
  char abi[32];
  int format;
  const char *build = bs_build_id()[0] != '\0' ? bs_build_id() : "unknown";
  int32_t rc = bsrun_format(a, &format, err);
  if (rc != BS_OK) return rc;
  snprintf(abi, sizeof abi, "%u.%u", BS_ABI_MAJOR, BS_ABI_MINOR);
  if (!args_has(a, "output")) {
    printf("bsrun %s\nplugin ABI %s\nlibblockshock build %s\n", bs_version(), abi, build);
    return BS_OK;
  }
  json_t *rows = json_pack("[{s:s, s:s, s:s}]", "bsrun", bs_version(), "plugin_abi", abi, "build", build);
  if (rows == NULL) return bs_error_set(err, BS_NO_MEMORY, "BS-MEM", "out of memory");
  rc = bs_report_print(stdout, format, fields, sizeof fields / sizeof fields[0], rows, err);
  json_decref(rows);
  return rc;
}

const bsrun_verb verb_version = {
    .name = "version",
    .summary = "print versions",
    .words = "[-o FORMAT]",
    .about = "Prints the versions of Block-Shock, its library build and its plugin ABI.\n",
    .examples =
        "  bsrun version\n"
        "  bsrun version -o json\n",
    .options = options,
    .run = print_version,
};
