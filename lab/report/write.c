/* SPDX-License-Identifier: MIT
 * write.c - the files of a report: see model.h. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base/out_file.h"
#include "lab/error.h"
#include "lab/report/model.h"

static int32_t cannot(const char *path, int why, bs_error *err) {
  bs_error_errno(err, BS_IO, "BS-OUT-WRITE", why, "cannot write %.200s", path);
  bs_error_hint(err, "choose a folder that exists and has room");
  return BS_IO;
}

int32_t bs_report_write(const char *path, const bs_text *text, bs_error *err) {
  const int why = bs_out_text(path, text->data, text->size);
  return why == 0 ? BS_OK : cannot(path, why, err);
}

int32_t bs_report_write_charts(const char *dir, const bs_chart *charts, size_t n, bs_error *err) {
  int32_t rc = BS_OK;
  char path[4096];
  if (mkdir(dir, 0777) != 0 && errno != EEXIST) return cannot(dir, errno, err);
  for (size_t i = 0; rc == BS_OK && i < n; i++) {
    bs_text text = {0};
    if (snprintf(path, sizeof path, "%s/%s.svg", dir, charts[i].id) >= (int)sizeof path)
      return cannot(dir, ENAMETOOLONG, err);
    bs_svg_document(&text, charts[i].svg.data);
    rc = text.failed ? bs_no_memory(err, "a chart") : bs_report_write(path, &text, err);
    bs_text_free(&text);
  }
  return rc;
}
