/* SPDX-License-Identifier: MIT
 * write.c - the files of a report: see model.h. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lab/error.h"
#include "lab/report/model.h"

static int32_t cannot(const char *path, int why, bs_error *err) {
  bs_error_errno(err, BS_IO, "BS-OUT-WRITE", why, "cannot write %.200s", path);
  bs_error_hint(err, "choose a folder that exists and has room");
  return BS_IO;
}

int32_t bs_report_write(const char *path, const bs_text *text, bs_error *err) {
  char beside[4096];
  if (snprintf(beside, sizeof beside, "%s.%ld.tmp", path, (long)getpid()) >= (int)sizeof beside)
    return cannot(path, ENAMETOOLONG, err);
  FILE *file = fopen(beside, "wx");
  if (file == NULL) return cannot(path, errno, err);
  const size_t written = text->size > 0 ? fwrite(text->data, 1, text->size, file) : 0;
  int why = written != text->size ? errno : 0;
  if (fclose(file) != 0 && why == 0) why = errno;
  if (why == 0 && rename(beside, path) != 0) why = errno;
  if (why == 0) return BS_OK;
  unlink(beside);
  return cannot(path, why, err);
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
