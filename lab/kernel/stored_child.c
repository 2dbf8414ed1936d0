/* SPDX-License-Identifier: MIT
 * stored_child.c - the process of a stored build: it opens one arm at a time, and answers the commands of
 * peer.h. Further commands: "provider NAME{KNOBS}", "problem SEED TEXT"; "which", answered by the provider
 * of the open arm, and "knobs", by the values that its plan reports. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lab/config/compose.h"
#include "lab/config/experiment.h"
#include "lab/error.h"
#include "lab/kernel/case.h"
#include "lab/kernel/stored.h"

typedef struct child {
  FILE *in;
  json_t *asked;
  bs_node *config;
  bs_context *context;
  bs_kernel_problem problem;
  bs_kernel_data *data;
  bs_kernel_arm *arm;
  char provider[160], knobs[256], used_knobs[256];
  char *map; /* what both share; NULL: no problem */
  size_t bytes;
} child;

static const char *text_of(const child *c, const char *key) {
  const char *text = json_string_value(json_object_get(c->asked, key));
  return text != NULL ? text : "";
}

/* One line; a text of several lines becomes one. 0: there is no parent that reads it. */
static int answer(const char *word, const char *text) {
  char line[BS_KERNEL_PEER_LINE];
  snprintf(line, sizeof line - 1, "%s%s%.*s", word, text[0] != '\0' ? " " : "",
           (int)(sizeof line - 8 - strlen(word)), text);
  for (char *at = line; *at != '\0'; at++)
    if (*at == '\n') *at = ' ';
  const size_t length = strlen(line);
  line[length] = '\n';
  return send(STDIN_FILENO, line, length + 1, MSG_NOSIGNAL) == (ssize_t)length + 1;
}

static int answer_error(const bs_error *err) {
  char text[BS_KERNEL_PEER_LINE];
  snprintf(text, sizeof text, "[%s] %s", err->id, err->message);
  return answer("no", text);
}

/* ---- open --------------------------------------------------------------------------------------- */

/* Puts the stored file before all other files: a plugin of the same id that is found later is shadowed. */
static int32_t select_file(const child *c, bs_error *err) {
  const bs_node *given = bs_config_find(c->config, "plugin");
  bs_text list = {0};
  char id[64];
  bs_text_append(&list, "[", 1);
  bs_config_quote(&list, text_of(c, "file"));
  for (const bs_node *n = given != NULL ? given->first : NULL; n != NULL; n = n->next) {
    bs_plugin_id_of(n->text, id, sizeof id);
    if (strcmp(id, text_of(c, "plugin")) == 0) continue;
    bs_text_append(&list, ", ", 2);
    bs_config_quote(&list, n->text);
  }
  bs_text_append(&list, "]", 1);
  const int32_t rc = list.failed ? bs_no_memory(err, "the list of plugins")
                                 : bs_config_set(c->config, "plugin", list.data, err);
  bs_text_free(&list);
  return rc;
}

/* The stored file must be what serves under its id. */
static int32_t check_file(const child *c, bs_error *err) {
  const char *file = text_of(c, "file"), *id = text_of(c, "plugin");
  for (uint32_t i = 0; i < bs_plugin_count(c->context); i++) {
    bs_plugin_info info = {.struct_size = sizeof info};
    const int32_t rc = bs_plugin_get(c->context, i, &info, err);
    if (rc != BS_OK) return rc;
    if (strcmp(info.path, file) != 0) continue;
    if (info.state == BS_PLUGIN_FOUND && strcmp(info.id, id) == 0) return BS_OK;
    return bs_error_set(err, BS_PLUGIN, info.why_id[0] != '\0' ? info.why_id : "BS-KERNEL-STORED", "%s",
                        info.why[0] != '\0' ? info.why : "another plugin has its id");
  }
  return bs_error_set(err, BS_PLUGIN, "BS-KERNEL-STORED", "%s is no plugin %s", file, id);
}

static int32_t open_child(child *c, bs_error *err) {
  const bs_backend *backend = NULL;
  void *state = NULL;
  const char *config = text_of(c, "config");
  int32_t rc = bs_config_parse("the configuration", config, strlen(config), &c->config, err);
  if (rc == BS_OK) rc = select_file(c, err);
  if (rc == BS_OK) rc = bs_context_of_config(c->config, BS_LOG_ERROR, NULL, NULL, &c->context, err);
  if (rc == BS_OK) rc = check_file(c, err);
  if (rc == BS_OK) rc = bs_plugin_activate(c->context, text_of(c, "plugin"), err);
  return rc == BS_OK ? bs_find_backend(c->context, text_of(c, "backend"), &backend, &state, err) : rc;
}

static void drop_problem(child *c) {
  bs_kernel_arm_close(c->arm);
  bs_kernel_data_free(c->data);
  if (c->map != NULL) munmap(c->map, c->bytes);
  c->arm = NULL;
  c->data = NULL;
  c->map = NULL;
}

static void close_child(child *c) {
  drop_problem(c);
  if (c->context != NULL) bs_context_close(c->context);
  bs_config_free(c->config);
}

/* ---- a problem ---------------------------------------------------------------------------------- */

static int32_t open_arm(child *c, const char *provider, const char *knobs, bs_error *err) {
  const bs_kernel_setup setup = {
      .context = c->context,
      .problem = &c->problem,
      .backend = text_of(c, "backend"),
      .provider = provider,
      .knobs = knobs,
      .threads = (uint32_t)json_integer_value(json_object_get(c->asked, "threads")),
      .bind = 1,
      .data = c->data};
  snprintf(c->used_knobs, sizeof c->used_knobs, "%s", knobs);
  return bs_kernel_arm_open(&setup, &c->arm, err);
}

/* Opens the chosen provider; or the same without knobs; or the first of the plugin that serves. An older
 * build may lack the first two; what it has and what fails is an error. That of the chosen one is reported.
 */
static int32_t open_any(child *c, bs_error *err) {
  const char *const tries[][2] = {{c->provider, c->knobs}, {c->provider, ""}, {text_of(c, "plugin"), ""}};
  bs_error first = BS_ERROR_INIT;
  for (size_t i = 0; i < sizeof tries / sizeof tries[0]; i++) {
    bs_error why = BS_ERROR_INIT;
    const int32_t rc = open_arm(c, tries[i][0], tries[i][1], &why);
    const int lacks = rc == BS_UNSUPPORTED || rc == BS_USAGE || rc == BS_CONFIG || rc == BS_NOT_FOUND;
    if (rc == BS_OK) return rc;
    if (i == 0 || !lacks) first = why;
    if (!lacks) break;
  }
  *err = first;
  return first.code;
}

static int32_t map_shared(child *c, bs_error *err) {
  struct stat s;
  if (fstat(BS_KERNEL_PEER_SHARED, &s) != 0) return bs_no_memory(err, "the shared memory");
  c->bytes = (size_t)s.st_size;
  void *map = mmap(NULL, c->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, BS_KERNEL_PEER_SHARED, 0);
  if (map == MAP_FAILED) return bs_no_memory(err, "%zu bytes to share", c->bytes);
  c->map = map;
  return BS_OK;
}

static int32_t set_problem(child *c, const char *words, bs_error *err) {
  char *text = NULL;
  drop_problem(c);
  const uint64_t seed = strtoull(words, &text, 10);
  int32_t rc = bs_kernel_problem_parse(text + (*text == ' '), &c->problem, err);
  if (rc == BS_OK) rc = bs_kernel_data_make(&c->problem, seed, &c->data, err);
  if (rc == BS_OK) rc = map_shared(c, err);
  if (rc == BS_OK) rc = open_any(c, err);
  if (rc == BS_OK)
    answer("ok", "");
  else
    drop_problem(c);
  return rc;
}

static int32_t set_provider(child *c, const char *text) {
  const size_t length = strcspn(text, "{");
  const char *knobs = text + length + (text[length] == '{');
  snprintf(c->provider, sizeof c->provider, "%.*s", (int)length, text);
  snprintf(c->knobs, sizeof c->knobs, "%.*s", (int)strcspn(knobs, "}"), knobs);
  answer("ok", "");
  return BS_OK;
}

/* ---- commands of an open arm -------------------------------------------------------------------- */

static size_t output_bytes(const child *c) {
  return (size_t)bs_kernel_data_outputs(c->data) * BS_DTYPE_BYTES(bs_kernel_y_dtype(&c->problem));
}

static int32_t batch(child *c, const char *words, bs_error *err) {
  char *next = NULL, text[40];
  bs_sample sample = {0};
  const uint64_t lead = strtoull(words, &next, 10), n = strtoull(next, NULL, 10);
  const int32_t rc = bs_kernel_arm_batch(c->arm, lead, n, &sample, err);
  snprintf(text, sizeof text, "%.17g", sample.seconds);
  if (rc == BS_OK) answer("ok", text);
  return rc;
}

static int32_t series(child *c, const char *words, bs_error *err) {
  char *next = NULL;
  const uint64_t warmup = strtoull(words, &next, 10), n = strtoull(next, NULL, 10);
  const size_t at = bs_kernel_peer_seconds_at(0, output_bytes(c));
  if (n > BS_KERNEL_PEER_CALLS || at + n * sizeof(double) > c->bytes)
    return bs_error_set(err, BS_USAGE, "BS-KERNEL-STORED", "no room for %llu calls", (unsigned long long)n);
  const int32_t rc = bs_kernel_arm_series(c->arm, warmup, n, (double *)(void *)(c->map + at), err);
  if (rc == BS_OK) answer("ok", "");
  return rc;
}

static int32_t output(child *c, bs_error *err) {
  void *y = NULL;
  const size_t bytes = output_bytes(c);
  int32_t rc = bs_kernel_arm_outputs(c->arm, &y, err);
  if (rc == BS_OK && bytes > c->bytes)
    rc = bs_error_set(err, BS_USAGE, "BS-KERNEL-STORED", "no room for the outputs");
  if (rc == BS_OK) memcpy(c->map, y, bytes);
  free(y);
  if (rc == BS_OK) answer("ok", "");
  return rc;
}

static void which(const child *c) {
  char text[BS_KERNEL_STORED_NAME];
  const int some = c->used_knobs[0] != '\0';
  snprintf(text, sizeof text, "%s%s%s%s", bs_kernel_arm_provider(c->arm), some ? "{" : "", c->used_knobs,
           some ? "}" : "");
  answer("ok", text);
}

static void knobs(const child *c) {
  const bs_op_echo *echo = bs_kernel_arm_echo(c->arm);
  answer("ok", echo != NULL ? echo->knobs : "");
}

static int32_t obey(child *c, const char *line, bs_error *err) {
  if (strncmp(line, "provider ", 9) == 0) return set_provider(c, line + 9);
  if (strncmp(line, "problem ", 8) == 0) return set_problem(c, line + 8, err);
  if (c->arm == NULL) return bs_error_set(err, BS_USAGE, "BS-KERNEL-STORED", "no problem is loaded");
  if (strncmp(line, "batch ", 6) == 0) return batch(c, line + 6, err);
  if (strncmp(line, "series ", 7) == 0) return series(c, line + 7, err);
  if (strcmp(line, "output") == 0) return output(c, err);
  if (strcmp(line, "which") == 0) return which(c), BS_OK;
  if (strcmp(line, "knobs") == 0) return knobs(c), BS_OK;
  return bs_error_set(err, BS_USAGE, "BS-KERNEL-STORED", "unknown command '%.60s'", line);
}

/* The next line without its end; NULL: the socket has ended. */
static char *next_line(child *c, char **buffer, size_t *size) {
  const ssize_t n = getline(buffer, size, c->in);
  if (n <= 0) return NULL;
  if ((*buffer)[n - 1] == '\n') (*buffer)[n - 1] = '\0';
  return *buffer;
}

int32_t bs_kernel_stored_serve(bs_error *err) {
  child c = {.in = stdin};
  char *buffer = NULL, version[80];
  size_t size = 0;
  dup2(STDERR_FILENO, STDOUT_FILENO);
  const char *line = next_line(&c, &buffer, &size);
  c.asked = line != NULL ? json_loads(line, JSON_REJECT_DUPLICATES, NULL) : NULL;
  int32_t rc = c.asked != NULL ? open_child(&c, err)
                               : bs_error_set(err, BS_USAGE, "BS-KERNEL-STORED", "no request of bsrun bench");
  snprintf(version, sizeof version, "%.60s", text_of(&c, "plugin"));
  const int heard = rc == BS_OK ? answer("ok", version) : answer_error(err);
  while (rc == BS_OK && heard && (line = next_line(&c, &buffer, &size)) != NULL) {
    bs_error why = BS_ERROR_INIT;
    if (obey(&c, line, &why) != BS_OK) answer_error(&why);
  }
  free(buffer);
  close_child(&c);
  json_decref(c.asked);
  return heard ? BS_OK : rc; /* the parent has the error */
}
