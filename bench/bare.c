/* SPDX-License-Identifier: MIT
 *
 * bare.c - see bare.h. The host knows one parameter, isa: every other one has its default. */
#include "bare.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "blockshock/plugin.h"
#include "blockshock/rank.h"
#include "support.h"

enum { MAX_THINGS = 128, MAX_PARAMS = 16 };

struct bench_plugin {
  bs_host host;
  void *library;
  const bs_plugin_desc *desc;
  void *state;
  const char *isa;
  uint32_t n_things, n_params;
  struct {
    const bs_op_impl *impl;
    void *state;
  } ops[MAX_THINGS];
  bs_param_desc params[MAX_PARAMS];
};

static int32_t register_thing(void *ctx, bs_plugin_self *self, uint32_t kind, const void *vtable, void *state,
                              const bs_src_loc *at, bs_error *err) {
  bench_plugin *p = ctx;
  (void)self;
  (void)at;
  if (kind != BS_KIND_OP) return BS_OK;
  if (p->n_things == MAX_THINGS) return bs_fail(err, BS_NO_MEMORY, "BS-BENCH-THINGS", "more ops than fit");
  p->ops[p->n_things].impl = vtable;
  p->ops[p->n_things++].state = state;
  return BS_OK;
}

static int32_t param_define(void *ctx, bs_plugin_self *self, const bs_param_desc *desc, bs_error *err) {
  bench_plugin *p = ctx;
  (void)self;
  if (p->n_params == MAX_PARAMS)
    return bs_fail(err, BS_NO_MEMORY, "BS-BENCH-PARAMS", "more parameters than fit");
  p->params[p->n_params++] = *desc;
  return BS_OK;
}

static int32_t param_get(void *ctx, const bs_plugin_self *self, const char *name, bs_value *out_value,
                         bs_error *err) {
  const bench_plugin *p = ctx;
  (void)self;
  for (uint32_t i = 0; i < p->n_params; ++i) {
    const bs_param_desc *d = &p->params[i];
    if (strcmp(d->name, name) != 0) continue;
    out_value->type = d->type;
    out_value->s = p->isa != NULL && strcmp(name, "isa") == 0 ? p->isa : d->default_text;
    out_value->f = d->type == BS_PARAM_FLOAT ? strtod(d->default_text, NULL) : 0.0;
    out_value->i = d->type == BS_PARAM_INT ? strtoll(d->default_text, NULL, 10)
                                           : d->type == BS_PARAM_BOOL && strcmp(d->default_text, "true") == 0;
    return BS_OK;
  }
  return bs_fail(err, BS_NOT_FOUND, "BS-BENCH-PARAM", "no parameter %s", name);
}

static int32_t log_enabled(void *ctx, const bs_plugin_self *self, int32_t level) {
  (void)ctx;
  (void)self;
  (void)level;
  return 0;
}

static void log_nothing(void *ctx, const bs_plugin_self *self, int32_t level, const char *file, int32_t line,
                        const char *msg) {
  (void)ctx;
  (void)self;
  (void)level;
  (void)file;
  (void)line;
  (void)msg;
}

/* Large blocks on large pages, as the library's own are. */
static void *lines_alloc(void *ctx, uint64_t bytes) {
  enum { LARGE = 2 << 20 };
  void *p = NULL;
  (void)ctx;
  if (bytes >= LARGE) return bench_huge_alloc(bytes);
  if (posix_memalign(&p, 64, bytes > 0 ? (size_t)bytes : 1) != 0) return NULL;
  return memset(p, 0, (size_t)bytes);
}

static void lines_free(void *ctx, void *p) {
  (void)ctx;
  free(p);
}

/* ctx is the team. */
static int32_t scratch_reserve(void *ctx, uint64_t bytes) {
  bench_team *team = ctx;
  if (bytes <= team->bytes) return BS_OK;
  free(team->scratch);
  team->scratch = lines_alloc(NULL, bytes);
  team->bytes = team->scratch != NULL ? bytes : 0;
  return team->scratch != NULL ? BS_OK : BS_NO_MEMORY;
}

static void *scratch_of(void *ctx) {
  return ((bench_team *)ctx)->scratch;
}

static void *host_alloc(void *ctx, uint64_t bytes, uint64_t align) {
  void *p = NULL;
  (void)ctx;
  if (posix_memalign(&p, align < 64 ? 64 : (size_t)align, bytes > 0 ? (size_t)bytes : 1) != 0) return NULL;
  return memset(p, 0, (size_t)bytes);
}

static int32_t all_members(void *ctx, void (*body)(void *arg, uint32_t member, uint32_t width), void *arg) {
  const bench_team *team = ctx;
  if (team->rank != NULL) return bs_rank_get_api()->parallel_for(team->rank, body, arg);
  body(arg, 0, 1);
  return BS_OK;
}

static const char *path_of(const bs_context *context, const char *id) {
  for (uint32_t i = 0; i < bs_plugin_count(context); ++i) {
    bs_plugin_info info = {.struct_size = sizeof info};
    if (bs_plugin_get(context, i, &info, NULL) == BS_OK && strcmp(info.id, id) == 0 && info.path[0] != '\0' &&
        (info.state == BS_PLUGIN_FOUND || info.state == BS_PLUGIN_ACTIVE))
      return info.path;
  }
  return NULL;
}

int32_t bench_plugin_open(const bs_context *context, const char *id, const char *isa,
                          bench_plugin **out_plugin, bs_error *err) {
  const char *path = path_of(context, id);
  if (path == NULL)
    return bs_fail(err, BS_UNAVAILABLE, "BS-BENCH-PLUGIN",
                   "plugin %s has no file of its own: build with BS_STATIC_PLUGINS=OFF", id);
  bench_plugin *p = calloc(1, sizeof *p);
  if (p == NULL) return bs_fail(err, BS_NO_MEMORY, "BS-BENCH-MEMORY", "no memory for a plugin");
  bs_plugin_query_fn query = NULL;
  p->isa = isa;
  p->host = (bs_host){.struct_size = sizeof p->host,
                      .abi = BS_ABI_VERSION,
                      .ctx = p,
                      .register_thing = register_thing,
                      .log_enabled = log_enabled,
                      .log = log_nothing,
                      .alloc = host_alloc,
                      .free = lines_free,
                      .param_define = param_define,
                      .param_get = param_get,
                      .convert = bs_convert};
  p->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  void *symbol = p->library != NULL ? dlsym(p->library, BS_PLUGIN_QUERY_SYMBOL) : NULL;
  if (symbol == NULL) {
    const int32_t rc = bs_fail(err, BS_PLUGIN, "BS-BENCH-PLUGIN", "cannot open %s: %s", path, dlerror());
    bench_plugin_close(p);
    return rc;
  }
  memcpy(&query, &symbol, sizeof query);
  const bs_plugin_desc *desc = query(BS_ABI_VERSION, 0);
  const int32_t rc = desc->activate(&p->host, NULL, &p->state, err);
  if (rc != BS_OK) {
    bench_plugin_close(p);
    return rc;
  }
  p->desc = desc;
  *out_plugin = p;
  return BS_OK;
}

void bench_plugin_close(bench_plugin *p) {
  if (p == NULL) return;
  if (p->desc != NULL && p->desc->deactivate != NULL) (void)p->desc->deactivate(p->state, NULL);
  if (p->library != NULL) dlclose(p->library);
  free(p);
}

void bench_team_make(const bench_plugin *p, bs_rank *rank, uint32_t width, bench_team *team) {
  *team = (bench_team){.rank = rank};
  team->exec = (bs_exec){.struct_size = sizeof team->exec,
                         .width = rank != NULL ? width : 1,
                         .device = p->state,
                         .parallel_for = all_members,
                         .alloc = lines_alloc,
                         .free = lines_free,
                         .ctx = team,
                         .reserve = scratch_reserve,
                         .scratch = scratch_of};
}

void bench_team_free(bench_team *team) {
  free(team->scratch);
  team->scratch = NULL;
}

int32_t bench_kernel_plan(const bench_team *team, const bs_op_query *query, bench_kernel *kernel,
                          bs_error *err) {
  if (kernel->plan != NULL) kernel->impl->plan_free(kernel->plan);
  kernel->plan = NULL;
  return kernel->impl->prepare(kernel->state, &team->exec, query, kernel->packed, &kernel->plan, err);
}

int32_t bench_kernel_make(const bench_plugin *p, const bench_team *team, const char *name,
                          const bs_op_query *query, const bs_source *weights, bench_kernel *kernel,
                          bs_error *err) {
  memset(kernel, 0, sizeof *kernel);
  for (uint32_t i = 0; i < p->n_things; ++i) {
    if (strcmp(p->ops[i].impl->op, query->op) != 0 || strcmp(p->ops[i].impl->name, name) != 0) continue;
    kernel->impl = p->ops[i].impl;
    kernel->state = p->ops[i].state;
  }
  if (kernel->impl == NULL)
    return bs_fail(err, BS_NOT_FOUND, "BS-BENCH-KERNEL", "the plugin has no %s/%s", query->op, name);
  int32_t rc =
      kernel->impl->pack(kernel->state, &team->exec, query, weights, &kernel->packed, &kernel->bytes, err);
  if (rc == BS_OK) rc = bench_kernel_plan(team, query, kernel, err);
  if (rc != BS_OK) bench_kernel_free(kernel);
  return rc;
}

void bench_kernel_free(bench_kernel *kernel) {
  if (kernel->plan != NULL) kernel->impl->plan_free(kernel->plan);
  if (kernel->packed != NULL) kernel->impl->packed_free(kernel->packed);
  memset(kernel, 0, sizeof *kernel);
}
