/* SPDX-License-Identifier: MIT
 * oplog_text.c - an op log as text: see oplog.h. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/error.h"
#include "core/base/out_file.h"
#include "sim/oplog.h"

/* ---- write ------------------------------------------------------------------------------------- */

static void put_range(FILE *f, const sim_range *r, const char *before) {
  char text[128];
  sim_range_say(r, text, sizeof text);
  fprintf(f, "%s%s", before, text);
}

static void put_job(FILE *f, const sim_oplog *log, const sim_logged *j) {
  fprintf(f, "%" PRIu64 "\t%" PRIu64 "\t%s\t%u\t%s\t", j->begin, j->end, log->lanes[j->lane], j->job,
          sim_what_name(j->what));
  for (uint32_t i = 0; i < j->n_reads; i++) put_range(f, &j->reads[i], i > 0 ? "," : "");
  fputs(j->n_reads > 0 ? "\t" : "-\t", f);
  if (j->n_writes > 0) put_range(f, &j->writes, "");
  fputs(j->n_writes > 0 ? "\t" : "-\t", f);
  for (uint32_t i = 0; i < j->n_needs; i++) fprintf(f, "%s%u", i > 0 ? "," : "", j->needs[i]);
  fputs(j->n_needs > 0 ? "\n" : "-\n", f);
}

int32_t sim_oplog_write(const sim_oplog *log, const char *path, bs_error *err) {
  bs_out_file out;
  int why = bs_out_open(path, &out);
  FILE *f = why == 0 ? fdopen(dup(out.fd), "w") : NULL;
  if (why == 0 && f == NULL) why = bs_out_close(&out, errno, 0);
  if (f == NULL) return bs_error_errno(err, BS_IO, "BS-OPLOG-WRITE", why, "cannot write the log %s", path);
  fprintf(f,
          "#oplog 1\top %s\tknobs %s\tdevice %s %016" PRIx64
          "\tunit ps\n#begin\tend\tlane\tjob\twhat\treads\twrites\tneeds\n",
          log->op, log->knobs, log->device, log->hash);
  for (uint64_t i = 0; i < log->n; i++) put_job(f, log, &log->jobs[i]);
  const int bad = ferror(f);
  if (fclose(f) != 0) why = errno;
  why = bs_out_close(&out, why == 0 && bad ? EIO : why, 0);
  if (why != 0) return bs_error_errno(err, BS_IO, "BS-OPLOG-WRITE", why, "cannot write the log %s", path);
  return BS_OK;
}

/* ---- read -------------------------------------------------------------------------------------- */

typedef struct reader {
  FILE *file;
  const char *path;
  uint64_t line;
  char text[SIM_OPLOG_LINE + 2];
  sim_oplog *log;
  bs_error *err;
} reader;

static int32_t wrong(reader *r, const char *id, const char *what, const char *text) {
  bs_error_set(r->err, BS_INPUT, id, "%s: '%.60s'", what, text);
  bs_error_where(r->err, "%s:%" PRIu64, r->path, r->line);
  return BS_INPUT;
}

/* The next line without its end; *out_over: there is none. */
static int32_t next_line(reader *r, int *out_over) {
  *out_over = fgets(r->text, sizeof r->text, r->file) == NULL;
  if (*out_over && ferror(r->file))
    return bs_error_errno(r->err, BS_INPUT, "BS-OPLOG-READ", errno, "cannot read %s", r->path);
  if (*out_over) return BS_OK;
  r->line++;
  const size_t n = strlen(r->text);
  if (n == 0 || r->text[n - 1] != '\n')
    return wrong(r, "BS-OPLOG-LINE", "a line has no end, more than 1024 characters, or a zero byte", r->text);
  r->text[n - 1] = '\0';
  return BS_OK;
}

/* A whole number without a sign from *at on, which then points behind it. */
static int number(const char **at, uint64_t most, uint64_t *out) {
  const char *p = *at;
  uint64_t x = 0;
  if (*p < '0' || *p > '9') return 0;
  for (; *p >= '0' && *p <= '9'; p++) {
    const uint64_t digit = (uint64_t)(*p - '0');
    if (x > (most - digit) / 10) return 0;
    x = 10 * x + digit;
  }
  *at = p;
  *out = x;
  return 1;
}

static int whole_number(const char *text, uint64_t most, uint64_t *out) {
  return number(&text, most, out) && *text == '\0';
}

static int follows(const char **at, char c) {
  if (**at != c) return 0;
  (*at)++;
  return 1;
}

static int read_space(const char **at, uint32_t *out) {
  for (uint32_t s = 0; s < SIM_SPACES; s++) {
    const size_t n = strlen(sim_space_name(s));
    if (strncmp(*at, sim_space_name(s), n) != 0 || (*at)[n] != ':') continue;
    *at += n + 1;
    *out = s;
    return 1;
  }
  return 0;
}

/* Its last byte is in the space; so no sum of what was read can be too large. */
static int is_inside(const sim_range *r) {
  const uint64_t limit = r->space == SIM_SPACE_SCRATCH ? UINT32_MAX : SIM_OPLOG_BYTES;
  if (r->bytes == 0 || r->rows == 0 || r->start > limit || r->bytes > limit - r->start) return 0;
  if (r->rows == 1) return 1;
  if (r->space == SIM_SPACE_SCRATCH || r->pitch < r->bytes) return 0;
  return r->pitch <= (limit - r->start - r->bytes) / (r->rows - 1);
}

static int32_t read_range(reader *r, const char **at, sim_range *out) {
  const char *begins = *at;
  uint64_t rows = 1;
  memset(out, 0, sizeof *out);
  if (!read_space(at, &out->space))
    return wrong(r, "BS-OPLOG-SPACE", "an operand is in A, B, Y, X0 to X7, Y0 to Y2, Q, K, V, O or scratch",
                 begins);
  int good = number(at, SIM_OPLOG_BYTES, &out->start) && follows(at, '+') &&
             number(at, SIM_OPLOG_BYTES, &out->bytes);
  if (good && follows(at, '*'))
    good = number(at, SIM_OPLOG_ROWS, &rows) && follows(at, '/') &&
           number(at, SIM_OPLOG_BYTES, &out->pitch) && rows > 1;
  out->rows = (uint32_t)rows;
  if (good && is_inside(out)) return BS_OK;
  return wrong(r, "BS-OPLOG-RANGE", "a range is SPACE:START+BYTES or SPACE:START+BYTES*ROWS/PITCH", begins);
}

/* Ranges with commas between; "-": none. */
static int32_t read_ranges(reader *r, const char *text, uint32_t most, sim_range *out, uint32_t *out_n) {
  int32_t rc = BS_OK;
  *out_n = 0;
  if (strcmp(text, "-") == 0) return BS_OK;
  for (int more = 1; rc == BS_OK && more;) {
    if (*out_n == most) return wrong(r, "BS-OPLOG-RANGE", "a job has too many ranges", text);
    rc = read_range(r, &text, &out[*out_n]);
    if (rc == BS_OK) ++*out_n;
    more = follows(&text, ',');
  }
  return rc == BS_OK && *text != '\0' ? wrong(r, "BS-OPLOG-RANGE", "behind a range comes a comma", text) : rc;
}

static int32_t read_needs(reader *r, const char *text, sim_logged *j) {
  const char *at = text;
  if (strcmp(text, "-") == 0) return BS_OK;
  do {
    uint64_t need = 0;
    if (j->n_needs == SIM_NEEDS || !number(&at, UINT32_MAX, &need) || need >= j->job)
      return wrong(r, "BS-OPLOG-NEEDS", "too many needs, or one that is no earlier job of the lane", text);
    j->needs[j->n_needs++] = (uint32_t)need;
  } while (follows(&at, ','));
  return *at == '\0' ? BS_OK : wrong(r, "BS-OPLOG-NEEDS", "needs are numbers with commas between", text);
}

/* Splits at tabs; 0: there are not exactly n fields. */
static int split(char *text, char **fields, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) {
    fields[i] = text;
    text = strchr(text, '\t');
    if ((text == NULL) != (i + 1 == n)) return 0;
    if (text != NULL) *text++ = '\0';
  }
  return 1;
}

static int32_t check_job(reader *r, const sim_logged *j) {
  const sim_oplog *log = r->log;
  if (j->end < j->begin || (log->n > 0 && j->end < log->jobs[log->n - 1].end))
    return wrong(r, "BS-OPLOG-ORDER", "jobs come in the order of their ends, each behind its begin", "end");
  if (j->n_writes > 0 && j->writes.space != SIM_SPACE_SCRATCH && !sim_space_is_output(j->writes.space))
    return wrong(r, "BS-OPLOG-SPACE", "no job writes an input", sim_space_name(j->writes.space));
  for (uint32_t i = 0; i < j->n_reads; i++)
    if (sim_space_is_output(j->reads[i].space))
      return wrong(r, "BS-OPLOG-SPACE", "no job reads an output", sim_space_name(j->reads[i].space));
  return BS_OK;
}

static int32_t read_job(reader *r) {
  char *f[8];
  uint64_t job = 0;
  uint32_t writes = 0;
  sim_logged j = {0};
  if (!split(r->text, f, 8))
    return wrong(r, "BS-OPLOG-LINE", "a line has 8 fields, with tabs between", r->text);
  if (!whole_number(f[0], SIM_NEVER - 1, &j.begin) || !whole_number(f[1], SIM_NEVER - 1, &j.end))
    return wrong(r, "BS-OPLOG-LINE", "begin and end are whole ps", f[0]);
  if (f[2][0] == '\0' || strlen(f[2]) >= sizeof r->log->lanes[0])
    return wrong(r, "BS-OPLOG-LINE", "the name of a lane has 1 to 63 characters", f[2]);
  if (!whole_number(f[3], SIM_OPLOG_JOBS, &job))
    return wrong(r, "BS-OPLOG-LINE", "a job is its number in its lane", f[3]);
  j.job = (uint32_t)job;
  while (j.what < SIM_WHATS && strcmp(sim_what_name(j.what), f[4]) != 0) j.what++;
  if (j.what == SIM_WHATS) return wrong(r, "BS-OPLOG-WHAT", "no program has such a job", f[4]);
  int32_t rc = read_ranges(r, f[5], SIM_OPLOG_READS, j.reads, &j.n_reads);
  if (rc == BS_OK) rc = read_ranges(r, f[6], 1, &j.writes, &writes);
  j.n_writes = writes;
  if (rc == BS_OK) rc = read_needs(r, f[7], &j);
  if (rc == BS_OK) rc = check_job(r, &j);
  if (rc != BS_OK) return rc;
  j.lane = sim_oplog_add_lane(r->log, f[2]);
  if (j.lane == UINT32_MAX) return wrong(r, "BS-OPLOG-SIZE", "too many lanes, or no memory for them", f[2]);
  rc = sim_oplog_add(r->log, &j, r->err);
  return rc == BS_CONFIG ? wrong(r, "BS-OPLOG-SIZE", "a log has at most 524288 jobs", f[3]) : rc;
}

/* "op matmul ..." into out. */
static int take(const char *field, const char *word, char *out, size_t size) {
  const size_t n = strlen(word);
  if (strncmp(field, word, n) != 0 || field[n] != ' ' || strlen(field + n + 1) >= size) return 0;
  memcpy(out, field + n + 1, strlen(field + n + 1) + 1);
  return 1;
}

static int hex(const char *text, uint64_t *out) {
  static const char digits[] = "0123456789abcdef";
  *out = 0;
  for (uint32_t i = 0; i < 16; i++) {
    const char *at = text[i] != '\0' ? strchr(digits, text[i]) : NULL;
    if (at == NULL) return 0;
    *out = *out << 4 | (uint64_t)(at - digits);
  }
  return text[16] == '\0';
}

static int32_t read_head(reader *r) {
  char *f[5], device[sizeof r->log->device + 20];
  int over = 0;
  int32_t rc = next_line(r, &over);
  if (rc != BS_OK) return rc;
  if (over || !split(r->text, f, 5) || strcmp(f[0], "#oplog 1") != 0 || strcmp(f[4], "unit ps") != 0 ||
      !take(f[1], "op", r->log->op, sizeof r->log->op) ||
      !take(f[2], "knobs", r->log->knobs, sizeof r->log->knobs) ||
      !take(f[3], "device", device, sizeof device))
    return wrong(r, "BS-OPLOG-HEAD", "the first line is '#oplog 1', op, knobs, device and 'unit ps'",
                 over ? "" : r->text);
  char *blank = strrchr(device, ' ');
  if (blank == NULL || blank == device || (size_t)(blank - device) >= sizeof r->log->device ||
      !hex(blank + 1, &r->log->hash))
    return wrong(r, "BS-OPLOG-HEAD", "a device is its name and 16 digits of its hash", device);
  *blank = '\0';
  memcpy(r->log->device, device, strlen(device) + 1);
  return BS_OK;
}

int32_t sim_oplog_read(const char *path, sim_oplog *out, bs_error *err) {
  reader r = {.path = path, .log = out, .err = err};
  int over = 0;
  memset(out, 0, sizeof *out);
  r.file = fopen(path, "re");
  if (r.file == NULL) return bs_error_errno(err, BS_INPUT, "BS-OPLOG-READ", errno, "cannot read %s", path);
  int32_t rc = read_head(&r);
  while (rc == BS_OK && !over) {
    rc = next_line(&r, &over);
    if (rc == BS_OK && !over && r.text[0] != '#') rc = read_job(&r);
  }
  fclose(r.file);
  if (rc == BS_OK) rc = sim_oplog_index(out, err);
  if (rc == BS_INPUT && err != NULL && err->where[0] == '\0') bs_error_where(err, "%s", path);
  return rc;
}
