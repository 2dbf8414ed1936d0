/* SPDX-License-Identifier: MIT
 * test_cuda_exports.c - exports of models.txt on the cuda backend over the stand-in: each node is right, and
 * which ones are on the host. */
#include <string.h>

#include "tests/cuda/backend.h"
#include "tests/graph/split_case.h"

enum { TOKENS = 5 };

/* host: ops that the device does not serve for the model. */
static const struct {
  const char *name, *host;
} exports[] = {{"bert_23_dynamic", ""}, {"bert_20", ""},  {"t5_encoder_23", ""},
               {"vit_23", ""},          {"llama_23", ""}, {"mlp_4x128_23", ""}};

static over cuda;

static void before(void) {
  files_begin();
  split_err = (bs_error)BS_ERROR_INIT;
  cuda = over_open(NULL, "");
  split_context = cuda.context;
}

static void after(void) {
  split_end();
  (void)split_begin;
}

typedef struct seen {
  unsigned on_device;
  char host[400]; /* ops that ran elsewhere */
} seen;

static void look(void *user, const bs_node_check *row) {
  seen *s = user;
  ck_assert_msg(row->ok, "%s of %s by %s: %s", row->op, row->origin, row->serves, row->reason);
  if (strncmp(row->serves, "cuda:", 5) == 0) {
    s->on_device++;
    return;
  }
  const size_t used = strlen(s->host);
  snprintf(s->host + used, sizeof s->host - used, "%s ", row->op);
}

START_TEST(each_node_is_right) {
  seen all = {0};
  bs_dim dims[8];
  const bs_dim *list[8];
  bs_session *s = NULL;
  bs_graph *model = split_open(exports[_i].name);
  const gmodel *m = model->model;
  for (uint32_t i = 0; i < m->n_symbols && i < 8; i++) {
    const int batch = strstr(m->symbols[i], "batch") != NULL;
    dims[i] = (bs_dim){.struct_size = sizeof dims[i], .name = m->symbols[i], .size = batch ? 2 : TOKENS};
    list[i] = &dims[i];
  }
  const bs_session_options o = {.struct_size = (uint32_t)sizeof o,
                                .backend = "cuda",
                                .threads = 1,
                                .dims = list,
                                .n_dims = m->n_symbols};
  split_ok(bs_session_open(split_context, model, &o, &s, &split_err), "open");
  split_set_inputs(s, m->n_inputs);
  split_ok(bs_session_check(s, look, &all, &split_err), "check");
  ck_assert_uint_gt(all.on_device, 0);
  ck_assert_str_eq(all.host, exports[_i].host);
  bs_session_close(s);
  nothing_lives();
}
END_TEST

int main(void) {
  const test_case rows[] = {{each_node_is_right, TEST_COUNT(exports)}, {0}};
  return run_tests("cuda_exports", rows, (test_setup){.before = before, .after = after, .timeout = 60});
}
