/* SPDX-License-Identifier: MIT
 * plugin.c - opening the plugin with the kit's host, and the survey: a child process that opens it once and
 * tells what it registers, so that the process that lists the checks runs no code of the plugin. */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/plugin/accept.h"
#include "core/plugin/handlers.h"
#include "kit/kit.h"

int32_t kit_plugin_load(kit_plugin *p, const bs_kit_options *options, bs_error *err) {
  memset(p, 0, sizeof *p);
  bs_handlers handlers;
  bs_handlers_keep(&handlers);
  dlerror();
  p->handle = dlopen(options->plugin, RTLD_NOW | RTLD_LOCAL);
  /* Restores the signal handlers that the libraries of the plugin replaced, as the host does. A handler of
   * the plugin itself is a fault (hygiene.signals). */
  (void)bs_handlers_put_back(&handlers, p->handle);
  if (p->handle == NULL)
    return bs_error_set(err, BS_UNAVAILABLE, "BS-PLG-LOAD", "cannot be opened: %s", dlerror());
  void *symbol = dlsym(p->handle, BS_PLUGIN_QUERY_SYMBOL);
  if (symbol == NULL)
    return bs_error_set(err, BS_PLUGIN, "BS-PLG-SYMBOL", "has no %s", BS_PLUGIN_QUERY_SYMBOL);
  memcpy(&p->query, &symbol, sizeof symbol);
  p->desc = p->query(BS_ABI_VERSION, 0);
  if (p->desc == NULL)
    return bs_error_set(err, BS_ABI, "BS-PLG-ABI", "query returns NULL for host ABI %u.%u", BS_ABI_MAJOR,
                        BS_ABI_MINOR);
  int32_t rc = bs_accept_abi(BS_ABI_VERSION, p->desc->abi, p->desc->min_host_minor, err);
  if (rc == BS_OK)
    rc = bs_accept_size(BS_ABI_VERSION, "bs_plugin_desc", p->desc->struct_size, sizeof *p->desc,
                        sizeof *p->desc, err);
  if (rc == BS_OK && (p->desc->id == NULL || p->desc->version == NULL || p->desc->activate == NULL))
    rc = bs_error_set(err, BS_PLUGIN, "BS-PLG-SLOT", "the descriptor's id, version or activate is NULL");
  if (rc == BS_OK) kit_host_init(&p->host, options, p->desc->kinds);
  return rc;
}

int32_t kit_plugin_activate(kit_plugin *p, bs_error *err) {
  bs_error own = BS_ERROR_INIT;
  p->state = NULL;
  bs_error_clear(&p->host.refused);
  p->host.inside = 1;
  int32_t rc = p->desc->activate(&p->host.table.host, (bs_plugin_self *)(void *)&p->host, &p->state, &own);
  p->host.inside = 0;
  p->active = rc == BS_OK;
  if (rc == BS_OK && p->host.refused.code != BS_OK) { /* the host does not take what it refused a part of */
    kit_plugin_deactivate(p);
    own = p->host.refused;
    rc = own.code;
  }
  if (rc != BS_OK) kit_host_drop(&p->host);
  if (rc != BS_OK && err != NULL) {
    *err = own;
    err->code = rc;
  }
  return rc;
}

void kit_plugin_deactivate(kit_plugin *p) {
  bs_error err = BS_ERROR_INIT;
  if (!p->active) return;
  p->active = 0;
  const int32_t rc = p->desc->deactivate != NULL ? p->desc->deactivate(p->state, &err) : BS_OK;
  kit_host_drop(&p->host);
  kit_assert(rc == BS_OK, "deactivate fails: %s: %s", err.id, err.message);
}

void kit_plugin_open(kit_plugin *p) {
  bs_error err = BS_ERROR_INIT;
  int32_t rc = kit_plugin_load(p, kit.options, &err);
  if (rc == BS_OK) rc = kit_plugin_activate(p, &err);
  kit_assert(rc == BS_OK, "the plugin cannot be activated: %s: %s",
             err.id[0] != '\0' ? err.id : bs_status_name(rc),
             err.message[0] != '\0' ? err.message : "it gave no reason");
}

const char *kit_kind_word(uint32_t kind) {
  static const char *const words[] = {"op",       "backend",  "comm",      "method",
                                      "workload", "importer", "algorithm", "topology"};
  _Static_assert(sizeof words / sizeof words[0] == BS_KIND_COUNT_, "a word for each kind");
  return kind < BS_KIND_COUNT_ ? words[kind] : "unknown kind";
}

static void describe(const kit_thing *t, kit_found *f) {
  const char *name = "";
  f->kind = t->kind;
  switch (t->kind) {
    case BS_KIND_OP: {
      const bs_op_impl *op = t->vtable;
      name = op->name;
      snprintf(f->op, sizeof f->op, "%s", op->op);
      snprintf(f->backend, sizeof f->backend, "%s", op->backend);
      f->knobs = op->n_knobs;
      break;
    }
    case BS_KIND_BACKEND:
      name = ((const bs_backend *)t->vtable)->name;
      f->phantom = (((const bs_backend *)t->vtable)->flags & BS_BACKEND_PHANTOM) != 0;
      f->device = (((const bs_backend *)t->vtable)->flags & BS_BACKEND_HOST_MEMORY) == 0;
      break;
    case BS_KIND_COMM:
      name = ((const bs_comm *)t->vtable)->name;
      f->launch = ((const bs_comm *)t->vtable)->launch;
      break;
    case BS_KIND_METHOD:
      name = ((const bs_method *)t->vtable)->name;
      break;
    case BS_KIND_IMPORTER:
      name = ((const bs_importer *)t->vtable)->name;
      break;
    case BS_KIND_ALGORITHM:
      name = ((const bs_algorithm *)t->vtable)->name;
      break;
    case BS_KIND_TOPOLOGY:
      name = ((const bs_topology *)t->vtable)->name;
      break;
    default:
      name = ((const bs_workload *)t->vtable)->name;
      break;
  }
  snprintf(f->name, sizeof f->name, "%s", name);
}

/* Is thing i an earlier communicator under another name? */
static uint32_t is_again(const kit_host *h, uint32_t i) {
  if (h->things[i].kind != BS_KIND_COMM) return 0;
  for (uint32_t k = 0; k < i; k++) {
    if (h->things[k].kind != BS_KIND_COMM || h->things[k].state != h->things[i].state) continue;
    const bs_comm *before = h->things[k].vtable;
    bs_comm same;
    memcpy(&same, h->things[i].vtable, sizeof same);
    same.name = before->name;
    same.summary = before->summary;
    if (memcmp(&same, before, sizeof same) == 0) return 1;
  }
  return 0;
}

static void survey_child(const bs_kit_options *options, kit_survey *s) {
  static kit_plugin p;
  bs_error err = BS_ERROR_INIT;
  s->code = kit_plugin_load(&p, options, &err);
  if (s->code == BS_OK) {
    snprintf(s->id, sizeof s->id, "%s", p.desc->id);
    snprintf(s->version, sizeof s->version, "%s", p.desc->version);
    s->kinds = p.desc->kinds;
    s->code = kit_plugin_activate(&p, &err);
  }
  for (uint32_t i = 0; s->code == BS_OK && i < p.host.n_things; i++) {
    describe(&p.host.things[i], &s->things[s->n_things]);
    s->things[s->n_things++].again = is_again(&p.host, i);
  }
  if (s->code != BS_OK) snprintf(s->why, sizeof s->why, "%s: %s", err.id, err.message);
  s->complete = 1;
  _exit(0);
}

void kit_survey_make(const bs_kit_options *options, kit_survey *s) {
  int status = 0;
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(KIT_LIMIT_S); /* an activate that never returns */
    survey_child(options, s);
  }
  while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
  if (s->complete) return;
  s->code = BS_PLUGIN;
  if (pid > 0 && WIFSIGNALED(status))
    snprintf(s->why, sizeof s->why, "it dies while it is activated: signal %d (%s)", WTERMSIG(status),
             strsignal(WTERMSIG(status)));
  else
    snprintf(s->why, sizeof s->why, "it ends the process with %d while it is activated",
             pid > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}

const char *kit_found_name(const kit_found *f, char *out, size_t size) {
  if (f->kind == BS_KIND_OP)
    snprintf(out, size, "%s@%s/%s", f->op, f->backend, f->name);
  else
    snprintf(out, size, "%s", f->name);
  return out;
}
