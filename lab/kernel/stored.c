/* SPDX-License-Identifier: MIT
 * stored.c - see stored.h: the parent's side. */
#include "lab/kernel/stored.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/text.h"
#include "lab/error.h"

static const bs_kernel_peer_kind kind;

static int32_t load(bs_kernel_peer *peer, const bs_kernel_data *data, bs_error *err) {
  const bs_kernel_problem *p = bs_kernel_data_problem(data);
  const size_t y = (size_t)bs_kernel_data_outputs(data) * BS_DTYPE_BYTES(bs_kernel_y_dtype(p));
  char text[BS_KERNEL_TEXT], command[BS_KERNEL_TEXT + 64];
  size_t bytes;
  const int32_t rc = bs_kernel_peer_share(peer, NULL, 0, y, &bytes, err);
  if (rc != BS_OK) return rc;
  bs_kernel_problem_text(p, text, sizeof text);
  snprintf(command, sizeof command, "problem %llu %s\n", (unsigned long long)bs_kernel_data_seed(data), text);
  return bs_kernel_peer_ask(peer, command, NULL, err);
}

static const bs_kernel_peer_kind kind = {.name = "the stored build", .id = "BS-KERNEL-STORED", .load = load};

int32_t bs_kernel_stored_start(const bs_kernel_stored *s, const char *backend, uint32_t threads,
                               bs_kernel_peer **out, bs_error *err) {
  bs_text line = {0};
  *out = NULL;
  json_t *asked = json_pack("{s:s, s:s, s:s, s:s, s:i}", "config", s->config, "file", s->file, "plugin",
                            s->plugin, "backend", backend != NULL ? backend : "cpu", "threads", (int)threads);
  char *text = asked != NULL ? json_dumps(asked, JSON_COMPACT) : NULL;
  json_decref(asked);
  if (text != NULL) bs_text_printf(&line, "%s\n", text);
  free(text);
  int32_t rc = line.data == NULL || line.failed
                   ? bs_no_memory(err, "an arm")
                   : bs_kernel_peer_start(&kind, s->program, s->words, line.data, out, err);
  bs_text_free(&line);
  return rc;
}

int32_t bs_kernel_stored_choose(bs_kernel_peer *peer, const char *provider, const char *knobs,
                                bs_error *err) {
  char command[BS_KERNEL_STORED_NAME + 32];
  snprintf(command, sizeof command, "provider %s{%s}\n", provider, knobs);
  return bs_kernel_peer_ask(peer, command, NULL, err);
}

static int32_t ask_text(bs_kernel_peer *peer, const char *command, char *out, int size, bs_error *err) {
  char answer[BS_KERNEL_PEER_LINE] = "";
  const int32_t rc = bs_kernel_peer_ask(peer, command, answer, err);
  snprintf(out, (size_t)size, "%.*s", size - 1, answer);
  return rc;
}

int32_t bs_kernel_stored_provider(bs_kernel_peer *peer, char out[BS_KERNEL_STORED_NAME], bs_error *err) {
  return ask_text(peer, "which\n", out, BS_KERNEL_STORED_NAME, err);
}

int32_t bs_kernel_stored_knobs(bs_kernel_peer *peer, char out[BS_KERNEL_STORED_KNOBS], bs_error *err) {
  return ask_text(peer, "knobs\n", out, BS_KERNEL_STORED_KNOBS, err);
}
