/* SPDX-License-Identifier: MIT
 * abi.c - group abi: the file as the host reads and opens it. The rules are the host's own (core/plugin);
 * they are asked, not repeated. */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "core/plugin/note.h"
#include "kit/kit.h"
#include "kit/symbols.h"

static void read_file(bs_elf_info *info) {
  bs_error err = BS_ERROR_INIT;
  const int fd = open(kit.options->plugin, O_RDONLY | O_CLOEXEC);
  kit_assert(fd >= 0, "%s cannot be opened", kit.options->plugin);
  const int32_t rc = bs_elf_read(fd, info, &err);
  close(fd);
  kit_assert(rc == BS_OK, "the file is no plugin: %s: %s", err.id, err.message);
}

void kit_abi_file(const kit_case *c) {
  bs_elf_info info;
  bs_error err = BS_ERROR_INIT;
  (void)c;
  read_file(&info);
  kit_assert(bs_symbol_accept(&info, &err) == BS_OK, "%s: %s", err.id, err.message);
  kit_assert(info.has_note, "there is no note .note.blockshock: define the plugin by BS_PLUGIN_DEFINE");
  kit_assert(bs_note_accept(&info, &err) == BS_OK, "the note is refused: %s: %s", err.id, err.message);
}

void kit_abi_symbols(const kit_case *c) {
  bs_elf_info info;
  kit_symbols s;
  (void)c;
  read_file(&info);
  kit_assert(kit_symbols_read(kit.options->plugin, &s) == 0, "%s cannot be read", kit.options->plugin);
  kit_assert(s.undefined_ours == 0,
             "needs %d symbols bs_* of the host, of the symbols%s: all that a plugin needs comes through the "
             "host table",
             s.undefined_ours, s.text);
  kit_assert(
      s.exported == 1,
      "exports %d symbols, one is allowed:%s (compile with -fvisibility=hidden; "
      "C++ templates need -Wl,--version-script=$(pkg-config --variable=linkmap blockshock-plugin), too)",
      s.exported, s.text);
}

typedef struct heard {
  char unlisted[400];
} heard;

static void listen_to(void *user, int32_t level, const char *plugin, int32_t rank, const char *message) {
  heard *h = user;
  (void)level, (void)plugin, (void)rank;
  if (strstr(message, "which its note does not list") != NULL)
    snprintf(h->unlisted, sizeof h->unlisted, "%s", message);
}

/* The id that the file's name gives. */
static void file_id(char *out, size_t size) {
  const char *name = strrchr(kit.options->plugin, '/') + 1; /* the path is resolved */
  const char *end = strstr(name, ".so");
  if (strncmp(name, "bs_", 3) == 0) name += 3;
  snprintf(out, size, "%.*s", (int)(end != NULL && end > name ? end - name : (ptrdiff_t)strlen(name)), name);
}

/* Everything that the real loader checks: note equal to descriptor, names, sizes, slots, the rest. */
void kit_abi_host(const kit_case *c) {
  const char *path = kit.options->plugin;
  char params[64][320];
  const char *given[64];
  heard h = {""};
  bs_context_options o = {.struct_size = sizeof o,
                          .trust = BS_TRUST_ANY,
                          .plugins = &path,
                          .n_plugins = 1,
                          .params = given,
                          .n_params = kit.options->n_params,
                          .log = listen_to,
                          .log_user = &h};
  bs_context *context = NULL;
  bs_error err = BS_ERROR_INIT;
  char id[64];
  (void)c;
  file_id(id, sizeof id);
  for (uint32_t i = 0; i < o.n_params; i++) {
    snprintf(params[i], sizeof params[i], "%s.%s", id, kit.options->params[i]);
    given[i] = params[i];
  }
  int32_t rc = bs_context_open(&o, &context, &err);
  if (rc == BS_OK) rc = bs_plugin_activate(context, id, &err);
  kit_assert(rc == BS_OK, "the host does not take it: %s: %s", err.id, err.message);
  kit_assert(bs_thing_count(context, id) > 0, "registers nothing");
  kit_assert(h.unlisted[0] == '\0', "%s", h.unlisted);
  bs_context_close(context);
}

static int registered(const char *kind, const char *name, size_t n) {
  for (uint32_t i = 0; i < kit.survey->n_things; i++) {
    const kit_found *f = &kit.survey->things[i];
    char own[160];
    if (strcmp(kit_kind_word(f->kind), kind) != 0) continue;
    if (f->kind == BS_KIND_OP)
      snprintf(own, sizeof own, "%s@%s", f->op, f->backend);
    else
      snprintf(own, sizeof own, "%s", f->name);
    if (strlen(own) == n && strncmp(own, name, n) == 0) return 1;
  }
  return 0;
}

/* Checks that all things in the note are registered: the host finds them by name in the note. */
void kit_abi_things(const kit_case *c) {
  bs_elf_info info;
  (void)c;
  read_file(&info);
  kit_assert(kit.survey->code == BS_OK, "it cannot be activated: %s", kit.survey->why);
  for (char *save = NULL, *line = strtok_r(info.note.things, "\n", &save); line != NULL;
       line = strtok_r(NULL, "\n", &save)) {
    char *name = strchr(line, ':');
    kit_assert(name != NULL, "the note's line '%s' is not KIND:NAME", line);
    *name++ = '\0';
    if (strcmp(line, "needs") == 0) continue; /* a library, and the parameter that names another */
    const char *of = strchr(name, '=');       /* ALIAS=NAME */
    const char *own = of != NULL ? of + 1 : name;
    size_t n = strlen(own);
    if (n > 1 && own[n - 1] == ':') n--; /* a wrapper, "fault:" */
    kit_assert(registered(line, own, n), "the note lists %s:%s, it is not registered", line, own);
  }
}

/* A host of a later minor has a longer table: a plugin may not mind. */
void kit_abi_later(const kit_case *c) {
  static kit_plugin p;
  bs_error err = BS_ERROR_INIT;
  (void)c;
  kit_assert(kit_plugin_load(&p, kit.options, &err) == BS_OK, "%s: %s", err.id, err.message);
  p.host.table.host.struct_size = (uint32_t)sizeof p.host.table;
  kit_assert(kit_plugin_activate(&p, &err) == BS_OK, "a host with a longer table is not accepted: %s: %s",
             err.id, err.message);
  kit_plugin_deactivate(&p);
}
